"""The arena in a real Chromium: compared at the same place, moved by keys and mouse, read-only where it must be."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from nacdrive.drivers.human import HumanControl
from nacdrive.envs.base import Info
from nacdrive.envs.camera_noise import CameraNoise
from tests.helpers.arenas import ArenaPage, arena_tick
from tests.helpers.ports import lasting_port
from tests.helpers.ticks import WHY
from tests.web.test_page import PAINTED, STICKING_OUT, text, until

LINES = "[...document.querySelectorAll('.numbers-line')].map((line) => line.textContent)"
RANKED = [
    {"rank": 1, "name": "exact", "ending": "lap finished", "finished": True, "time_s": 17.5, "progress": 1.0,
     "episode_return": 912.5, "off_road": 0.006, "interventions": None, "late_decisions": 0},
    {"rank": 2, "name": "steady", "ending": "left the field", "finished": False, "time_s": 9.0, "progress": 0.4,
     "episode_return": 300.0, "off_road": 0.1, "interventions": None, "late_decisions": 3},
]  # fmt: skip
TOTALS = [
    {"name": "steady", "tracks": 3, "wins": 1, "finished": 2, "return": {"mean": 700.0}, "off_road": 0.1,
     "difference": None},
    {"name": "exact", "tracks": 3, "wins": 2, "finished": 3, "return": {"mean": 910.0}, "off_road": 0.0,
     "difference": {"value": 210.0, "interval95": [-40.0, 460.0]}},
]  # fmt: skip


def arena(**more: Any) -> ArenaPage:
    return ArenaPage(title="steady, exact on CarRacing", **more)


def drive(server: ArenaPage, steps: int, first: int = 0, **more: Any) -> None:
    if not first:
        server.arena.begin(0, 701, "")
    for step in range(first, steps):
        for index in range(2):
            server.arena.tick(index, arena_tick(step, index, **more))


@pytest.mark.nightly
def test_all_are_shown_at_the_place_where_the_last_one_is_or_now(open_page: Callable[..., Any]) -> None:
    with arena() as server:
        page = open_page(server.url)
        drive(server, 41)
        # The slower one has come 60 m in 2 s, the quicker one was there after 1.5 s.
        until(page, f"{LINES}.join('|').startsWith('60 m, 1.5 s')")
        assert page.evaluate(LINES)[1].startswith("60 m, 2.0 s")
        assert text(page, "#lanes-note") == "all at 60 m" and text(page, "#seed") == "701"
        until(page, "document.querySelectorAll('#standings tbody tr').length === 2")
        until(page, "document.querySelector('#standings tbody').textContent.includes('+0.50 s')")
        assert "leads" in text(page, "#standings tbody tr:first-child")
        assert [text(page, f".lane:nth-child({k}) .place") for k in (1, 2)] == ["1 of 2", "2 of 2"]
        for canvas in ("strips", "map"):
            until(page, PAINTED, canvas)
        page.keyboard.press("v")
        until(page, f"{LINES}[0]?.startsWith('80 m, 2.0 s')")
        assert page.get_attribute("#views button:last-child", "aria-pressed") == "true"
        late = open_page(server.url)  # which was sent the newest pictures alone, and draws no other in their place
        until(late, f"{LINES}[0]?.startsWith('60 m')")
        blanks = "[...document.querySelectorAll('.lane .frame p')].map((said) => said.textContent.slice(0, 10))"
        until(late, f"{blanks}.join() === 'no picture,'")
        assert not page.is_visible("#controls") and page.is_disabled("#sliders input >> nth=0")
        assert "--allow-control" in text(page, "#camera-note")
        assert page.faults == []


def test_the_keyboard_alone_picks_a_place_and_lets_it_go(open_page: Callable[..., Any]) -> None:
    with arena() as server:
        page = open_page(server.url)
        # A page is sent only the newest pictures and reasons: it must have had the leader's at 60 m before it goes on.
        drive(server, 31, why=WHY, speed_mps=None)
        until(page, f"{LINES}[1]?.startsWith('45 m')")
        drive(server, 41, 31, why=WHY, speed_mps=None)
        until(page, f"{LINES}[0]?.startsWith('60 m')")
        until(page, f"document.querySelector('.lane .reason').textContent === {json.dumps(WHY['sentence'])}")
        assert page.locator(".lane:first-child .parts li").all_text_contents() == [
            f"{bar['name']}{bar['text']}" for bar in WHY["bars"]
        ]
        assert page.locator(".lane:first-child .parts li[data-decides=yes]").count() == 2
        page.focus("#strips")
        page.keyboard.press("Home")
        until(page, f"{LINES}.join('|').startsWith('0 m, 0.0 s')")
        for _ in range(2):
            page.keyboard.press("PageUp")
            # As quickly as a person presses; a starved browser merges presses of the same instant.
            page.wait_for_timeout(150)
        until(page, f"{LINES}[1]?.startsWith('8 m') || {LINES}[1]?.startsWith('9 m')")
        said = str(page.get_attribute("#strips", "aria-valuetext"))
        assert "exact" in said and "NaN" not in said
        server.arena.tick(0, arena_tick(41))
        # What a person has picked stays while they drive on.
        until(page, "document.getElementById('lanes-note').textContent.includes('kept')")
        page.keyboard.press("Escape")
        until(page, "document.getElementById('lanes-note').textContent === 'all at 60 m'")


@pytest.mark.nightly
@pytest.mark.parametrize("held_ms", [0, 150])
def test_sliders_and_buttons_work_with_presses_as_long_as_people_make_them(
    open_page: Callable[..., Any], held_ms: int
) -> None:
    wished: list[CameraNoise] = []
    control = HumanControl()
    with arena(control=control, set_camera=wished.append) as server:
        page = open_page(server.url, viewport={"width": 390, "height": 844})
        drive(server, 5)
        until(page, "document.querySelector('#controls button:nth-child(2)')?.disabled === false")
        assert not page.is_visible("#controls .take"), "nobody contests who could be relieved"
        page.focus("#sliders input >> nth=3")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(250)
        assert wished[-1] == CameraNoise(delay_steps=2)
        server.arena.camera(wished[-1], 0.25)
        until(page, "document.getElementById('camera-note').textContent.startsWith('worse since 0.3 s')")
        for name, works in (
            ("True camera", lambda: wished[-1] == CameraNoise()),
            ("Pause", lambda: control.state["paused"]),
        ):
            page.locator(f"button:has-text('{name}')").scroll_into_view_if_needed()
            box = page.locator(f"button:has-text('{name}')").bounding_box()
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            page.mouse.down()
            for step in range(5, 8):  # the cars drive on meanwhile
                server.arena.tick(0, arena_tick(step))
                page.wait_for_timeout(held_ms // 3)
            page.mouse.up()
            until(page, "true")
            page.wait_for_timeout(150)
            assert works(), name
        until(page, "document.getElementById('state').textContent === 'Paused'")
        assert page.faults == []


@pytest.mark.parametrize(
    "size", [pytest.param((390, 844), marks=pytest.mark.nightly), (1280, 800)], ids=lambda s: f"{s[0]}x{s[1]}"
)
def test_the_end_says_who_was_best_and_nothing_sticks_out(open_page: Callable[..., Any], size: tuple[int, int]) -> None:
    server = arena(control=HumanControl())
    page = open_page(server.start(), viewport={"width": size[0], "height": size[1]})
    drive(server, 20)
    server.arena.tick(0, arena_tick(20, done=True, events=("left the field",)))
    until(page, f"{LINES}[0]?.startsWith('30 m')")
    assert "left the field" not in page.evaluate(LINES)[0], "it left beyond the place where both have been"
    page.keyboard.press("v")
    until(page, f"{LINES}[0]?.includes('left the field')")
    server.arena.show_ranking(701, RANKED, TOTALS, "Track 702 begins in 6 s.")
    page.wait_for_selector("#ranking")
    for part in ("exact", "17.50 s", "912.5", "left the field", "+210.0 (−40.0 to +460.0): none shown", "Track 702"):
        assert part in text(page, "#ranking-body")
    until(page, "document.getElementById('state').textContent === 'Track over'")
    page.click("#ranking-body button")
    link = page.evaluate("location.hash")
    assert link == "#ep=1&t=17.50&seed=701&result=exact,17.50,100;steady,9.00,40"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # Wide tables scroll within their card.
    assert page.evaluate(STICKING_OUT.replace(".card *", ".card :not(.scroll *)")) == []
    server.arena.begin(1, 702, "")
    page.wait_for_selector("#ranking", state="hidden")
    server.arena.show_ranking(702, RANKED, TOTALS, "")
    page.wait_for_selector("#controls", state="hidden")  # nothing is left to pause
    server.stop()
    until(page, "document.getElementById('state').textContent === 'The drive has ended'")
    page.wait_for_timeout(900)
    assert text(page, "#state") == "The drive has ended" and page.is_visible("#ranking")
    # The next arena on this address is shown by itself.
    with ArenaPage(port=server.port, title="again", names=("one", "two", "three")) as second:
        second.arena.begin(0, 5, "")
        second.arena.tick(2, arena_tick(0))
        until(
            page, "document.querySelectorAll('.lane').length === 3 && !document.querySelector('#ranking:not([hidden])')"
        )
        assert text(page, "#title") == "again"
        page.goto("about:blank")
        page.goto(second.url + link.replace("exact", "%3Cimg%3E"))
        until(page, "document.getElementById('ranking-note')?.textContent === 'of a link: track 701'")
        assert text(page, "#ranking-body tbody tr") == "<img>17.50 s100 %"


def test_a_person_who_contests_takes_the_wheel_and_all_wait_for_them(open_page: Callable[..., Any]) -> None:
    control = HumanControl(needs_person=True, silence_s=60)
    with arena(control=control, people=("exact",)) as server:
        page = open_page(server.url)
        server.arena.begin(0, 701, "")
        until(page, "document.getElementById('state').textContent === 'Nobody drives'")
        until(page, "document.querySelector('#controls .take').disabled === false")
        page.keyboard.down("ArrowLeft")
        page.keyboard.press("w")
        until(page, "document.querySelector('#controls .take').textContent.startsWith('Hand back')")
        page.keyboard.down("ArrowLeft")  # held all the while: this is its repetition
        until(page, "document.querySelector('.pad [aria-pressed=true]') !== null")
        page.wait_for_timeout(150)
        assert control.poll(wait=False).keys == {"left"}
        page.keyboard.up("ArrowLeft")
        server.arena.tick(1, arena_tick(0, 1, human=True))
        until(page, "document.getElementById('state').textContent === 'You drive'")
        assert page.get_attribute("#views button:last-child", "aria-pressed") == "true", "the present, for who drives"
        assert page.faults == []


@pytest.mark.nightly
def test_the_next_arena_has_a_wheel_or_none_by_itself(open_page: Callable[..., Any]) -> None:
    take = "document.querySelector('#controls .take')"
    first = arena(port=lasting_port(), control=HumanControl())
    page = open_page(first.start())
    until(page, "document.querySelector('#controls button:nth-child(2)').disabled === false")
    assert page.evaluate(f"{take}.hidden")
    first.stop()
    control = HumanControl(needs_person=True, silence_s=60)
    with arena(port=first.port, control=control, people=("exact",)):
        until(page, f"!{take}.hidden")
        while control.state["person"] is None:
            # The line to the first one may still be open.
            until(page, f"{take}.disabled === false")
            page.keyboard.press("w")
            page.wait_for_timeout(100)
    with arena(port=first.port, control=HumanControl()):
        until(page, f"{take}.hidden")


@pytest.mark.nightly
def test_where_no_place_is_known_all_are_compared_by_time_and_the_page_says_so(open_page: Callable[..., Any]) -> None:
    nowhere = {"info": Info(t_s=0.0), "x_m": None, "y_m": None, "heading_rad": None}
    with arena() as server:
        page = open_page(server.url)
        drive(server, 21, **nowhere)
        until(page, "document.getElementById('charts-b')?.textContent === 'Over the time'")
        assert "does not say where a car is" in text(page, "#charts-note")
        until(page, f"{LINES}[0]?.startsWith('1.0 s')")
        assert not page.is_visible(".card.map")
        assert page.faults == []


def test_names_from_outside_stay_text_and_every_word_is_explained(open_page: Callable[..., Any]) -> None:
    hostile = "<img src=x onerror=window.hit=1>"
    with ArenaPage(title=hostile, names=(hostile, "b")) as server:
        page = open_page(server.url)
        drive(server, 2)
        until(page, "document.querySelectorAll('#standings tbody tr').length === 2")
        assert page.evaluate("window.hit === undefined && document.querySelectorAll('main img').length === 0")
        page.keyboard.press("?")
        words = text(page, "#words")
        for head in page.evaluate("[...document.querySelectorAll('th')].map((cell) => cell.textContent)"):
            assert head in words, head
        for word in ("sure", "delta", "brightness", "noise", "blackout", "delay", "Same place", "Now"):
            assert word.lower() in words.lower()
        assert page.faults == []
