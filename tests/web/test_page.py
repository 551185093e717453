"""The page in a real Chromium: it shows what was sent, survives what happens, and stays small."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from nacdrive.drivers.tick import Tick
from nacdrive.web import LiveServer
from tests.helpers.ticks import CHOICES, CIRCUIT, make_tick, steering_at

PICTURE = "() => document.getElementById('frame').toDataURL()"
PAINTED = """(id) => {
  const c = document.getElementById(id);
  return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some((v) => v > 0);
}"""
BOXES = """() => [...document.querySelectorAll('.card, .meter, .numbers dd')].map((e) => {
  const r = e.getBoundingClientRect();
  return [r.x, r.y, r.width, r.height].map(Math.round).join();
})"""
STICKING_OUT = """() => [...document.querySelectorAll('.card *')]
  .filter((e) => e.getBoundingClientRect().right > e.closest('.card').getBoundingClientRect().right + 1)
  .map((e) => e.id || e.className)"""
COUNT_STEPS = """() => {
  window.seen = 0;
  const every = {childList: true, characterData: true, subtree: true};
  new MutationObserver(() => window.seen++).observe(document.getElementById("step"), every);
}"""


class Drive(threading.Thread):
    """Publishes Ticks at a steady rate until it is told to stop."""

    def __init__(self, server: LiveServer, hz: float, **options: Any) -> None:
        super().__init__(daemon=True)
        self.server, self.hz, self.options = server, hz, options
        self.step = 0
        self.ending = threading.Event()

    def run(self) -> None:
        due = time.perf_counter()
        while not self.ending.is_set():
            self.server.publish(make_tick(self.step, **self.options))
            self.step += 1
            due += 1 / self.hz
            self.ending.wait(max(0.0, due - time.perf_counter()))

    def __enter__(self) -> Drive:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        self.join()


def serve(**options: Any) -> LiveServer:
    return LiveServer(
        **{"port": 0, "title": "nac_steady on a bending road", "circuit": CIRCUIT, "choices": CHOICES, **options}
    )


def text(page: Any, selector: str) -> str:
    return str(page.text_content(selector))


def until(page: Any, condition: str, argument: Any = None, timeout_s: float = 20) -> None:
    """Wait for ``condition``; Playwright's own wait would need what the page's security policy forbids."""
    deadline = time.monotonic() + timeout_s
    while not page.evaluate(condition, argument):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {condition}"
        page.wait_for_timeout(30)


def shows(page: Any, tick: Tick) -> None:
    until(page, f"document.getElementById('step').textContent === '{tick.step}'")


def test_values_on_the_page_are_those_of_the_tick(open_page: Callable[..., Any]) -> None:
    with serve() as server:
        page = open_page(server.url)
        tick = make_tick(34, episode=2, decision_ms=12.34, speed_mps=17.26, episode_return=123.45)
        server.publish(tick)
        shows(page, tick)
        assert text(page, "#episode") == "3"
        assert text(page, "#seed") == "702"
        assert text(page, "#time") == "1.7 s"
        assert text(page, "#speed") == "17.3"
        assert text(page, "#return") == "123.5" or text(page, "#return") == "123.4"
        assert text(page, "#latency output") == "12.3 ms"
        side = "left" if tick.action.steering < 0 else "right"
        assert text(page, "#steering output") == f"{side} {abs(tick.action.steering):.2f}"
        assert text(page, "#verb") == f"Steers {side}"
        assert text(page, "#throttle output") == "0.25"
        assert text(page, ".choice[data-chosen=yes] span") == CHOICES[tick.action.choice or 0]
        assert text(page, "#agree") == "the expert agrees"
        for canvas in ("frame", "wheel", "circuit", "attention", "gates", "strips"):
            until(page, PAINTED, canvas)
        assert page.faults == []


def test_frames_move_and_the_saliency_can_be_laid_over_them(open_page: Callable[..., Any]) -> None:
    with serve() as server:
        page = open_page(server.url)
        pictures = set()
        for step in (0, 10, 20):
            server.publish(make_tick(step))
            shows(page, make_tick(step))
            page.wait_for_timeout(80)
            pictures.add(page.evaluate(PICTURE))
        assert len(pictures) == 3
        page.keyboard.press("s")
        page.wait_for_timeout(80)
        assert page.evaluate(PICTURE) not in pictures
        assert page.faults == []


def test_waiting_says_for_what(open_page: Callable[..., Any]) -> None:
    with serve() as server:
        server.status("Waiting for the simulator on port 4567 ...")
        page = open_page(server.url)
        until(page, "document.getElementById('curtain').textContent.includes('port 4567')")
        assert page.is_visible("#curtain")
        server.status("")
        server.publish(make_tick(0))
        page.wait_for_selector("#curtain", state="hidden")
        assert text(page, "#state") == "Live"


def test_a_policy_without_a_circuit_and_without_an_expert_is_shown_too(open_page: Callable[..., Any]) -> None:
    with serve(circuit=None, choices=()) as server:
        page = open_page(server.url)
        tick = make_tick(3, circuit=False, saliency=False, expert=None, speed_mps=None, budget_ms=None)
        server.publish(tick)
        shows(page, tick)
        assert text(page, "#agree") == "no expert rides along"
        assert text(page, "#speed") == "–"
        assert "no neuronal attention circuit" in text(page, "#circuit-note")
        assert page.faults == []


def test_text_from_outside_stays_text(open_page: Callable[..., Any]) -> None:
    hostile = "<img src=x onerror=window.hit=1><script>window.hit=1</script>"
    with serve(title=hostile, choices=(hostile,) * 5) as server:
        server.status(hostile)
        page = open_page(server.url)
        server.publish(make_tick(0, events=(hostile,)))
        shows(page, make_tick(0))
        page.wait_for_selector("#events li")
        assert text(page, "#events li span:last-child") == hostile
        assert page.evaluate("window.hit === undefined && document.querySelectorAll('main img').length === 0")
        assert page.faults == []


def test_the_page_comes_back_after_the_server_was_restarted(open_page: Callable[..., Any]) -> None:
    first = serve()
    page = open_page(first.start())
    first.publish(make_tick(5))
    shows(page, make_tick(5))
    first.stop()
    until(page, "document.getElementById('state').dataset.state === 'ended'")
    with serve(port=first.port) as second:
        second.publish(make_tick(77, episode=4))
        shows(page, make_tick(77))
        assert text(page, "#episode") == "5"
        until(page, "document.getElementById('state').dataset.state === 'live'")


def test_nothing_moves_on_the_page_while_values_change(open_page: Callable[..., Any]) -> None:
    with serve() as server:
        page = open_page(server.url)
        server.publish(make_tick(0, speed_mps=1.0, episode_return=-5.0, decision_ms=1.0))
        shows(page, make_tick(0))
        page.wait_for_timeout(100)
        before = page.evaluate(BOXES)
        server.publish(make_tick(1234, speed_mps=123.4, episode_return=923.4, decision_ms=345.6, episode=11))
        shows(page, make_tick(1234))
        page.wait_for_timeout(100)
        assert page.evaluate(BOXES) == before


@pytest.mark.parametrize("size", [(390, 844), (768, 1024), (1280, 800), (1920, 1080)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_nothing_sticks_out_sideways(open_page: Callable[..., Any], size: tuple[int, int]) -> None:
    with serve() as server:
        page = open_page(server.url, viewport={"width": size[0], "height": size[1]})
        server.publish(make_tick(30))
        shows(page, make_tick(30))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate(STICKING_OUT) == []


def test_everything_can_be_reached_with_the_keyboard(open_page: Callable[..., Any]) -> None:
    with serve() as server:
        page = open_page(server.url)
        server.publish(make_tick(0))
        shows(page, make_tick(0))
        reached = set()
        for _ in range(20):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.getAttribute('aria-label')"))
        assert {"png", "theme", "saliency", "strips", "events", "head 1", "head 4"} <= reached
        page.keyboard.press("t")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_five_viewers_get_twenty_frames_a_second(open_page: Callable[..., Any]) -> None:
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    if busy > 2:
        pytest.skip(f"this machine has {busy:.1f} times the work it can do: five browser pages would measure that")
    seconds = 4
    with serve() as server:
        pages = [open_page(server.url, viewport={"width": 500, "height": 400}) for _ in range(5)]
        with Drive(server, 20):
            for page in pages:
                until(page, "document.getElementById('step').textContent > 0")
                page.evaluate(COUNT_STEPS)
            before = [page.evaluate("window.seen") for page in pages]
            began = time.perf_counter()
            time.sleep(seconds)
            rates = []
            for page, had in zip(pages, before, strict=True):
                rates.append((page.evaluate("window.seen") - had) / (time.perf_counter() - began))
        assert min(rates) > 17, rates
        assert all(page.faults == [] for page in pages)


def heap(page: Any) -> float:
    """Bytes of JavaScript objects on the page: the least of some readings, for each is taken at another moment."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    readings = []
    for _ in range(5):
        session.send("HeapProfiler.collectGarbage")
        metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
        readings.append(metrics["JSHeapUsedSize"])
        page.wait_for_timeout(150)
    session.detach()
    return float(min(readings))


