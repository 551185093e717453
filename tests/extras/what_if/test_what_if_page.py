"""What if, as a person asks it in a real Chromium: slow presses, keys alone, a phone, a link that somebody sent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from nacdrive.common.action import Action
from nacdrive.common.paths import shipped
from nacdrive.datasets.recording import Recording
from nacdrive.extras.export.card import LapCard
from nacdrive.extras.what_if import WhatIfCard
from nacdrive.layers import build
from nacdrive.web import Card, LiveServer
from nacdrive.web.episode_cache import EpisodeCache, EpisodeLabel, ReplaySource
from nacdrive.web.replay import ReplayServer
from tests.helpers.ports import lasting_port
from tests.helpers.ticks import CHOICES, make_tick
from tests.helpers.what_if import SEED, SOURCE, drive, small_policy
from tests.web.test_accessibility import check
from tests.web.test_next_drive import Inside
from tests.web.test_page import STICKING_OUT, serve, shows, text, until

PRESS_MS = 160
# Until one is hit.
CLICK_NEURON = """() => {
  const c = document.getElementById("circuit"), box = c.getBoundingClientRect();
  const muted = () => document.querySelectorAll(".edits li:not(.dim)").length;
  for (let y = 0, before = muted(); y < box.height && muted() === before; y += 4) {
    c.dispatchEvent(new PointerEvent("click", { clientX: box.left + 0.09 * box.width, clientY: box.top + y }));
  }
}"""
ANSWERED = "document.querySelector('.sentence')?.textContent.startsWith('{}')"
LONG_S = 240


@pytest.fixture(scope="module")
def replay() -> Iterator[ReplayServer]:
    ticks = drive()
    label = EpisodeLabel(SEED, len(ticks), 0.0, "small")
    run = ReplaySource("run", [label, label], lambda _: ticks, CHOICES, circuit=small_policy().circuit())
    cache = EpisodeCache([run])
    model, sample = shipped("agents") / "carracing" / "nac_steady.pt", shipped("recordings") / "carracing-sample"
    lap = LapCard({0: (model, Recording.open(sample).load)})
    with ReplayServer(cache, port=0, cards=[WhatIfCard.of_recordings(cache, {0: SOURCE}), lap]) as server:
        yield server


def press(page: Any, selector: str) -> None:
    """Press as long as a finger does."""
    page.locator(selector).first.scroll_into_view_if_needed()
    box = page.locator(selector).first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.wait_for_timeout(PRESS_MS)
    page.mouse.up()


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Paint from one place of the picture to another, as shares of it."""
    box = page.locator("#patches").bounding_box()
    at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    page.mouse.move(*at[0])
    page.mouse.down()
    page.wait_for_timeout(PRESS_MS)
    page.mouse.move(*at[1], steps=4)
    page.mouse.up()


def opened(page: Any) -> None:
    """Stop the replay and ask what if."""
    until(page, "document.querySelector('.ask')?.hidden === false")
    until(page, "document.querySelector('#state').dataset.state === 'replay'")
    page.keyboard.press("ArrowRight")
    page.keyboard.press(" ")
    press(page, ".ask")
    until(page, ANSWERED.format("It "), timeout_s=LONG_S)


def edits(page: Any) -> list[str]:
    return [str(one) for one in page.locator(".edits li:not(.dim) > span").all_text_contents()]


@pytest.mark.nightly
def test_a_person_paints_mutes_undoes_and_drives_on(open_page: Callable[..., Any], replay: ReplayServer) -> None:
    page = open_page(replay.url)
    opened(page)
    drag(page, (0.2, 0.2), (0.7, 0.7))
    until(page, ANSWERED.format("With 25 % of the picture painted grey"))
    assert "if=paint:0.2" in page.url
    press(page, "[aria-label='Mute head 2']")
    until(page, ANSWERED.format("With 25 % of the picture painted grey and head 2 muted"))
    # Why is of the edited network, beside as it is; so are circuit and attention.
    until(page, "document.querySelector('#why .reason').textContent.startsWith('Changed: It ')")
    assert text(page, "#why .reason-before").startswith("As it is: It ")
    press(page, "#show-neurons")
    assert page.is_visible("#circuit-edited") and page.is_visible("#attention-edited")
    assert "→" in text(page, "#equation")
    assert page.get_attribute("#heads [aria-label='head 2']", "data-muted") == "yes"
    assert page.get_attribute("[aria-label='Mute head 2']", "aria-pressed") == "true"
    press(page, ".edits button")
    until(page, ANSWERED.format("With head 2 muted"))
    page.get_by_role("button", name="What it hangs on").click()
    until(page, "document.getElementById('what-if').dataset.mapMs > 0", timeout_s=LONG_S)
    press(page, ".answers .main")
    until(page, "document.querySelector('.effect').textContent.includes('driven on')", timeout_s=LONG_S)
    assert page.is_visible("#map") and page.is_visible(".eyes")
    # The ghost that has driven goes along with the lap.
    with page.expect_download() as saved:
        page.get_by_role("button", name="Send this lap").click()
    lap = Path(saved.value.path()).read_text()
    (ghost,) = re.findall(r'id="ghost">(.*?)</script>', lap)
    assert json.loads(ghost)["text"] == text(page, ".effect") and json.loads(ghost)["edited"][0]["picture"]
    page.get_by_role("button", name="Undo").click()
    until(page, ANSWERED.format("It "))
    assert edits(page) == []
    page.keyboard.press("i")
    assert not page.is_visible("#what-if") and page.is_visible("#verb")
    assert page.faults == []


