"""axe-core finds nothing on any page in any state; the keyboard keeps its place, and no more is said than asked."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from nacdrive.common.paths import shipped
from nacdrive.datasets.images import encode_jpeg
from nacdrive.drivers.human import HumanControl
from nacdrive.extras.arena.card import ArenaCard
from nacdrive.extras.export.html import export_html, lap_record
from nacdrive.extras.export.html import page as shared
from nacdrive.extras.export.network_description import describe
from nacdrive.rollout.drive import Drive
from nacdrive.rollout.evaluate import evaluate
from nacdrive.web import LiveServer
from nacdrive.web.episode_cache import EpisodeCache, EpisodeLabel, ReplaySource
from nacdrive.web.replay import ReplayServer
from tests.helpers.small_policies import episode_of, small_policy, smooth_frames
from tests.helpers.ticks import CHOICES, CIRCUIT, make_tick
from tests.web.test_page import shows, text, until

PHONE = {"width": 390, "height": 844}
# Part of nacdrive[dev]: where it is missing this fails, and is not skipped unseen.
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
SMALL = """() => [...document.querySelectorAll('button, select, input, [role=button]')].filter((e) => {
  const box = e.closest('label')?.getBoundingClientRect() ?? e.getBoundingClientRect();
  return box.width && (box.height < 23.5 || box.width < 23.5);
}).map((e) => e.id || e.textContent || e.className)"""


def violations(page: Any) -> list[str]:
    """What axe finds, with the elements."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(AXE)
    result = page.evaluate("axe.run()")
    return [f"{one['id']}: {[node['target'] for node in one['nodes']][:3]}" for one in result["violations"]]


def check(page: Any, state: str) -> None:
    assert violations(page) == [], state
    assert page.evaluate(SMALL) == [], state


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_the_page_of_a_drive(open_page: Callable[..., Any], scheme: str) -> None:
    options = {"title": "nac_steady on a road", "circuit": CIRCUIT, "choices": CHOICES, "control": HumanControl()}
    with LiveServer(port=0, **options) as server:  # type: ignore[arg-type]
        page = open_page(server.url, bypass_csp=True, color_scheme=scheme)
        check(page, "before the first frame")
        for step in range(8):
            server.publish(make_tick(step, x_m=float(step), y_m=0.0, heading_rad=0.0))
        shows(page, make_tick(7))
        check(page, "live")
        page.click("#show-neurons")
        check(page, "neurons")
        page.click("#neuron-tour")
        check(page, "step by step")
        page.keyboard.press("Escape")
        for tab in (2, 3):
            page.click(f"#log-tabs button:nth-child({tab})")
            check(page, f"tab {tab}")
        page.keyboard.press("h")
        check(page, "held")
        for key, place in (("?", "#words"), ("a", "#statistics")):
            page.keyboard.press(key)
            page.wait_for_selector(place)
            check(page, place)
            page.keyboard.press("Escape")
        page.click("#large")
        check(page, "large")
        page.keyboard.press("Escape")
        until(page, "document.getElementById('dashboard').dataset.present === 'no'")
        assert text(page, "#large") == "Large"