@pytest.mark.parametrize("seconds", [8, pytest.param(600, marks=pytest.mark.soak)])
def test_memory_stays_flat(open_page: Callable[..., Any], seconds: int) -> None:
    with serve() as server:
        for step in range(2000):  # the history is full from the start
            server.publish(make_tick(step, circuit=False, saliency=False, events=("off road",) * (step % 5 == 0)))
        page = open_page(server.url)
        # CI's version sends three times as fast: what would grow, grows by the same number of Ticks.
        with Drive(server, 60 if seconds < 60 else 20, events=("off road",)) as drive:
            page.evaluate(COUNT_STEPS)
            until(page, "window.seen > 40", timeout_s=60)  # the film strip and all caches are full
            start, first = heap(page), drive.step
            page.wait_for_timeout(seconds * 1000)
            end = heap(page)
        assert drive.step - first > seconds * 15
        # The heap is so small that V8's own moods are worth a megabyte; one frame kept per Tick would be ten.
        assert end < max(1.2 * start, start + 1e6), f"{start / 1e6:.1f} MB became {end / 1e6:.1f} MB in {seconds} s"
        assert page.evaluate("document.querySelectorAll('*').length") < 2000
        assert page.faults == []


def test_steering_of_the_synthetic_road_goes_both_ways() -> None:
    assert min(map(steering_at, range(60))) < -0.9 and max(map(steering_at, range(60))) > 0.9