@pytest.mark.nightly
def test_an_answer_to_a_question_that_has_changed_is_not_shown(
    open_page: Callable[..., Any], replay: ReplayServer
) -> None:
    page = open_page(replay.url)
    opened(page)
    page.evaluate(
        "[...document.querySelectorAll('.what-if button')]"
        ".filter((b) => ['What it hangs on', '1'].includes(b.textContent)).forEach((b) => b.click())"
    )
    until(page, ANSWERED.format("With head 1 muted"))
    page.wait_for_timeout(1500)
    assert page.evaluate("document.getElementById('what-if').dataset.mapMs === undefined"), "of the unedited policy"


def test_a_neuron_is_muted_by_a_click_on_it(open_page: Callable[..., Any], replay: ReplayServer) -> None:
    page = open_page(replay.url)
    opened(page)
    press(page, "#show-neurons")
    page.wait_for_timeout(300)
    box = page.locator("#circuit").bounding_box()
    # Along the column of the motor neurons, until one lies under the pointer.
    for share in range(20, 90, 2):
        page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + box["height"] * share / 100)
        if "head 1" in (page.get_attribute("#circuit", "title") or ""):
            break
    page.mouse.down()
    page.wait_for_timeout(PRESS_MS)
    page.mouse.up()
    until(page, ANSWERED.format("With motor neuron 1 of head 1 muted"))


def test_all_of_it_works_with_the_keyboard_alone(open_page: Callable[..., Any], replay: ReplayServer) -> None:
    page = open_page(replay.url)
    until(page, "document.querySelector('.ask')?.hidden === false")
    page.keyboard.press(" ", delay=PRESS_MS)
    page.keyboard.press("i", delay=PRESS_MS)
    until(page, ANSWERED.format("It "), timeout_s=LONG_S)
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "patches":
            break
    assert page.evaluate("document.activeElement.id") == "patches"
    for key in ("ArrowLeft", "ArrowUp", "Shift+ArrowRight", "Enter"):
        page.keyboard.press(key, delay=60)
    until(page, ANSWERED.format("With 4 % of the picture painted grey"))
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Undo":
            break
    page.keyboard.press("Enter", delay=PRESS_MS)
    until(page, ANSWERED.format("It "))
    assert page.faults == []


def test_a_link_opens_the_moment_with_its_edits(open_page: Callable[..., Any], replay: ReplayServer) -> None:
    page = open_page(
        f"{replay.url}#run=0&ep=2&t=1.2&head=3&if=dim:0.2;mute:h1;mute:h2.inter.4&note=look%20here", bypass_csp=True
    )
    until(page, ANSWERED.format("With these 3 edits"), timeout_s=LONG_S)
    assert text(page, "#episode") == "1"
    assert text(page, "#time") == "1.2 s"
    assert text(page, "#heads [aria-pressed=true]") == "3"
    assert edits(page) == ["the picture dimmed to 20 %", "head 1 muted", "inter neuron 4 of head 2 muted"]
    until(page, "document.querySelector('[aria-label=\"Mute head 1\"]')?.getAttribute('aria-pressed') === 'true'")
    page.get_by_role("button", name="Notes").click()
    assert "look here" in text(page, "#jumps")
    check(page, "what if")
    assert page.faults == []