def test_axe_finds_nothing_on_any_page(open_page: Callable[..., Any], tmp_path: Path) -> None:
    """A state of each page, in one tab; the nightly tests go through all states."""
    options: dict[str, Any] = {"title": "nac_steady on a road", "choices": CHOICES}
    with LiveServer(port=0, circuit=CIRCUIT, control=HumanControl(), **options) as server:
        page = open_page(server.url, bypass_csp=True, color_scheme="dark", viewport=PHONE)
        server.publish(make_tick(7, x_m=7.0, y_m=0.0, heading_rad=0.0))
        shows(page, make_tick(7))
        page.click("#show-neurons")
        page.keyboard.press("?")
        page.wait_for_selector("#words")
        check(page, "neurons and words, on a phone")
        page.keyboard.press("Escape")
        page.click("#large")
        check(page, "large")
    ticks = [make_tick(step) for step in range(3)]
    run = ReplaySource("steady", [EpisodeLabel(7, 3, 60.0, "ppo")], lambda number: ticks, CHOICES, CIRCUIT)
    with ReplayServer(EpisodeCache([run]), port=0) as server:
        page.goto(server.url)
        until(page, "document.querySelector('#player select option') !== null")
        check(page, "a replay")
    card = ArenaCard()
    with LiveServer(port=0, names=["a", "b"], people=["b"], control=HumanControl(), cards=[card]) as server:
        page.goto(server.url)
        card.begin(0, 700, "")
        card.tick(0, make_tick(0, x_m=0.0, y_m=0.0, info={"t_s": 0.0, "station_m": 0.0}))
        until(page, "document.querySelectorAll('#standings tbody tr').length === 2")
        check(page, "an arena")
    policy = small_policy("nac-key-driving")
    frames, t_s = smooth_frames(policy, 3)
    lap = episode_of(policy, [encode_jpeg(frame) for frame in frames], t_s)
    (tmp_path / "lap.html").write_text(shared(describe(policy), lap_record(describe(policy), lap, 60.0)))
    page.goto((tmp_path / "lap.html").as_uri())
    until(page, "document.querySelector('#why .reason').textContent.startsWith('It ')")
    check(page, "a shared page")
    drive = Drive("carracing", driver="geometric", options={"renderer": "fast", "max_frames": 20})
    evaluate(drive, [700], tmp_path / "eval", workers=0)
    page.goto((tmp_path / "eval" / "report.html").as_uri())
    check(page, "a report")


@pytest.mark.nightly
def test_axe_finds_nothing_in_an_arena(open_page: Callable[..., Any]) -> None:
    card = ArenaCard()
    options = {"title": "two", "names": ["a", "b"], "people": ["b"], "control": HumanControl(), "cards": [card]}
    with LiveServer(port=0, **options) as server:  # type: ignore[arg-type]
        page = open_page(server.url, bypass_csp=True)
        card.begin(0, 700, "")
        until(page, "document.querySelectorAll('.lane').length === 2")
        check(page, "waiting")
        for lane in (0, 1):
            for step in range(4):
                server.publish(make_tick(step, x_m=float(step), y_m=0.0, info={"station_m": float(step)}), lane)
        until(page, "document.querySelectorAll('#standings tbody tr').length === 2")
        check(page, "racing")


@pytest.mark.nightly
def test_axe_finds_nothing_on_a_shared_page(open_page: Callable[..., Any], tmp_path: Path) -> None:
    model, lap = shipped("agents") / "carracing" / "nac_steady.pt", shipped("recordings") / "carracing-sample"
    page = open_page(export_html(model, lap, tmp_path / "lap.html", seconds=1.0).as_uri(), bypass_csp=True)
    until(page, "document.querySelector('#why .reason').textContent.startsWith('It ')")
    check(page, "standing")
    page.click("#heads button:nth-child(3)")
    until(page, "document.querySelector('#why .reason').textContent.startsWith('Changed: It ')")
    check(page, "edited")


@pytest.mark.nightly
def test_the_keyboard_keeps_its_place_in_the_list_of_moments(open_page: Callable[..., Any]) -> None:
    with LiveServer(port=0, title="road", choices=CHOICES) as server:
        page = open_page(server.url)
        server.publish(make_tick(0, circuit=False, saliency=False))
        page.click("#log-tabs button:nth-child(2)")
        late: dict[str, Any] = {"circuit": False, "saliency": False, "decision_ms": 90.0}
        for step in (1, 2):
            server.publish(make_tick(step, **(late if step == 1 else {**late, "decision_ms": 1.0})))
        until(page, "document.querySelector('#jumps [role=button]') !== null")
        page.focus("#jumps [role=button]")
        for step in range(3, 60):
            server.publish(make_tick(step, **{**late, "decision_ms": 90.0 if step % 20 == 0 else 1.0}))
            page.wait_for_timeout(10)
        until(page, "document.querySelectorAll('#jumps [role=button]').length > 1")
        assert page.evaluate("document.activeElement.getAttribute('role')") == "button"


def test_what_it_does_is_said_where_somebody_wants_to_hear_it(open_page: Callable[..., Any]) -> None:
    with LiveServer(port=0, title="road", choices=CHOICES) as server:
        page = open_page(server.url)
        server.publish(make_tick(5, circuit=False, saliency=False))
        shows(page, make_tick(5))
        assert text(page, "#spoken") == ""
        page.click("#speak")
        server.publish(make_tick(6, circuit=False, saliency=False))
        until(page, "document.getElementById('spoken').textContent.startsWith('Steers ')")
