"""The playground in a real Chromium, from a file: it drives, takes in changes, fetches nothing."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from nacdrive.cli.main import dispatch
from nacdrive.cli.playground import page_of
from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.models import Policy, PolicyConfig, save_policy
from tests.helpers.small_policies import saved
from tests.web.test_page import until

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
FRAME = "playground.session.car.world.frame"
PIXELS = "[...document.getElementById('{}').getContext('2d').getImageData(0, 0, 96, 96).data].reduce((a, b) => a + b)"
TOO_SMALL = """[...document.querySelectorAll('button, select')]
  .filter((e) => e.offsetParent && e.getBoundingClientRect().height < 24).map((e) => e.id || e.textContent)"""
UNNAMED = """[...document.querySelectorAll('button, input, select')]
  .filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).map((e) => e.id)"""


@pytest.fixture(scope="module")
def page(small: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("playground")
    strong = deepcopy(small)  # a policy's own copy has the same weights
    with torch.no_grad():
        # As they are drawn, muting one part moves neither wheel nor pedal by what could be read.
        for name, weight in strong.network.named_parameters():
            if name.endswith("weight"):
                weight.mul_(2)
    save_policy(strong, folder / "small.pt")
    assert dispatch(["playground", "--model", str(folder / "small.pt"), "-o", str(folder / "p.html")]) == 0
    return folder / "p.html"


def drawn(tab: Any, radius: float, centre: tuple[float, float]) -> None:
    """Draw a round road with the mouse; ``radius`` in pixels."""
    from math import cos, pi, sin

    x, y = centre
    tab.mouse.move(x + radius, y)
    tab.mouse.down()
    for i in range(1, 40):
        tab.mouse.move(x + radius * cos(i / 40 * 2 * pi), y + radius * sin(i / 40 * 2 * pi))
    tab.mouse.up()


def test_it_drives_from_a_file_takes_in_changes_and_gives_them_on_as_a_link(
    open_page: Callable[..., Any], page: Path
) -> None:
    tab = open_page(page.as_uri())
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    until(tab, f"{FRAME} > 30")
    assert tab.evaluate(PIXELS.format("frame")) > 0
    tab.click("#heads button:nth-child(2)")
    tab.click("#black")
    tab.locator("#wind").fill("0.5")
    until(tab, "playground.session.ghost !== null && !document.getElementById('key-ghost').hidden")
    rows = [row.text_content().rstrip("✕") for row in tab.query_selector_all("#edits li")]
    assert rows == ["head 2 muted", "the camera is black", "wind to the right"]
    assert tab.evaluate("playground.address") == "#v=1&seed=4000007&if=mute:h2&black=1&wind=0.5"
    until(tab, "playground.session.car.driver.memories.at(-1).frame.every((v) => v === 0)")
    tab.click("#play")
    other = open_page(f"{page.as_uri()}{tab.evaluate('location.hash')}")
    assert other.evaluate("playground.address") == tab.evaluate("playground.address")
    # Its ghost has begun at the start, with the car.
    assert other.evaluate(f"playground.session.ghost.world.frame === {FRAME}")
    # Held, a decision is taken apart; the strongest part is taken away by a press.
    tab.click("#clear")
    tab.click("#ask")
    assert tab.text_content("#why .reason").startswith("It steers ")
    assert 1 <= tab.evaluate("document.querySelectorAll('#why button').length") <= 12
    tab.click("#why button:enabled")
    assert not tab.is_visible("#why")
    assert len(tab.query_selector_all("#edits li")) == 1
    held = tab.evaluate(FRAME)
    tab.keyboard.press("ArrowRight")
    until(tab, f"{FRAME} > {held} && {FRAME} % 2 === 0")
    assert not tab.evaluate("playground.playing")
    tab.locator("#seek").fill("0")
    until(tab, f"{FRAME} === 0")
    assert [url for url in asked if not url.startswith("data:")] == []
    assert tab.faults == [] and other.faults == []


def test_all_neurons_of_a_circuit_that_every_head_shares_can_be_muted(
    open_page: Callable[..., Any], tmp_path: Path
) -> None:
    sizes: dict[str, Any] = {"window": 2, "d_model": 8, "num_heads": 2, "dense": 8, "pedal": True, "projection": 8}
    save_policy(Policy.new(PolicyConfig("carracing", "nac-key", (), **sizes), "key"), tmp_path / "key.pt")
    assert dispatch(["playground", "--model", str(tmp_path / "key.pt"), "-o", str(tmp_path / "p.html")]) == 0
    tab = open_page((tmp_path / "p.html").as_uri())
    until(tab, f"{FRAME} > 2")
    tab.select_option("#group", "motor")
    names = tab.eval_on_selector_all("#neuron option", "all => all.map((one) => one.textContent)")
    assert names == ["all of them", *(f"{gate} of head {h}" for gate in "φωρ" for h in (1, 2))]
    # Its neurons are of no head.
    assert tab.locator("#of option").count() == 1
    tab.select_option("#neuron", index=6)
    tab.click("#mute")
    (row,) = tab.query_selector_all("#edits li")
    assert row.text_content().rstrip("✕") == "motor neuron 6 of all heads muted"
    assert tab.faults == []


def test_who_has_moved_a_slider_steers_by_the_arrows(open_page: Callable[..., Any], page: Path) -> None:
    tab = open_page(page.as_uri())
    for take_the_wheel in ("g", "r"):
        tab.focus("#noise")
        tab.keyboard.press(take_the_wheel)
        until(tab, "playground.person")
        tab.keyboard.down("ArrowLeft")
        assert tab.evaluate("[...playground.hands.held]") == ["left"]
        tab.click("#dim")
        assert tab.evaluate("document.activeElement.id") != "dim"
        tab.keyboard.up("ArrowLeft")
        tab.keyboard.press("g")
    assert tab.evaluate("playground.trouble.noise") == 0
    assert tab.faults == []


def test_a_link_brings_back_every_change_and_what_is_drawn_from_a_seed(
    open_page: Callable[..., Any], page: Path
) -> None:
    tab = open_page(page.as_uri())
    tab.evaluate("""() => {
      const turn = (i) => i * Math.PI / 30;
      playground.drawing = Array.from({ length: 60 }, (_, i) => [120 * Math.cos(turn(i)), 120 * Math.sin(turn(i))]);
      playground.finishRoad();
      const box = { kind: "paint", left: 0, top: 0, bottom: 0.1, level: 0 };
      for (let i = 1; i <= 30; i++) playground.edits.list.push({ ...box, right: i / 100 });
      playground.disturb({ flicker: 0.5 });
    }""")
    asked = "[playground.session.seed, playground.edits.list.length, playground.line.length, location.hash]"
    drawn = tab.evaluate(asked)
    assert drawn[1:3] == [30, 60]
    other = open_page(page.as_uri() + drawn[3])
    assert other.evaluate(asked) == drawn
    assert tab.faults == [] and other.faults == []


@pytest.mark.nightly
def test_a_person_draws_a_road_and_drives_and_races_on_it(open_page: Callable[..., Any], page: Path) -> None:
    tab = open_page(page.as_uri())
    tab.click("#draw")
    box = tab.locator("#stage").bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    drawn(tab, 15, middle)
    until(tab, "document.getElementById('notice').textContent.startsWith('The road is too short')")
    drawn(tab, min(box["width"], box["height"]) * 0.3, middle)
    until(tab, "playground.line !== null && playground.playing")
    assert "road=" in tab.evaluate("location.hash")
    tab.click("#wheel")
    tab.keyboard.down("ArrowUp")
    tab.keyboard.down("ArrowLeft")
    until(tab, "playground.session.car.world.car.gas > 0 && playground.session.car.world.car.steering > 0.5")
    assert tab.evaluate("playground.journal.now.person && playground.journal.now.drawn")
    tab.keyboard.up("ArrowLeft")
    tab.click("#wheel")
    until(tab, "!playground.journal.now.person")
    tab.keyboard.press("r")
    until(tab, "playground.session.racing && playground.journal.now.racing")
    tab.evaluate(
        "playground.setPlaying(false); while (!playground.session.over) playground.frame(); playground.stale = true"
    )
    until(tab, "!document.getElementById('end').hidden")
    assert any(words in tab.text_content("#end-text") for words in ("You have won", "The network has won"))
    assert tab.faults == []


def test_a_broken_link_is_told_and_the_page_runs(open_page: Callable[..., Any], page: Path) -> None:
    tab = open_page(f"{page.as_uri()}#v=1&seed=1&noise=lots")
    assert tab.text_content("#notice").startswith("This link is damaged")
    until(tab, f"{FRAME} > 3")
    tab.evaluate("location.hash = 'v=9&seed=1'")
    until(tab, "document.getElementById('notice').textContent.startsWith('This link was made by a newer')")
    tab.evaluate("location.hash = 'v=1&seed=5&if=mute:h99'")
    until(tab, "document.getElementById('notice').textContent.startsWith('This link is for another network')")
    assert tab.evaluate("playground.seed") == 5
    assert tab.faults == []


@pytest.mark.nightly
def test_it_fits_a_phone_and_is_driven_by_touch(open_page: Callable[..., Any], page: Path) -> None:
    tab = open_page(page.as_uri(), **PHONE)
    until(tab, f"{FRAME} > 3")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.evaluate(TOO_SMALL) == [] and tab.evaluate(UNNAMED) == []
    tab.tap("#wheel")
    box = tab.locator("#stage").bounding_box()
    for kind, (dx, dy) in (("pointerdown", (0, 0)), ("pointermove", (40, -60))):
        place = {"clientX": box["x"] + 150 + dx, "clientY": box["y"] + 150 + dy, "pointerId": 1, "pointerType": "touch"}
        tab.evaluate(
            "([kind, at]) => { const c = document.getElementById('stage'); c.setPointerCapture = () => {};"
            " c.dispatchEvent(new PointerEvent(kind, at)); }",
            [kind, place],
        )
    until(tab, "playground.session.car.world.car.gas > 0 && playground.session.car.world.car.steering < -0.5")
    assert tab.faults == []


@pytest.mark.nightly
def test_axe_finds_nothing_in_any_state(open_page: Callable[..., Any], page: Path) -> None:
    from tests.web.test_accessibility import check

    tab = open_page(page.as_uri(), bypass_csp=True)
    until(tab, f"{FRAME} > 3")
    check(tab, "driving")
    tab.click("#ask")
    tab.click("#heads button:nth-child(2)")
    tab.keyboard.press("y")
    until(tab, "!document.getElementById('why').hidden")
    check(tab, "taken apart")
    tab.click("#theme")
    check(tab, "in the other light")
    tab.click("#help")
    check(tab, "help")
    tab.keyboard.press("Escape")
    tab.click("#draw")
    check(tab, "drawing")
    tab.set_viewport_size(PHONE["viewport"])
    check(tab, "on a phone")
    tab.evaluate("playground.begin(playground.road); playground.session.car.world.ended = 'time is up'")
    until(tab, "!document.getElementById('end').hidden")
    check(tab, "the end of a lap")
    assert tab.faults == []


def test_a_shipped_policy_fits_into_5_mb() -> None:
    assert len(page_of(shipped("agents") / "carracing" / "nac_steady_continuous.pt").encode()) < 5e6


def test_what_cannot_drive_in_it_gets_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"trained for 'udacity', and the playground's world is CarRacing"):
        page_of(shipped("agents") / "udacity" / "nac_steady.pt")
    with pytest.raises(UserError, match="frames of another size than 96 x 96"):
        page_of(saved("nac-exact-choices", tmp_path)[1])
    with pytest.raises(UserError, match=r"ends in \.html"):
        dispatch(["playground", "-o", str(tmp_path / "p.txt")])
    (tmp_path / "p.html").write_text("mine")
    with pytest.raises(UserError, match="give --overwrite"):
        dispatch(["playground", "-o", str(tmp_path / "p.html")])


def test_a_layer_that_has_no_javascript_gets_one_sentence(model_file: Path) -> None:
    with pytest.raises(UserError, match="the sequence layer 'mha' has no export"):
        page_of(model_file)