def test_a_hostile_link_is_only_text(open_page: Callable[..., Any], replay: ReplayServer) -> None:
    evil = "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
    nonsense = f"run=9&ep=1e9&t=NaN&head={evil}&if=mute:{evil};fly:1;paint:9,9,9,9,9;dim:-1"
    page = open_page(f"{replay.url}#{nonsense}&note={evil}")
    until(page, "document.querySelector('#state').dataset.state === 'replay'")
    with page.expect_event("load"):  # the page follows a link in its address by itself
        page.goto(f"{replay.url}#run=0&ep=1&t=1&if=mute:h99;dim:0.5&note={evil}")
    until(page, "document.querySelector('.sentence')?.textContent.includes('no head 99')", timeout_s=LONG_S)
    page.get_by_role("button", name="Notes").click()
    assert "<img" in text(page, "#jumps")
    assert page.locator("#jumps img").count() == 0
    assert page.faults == []


@pytest.mark.nightly
def test_on_a_phone_a_finger_paints_and_nothing_sticks_out(open_page: Callable[..., Any], replay: ReplayServer) -> None:
    page = open_page(replay.url, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    until(page, "document.querySelector('.ask')?.hidden === false")
    page.locator(".player .main").tap()
    page.locator(".ask").tap()
    until(page, ANSWERED.format("It "), timeout_s=LONG_S)
    page.locator("#patches").tap(position={"x": 120, "y": 120})
    until(page, ANSWERED.format("With 1 % of the picture painted grey"))
    assert page.evaluate(STICKING_OUT) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.nightly
def test_in_a_live_drive_asking_holds_and_going_back_lets_go(open_page: Callable[..., Any]) -> None:
    policy = small_policy()
    with LiveServer(
        port=0, title="small", choices=CHOICES, circuit=policy.circuit(), cards=[WhatIfCard.of_drive(SOURCE, 128)]
    ) as server:
        page = open_page(server.url)
        for tick in drive()[:20]:
            server.publish(tick)
            page.wait_for_timeout(40)
        shows(page, drive()[19])
        press(page, ".ask")
        until(page, ANSWERED.format("It "), timeout_s=LONG_S)
        until(page, "document.getElementById('state').textContent === 'Held'")
        held = text(page, "#step")
        for tick in drive()[20:30]:
            server.publish(tick)
            page.wait_for_timeout(40)
        assert text(page, "#step") == held
        page.locator("[aria-label^='Hide the frame of 2']").click()
        until(page, ANSWERED.format("With the frame of 2 decisions ago hidden"))
        page.keyboard.press(",")
        until(page, f"document.getElementById('step').textContent === '{int(held) - 1}'")
        until(page, ANSWERED.format("With the frame of 2 decisions ago hidden"))
        page.keyboard.press("h")
        until(page, f"document.getElementById('step').textContent !== '{int(held) - 1}'")
        assert not page.is_visible("#what-if")
        assert "#" not in page.url
        assert page.faults == []


@pytest.mark.nightly
def test_the_jump_list_leads_to_disagreements_and_doubts(open_page: Callable[..., Any]) -> None:
    with serve() as server:
        page = open_page(server.url)
        for step in range(30):
            other = {"expert": Action(-1.0, 0.0, 0.0, 4)} if step in (9, 10) else {}
            tick = make_tick(step, circuit=False, saliency=False, **other)
            server.publish(tick)
            shows(page, tick)
        assert page.locator(".ask").is_hidden()
        press(page, "#log-tabs button:nth-child(2)")
        until(page, "document.querySelector('#jumps').textContent.includes('the expert: brake')")
        press(page, "#jumps div:has-text('the expert: brake')")
        until(page, "document.querySelector('#state').textContent === 'Held'")
        until(page, "document.getElementById('step').textContent === '9'")
        assert "#ep=1&t=0.45" in page.url
        press(page, "#log-tabs button:nth-child(3)")
        page.fill(".note-field input", "too early <b>")
        page.keyboard.press("Enter")
        until(page, "document.querySelector('#jumps').textContent.includes('too early <b>')")
        assert page.faults == []


@pytest.mark.nightly
def test_the_tour_goes_from_card_to_card_and_ends_with_escape(open_page: Callable[..., Any]) -> None:
    with serve() as server:
        page = open_page(server.url)
        server.publish(make_tick(3))
        shows(page, make_tick(3))
        press(page, "#help")
        press(page, "#tour")
        assert page.is_visible(".tour") and page.locator(".sees.lit").count() == 1
        page.keyboard.press("Enter", delay=PRESS_MS)
        assert page.locator(".does.lit").count() == 1
        assert text(page, ".tour .dim").startswith("2 of ")
        page.keyboard.press("Escape", delay=PRESS_MS)
        assert not page.is_visible(".tour") and page.locator(".lit").count() == 0
        assert page.faults == []


@pytest.mark.nightly
def test_the_presentation_shows_picture_verb_and_reason_alone(open_page: Callable[..., Any]) -> None:
    with serve() as server:
        page = open_page(server.url)
        server.publish(make_tick(3))
        shows(page, make_tick(3))
        before = page.locator("#frame").bounding_box()["height"]
        page.keyboard.press("f", delay=PRESS_MS)
        page.wait_for_timeout(300)
        assert not page.is_visible("#strips") and not page.is_visible("#show-neurons")
        assert page.is_visible("#verb") and page.is_visible("#why .reason")
        assert page.locator("#frame").bounding_box()["height"] > before
        page.keyboard.press("f", delay=PRESS_MS)
        until(page, "document.getElementById('strips').getClientRects().length > 0")


class Mute(Card):
    """The card's page alone: nobody answers."""

    name = "what_if"

    def describe(self, run: int = 0) -> Any:
        return {"window": 4, "ghost": True}


def test_neurons_that_all_heads_share_are_muted_in_all_of_them(open_page: Callable[..., Any]) -> None:
    layer = build("nac-key", 8, 2, 6, in_features=6)
    given = torch.randn(1, 6, 6), torch.arange(6.0)[None]
    neurons = {name: x.detach().numpy() for name, x in layer.neuron_states(*given).items()}
    with serve(circuit=layer.circuit(), cards=[Mute()]) as server:
        page = open_page(server.url)
        tick = make_tick(3, neurons=neurons, why=None)
        server.publish(tick)
        shows(page, tick)
        until(page, "document.querySelector('.ask')?.hidden === false")
        page.keyboard.press("i")
        page.click("[title='Mute all inter neurons of all heads']")
        page.click("#show-neurons")
        until(page, "document.querySelector('#circuit').getBoundingClientRect().height > 50")
        page.evaluate(CLICK_NEURON)
        until(page, "document.querySelectorAll('.edits li:not(.dim)').length === 2")
        first, second = edits(page)
        assert first == "inter neurons of all heads muted"
        assert re.fullmatch(r"\w+ neuron \d+ of all heads muted", second)
        assert re.search(r"if=mute:inter;mute:\w+\.\d+$", page.url)


def test_a_ghost_ends_with_its_moment_and_the_presentation_ends_whatever_is_asked(
    open_page: Callable[..., Any], tmp_path: Path
) -> None:
    with serve(cards=[Mute(), Inside(tmp_path)]) as server:
        page = open_page(server.url)
        for step in range(3):
            server.publish(make_tick(step, x_m=float(step), y_m=0.0))
            shows(page, make_tick(step))
        until(page, "Boolean(window.page) && document.querySelector('.ask')?.hidden === false")
        for key in ("f", "i", "f"):
            page.keyboard.press(key)
        assert page.get_attribute("#dashboard", "data-present") == "no"
        page.evaluate("page.dashboard.map.setGhosts({ edited: [{ x_m: 1, y_m: 1 }], unedited: [], text: 'It stays.' })")
        page.keyboard.press("i")
        assert page.evaluate("page.dashboard.map.ghosts.text") == "It stays.", "the moment is still held"
        page.keyboard.press("h")
        assert page.evaluate("page.dashboard.map.ghosts") is None


def test_a_question_ends_with_the_drive_and_with_the_network_that_it_was_asked_of(
    open_page: Callable[..., Any],
) -> None:
    first = serve(port=lasting_port(), cards=[WhatIfCard.of_drive(SOURCE, 128)])
    page = open_page(first.start())
    for tick in drive()[:20]:
        first.publish(tick)
    shows(page, drive()[19])
    until(page, "document.querySelector('.ask')?.hidden === false")
    page.keyboard.press("i")
    until(page, ANSWERED.format("It "), timeout_s=LONG_S)
    first.stop()
    with serve(port=first.port, cards=[WhatIfCard.of_drive(SOURCE, 128)]) as second:
        second.publish(drive()[0])
        until(page, "document.getElementById('step').textContent === '0'")
        until(page, "document.getElementById('what-if').hidden")
        page.keyboard.press("i")
        until(page, ANSWERED.format("It "), timeout_s=LONG_S)
        second.set(teach={"taught": True})
        until(page, "document.getElementById('what-if').hidden && document.querySelector('.ask').hidden")
        # What the page still asks for when its server stops is cut off or refused.
        assert [fault for fault in page.faults if "net::ERR_CONNECTION_" not in fault] == []
