"""What is of one drive ends with it: notes, the moment in the address, cards, lines of its track, old moments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nacdrive.drivers.tick import Tick
from nacdrive.web import Card, LiveServer
from tests.helpers.ports import lasting_port
from tests.helpers.ticks import make_tick
from tests.web.test_page import serve, shows, text, until

# Neurons, why and saliency of which no two come with the same decision, over half an hour.
KEPT = """async () => {
  const { MomentHistory } = await import("/js/moment_history.js");
  const history = new MomentHistory();
  history.clear(([seq]) => ({ seq, clock_s: seq / 2, t_s: seq / 2, episode: 0 }));
  const come = (seq, ...names) => history.add(new ArrayBuffer(8), {
    header: { ticks: [{ row: [seq] }] }, parts: [new Map(names.map((name) => [name, { data: name }]))],
  });
  for (let seq = 0; seq < 3600; seq++) come(seq, "frame", ["neurons.q", "why", "saliency"][seq % 3]);
  const reached = new Set();
  const left = [...history.moments];
  for (let one; (one = left.pop());) {
    if (reached.has(one)) continue;
    reached.add(one);
    left.push(...[one.withNeurons, one.withWhy, one.withSaliency].filter(Boolean));
  }
  const oldest = history.moments[0];
  come(3599, "frame");
  const [back, further] = [-1, -2].map((n) => history.near(history.newest.clock_s, n).row.seq);
  const isWhole = [oldest.withNeurons, oldest.withWhy, oldest.withSaliency].every((one) => one.data);
  return [history.moments.length, reached.size, isWhole, back, further];
}"""


class Inside(Card):
    """Hands a test the page that it is a card of, as ``window.page``."""

    name = "inside"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        (folder / "card.js").write_text("export function card(page) { window.page = page; return {}; }\n")

    @property
    def files(self) -> Path:
        return self._folder


def placed(step: int, **more: Any) -> Tick:
    return make_tick(step, circuit=False, saliency=False, x_m=float(step), y_m=2.0, **more)


def show(server: LiveServer, page: Any, tick: Tick) -> None:
    server.publish(tick)
    shows(page, tick)


def test_of_a_long_drive_no_more_is_kept_than_can_be_looked_at_and_no_moment_twice(
    server: LiveServer, open_page: Callable[..., Any]
) -> None:
    kept, reached, is_whole, back, further = open_page(server.url).evaluate(KEPT)
    assert kept == 601 and reached <= kept + 3
    assert is_whole, "the oldest still has its neurons, why and saliency, which came before it"
    assert (back, further) == (3598, 3597), "a Tick that came twice is one step"


def test_notes_and_the_held_moment_are_of_one_drive_and_a_broken_line_ends_none(open_page: Callable[..., Any]) -> None:
    first = serve(port=lasting_port())
    page = open_page(first.start())
    for step in range(9):
        show(first, page, placed(step))
    for key in ("h", ",", ",", "h"):
        page.keyboard.press(key)
    page.click("#log-tabs button:nth-child(3)")
    page.fill(".note-field input", "at the end")
    page.keyboard.press("Enter")
    assert text(page, "#jumps").startswith("0.4 s"), "of the moment that is shown, though nothing new comes"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("h")
    until(page, "location.hash.startsWith('#ep=1')")
    first.stop()
    with serve(port=first.port) as again:
        again.publish(placed(8))
        until(page, "location.hash === '' && document.getElementById('state').dataset.state === 'live'")
        assert text(page, "#jumps").endswith("at the end")
    with serve(port=first.port) as second:
        show(second, page, placed(0))
        until(page, "document.getElementById('jumps').textContent === 'No notes yet.'")
    assert [fault for fault in page.faults if "net::ERR_CONNECTION_" not in fault] == []


def test_a_card_that_is_on_its_way_when_the_next_drive_begins_comes_once(browser: Any) -> None:
    first = serve(port=lasting_port(), cards=[Card("tracks")])
    page = browser.new_page()
    held: list[Any] = []
    page.route("**/cards/tracks/card.js", lambda route: held.append(route))
    page.goto(first.start())
    first.publish(placed(0))
    shows(page, placed(0))
    while not held:
        page.wait_for_timeout(20)
    first.stop()
    with serve(port=first.port, cards=[Card("tracks")]) as second:
        show(second, page, placed(3))
        page.wait_for_timeout(200)
        for route in held:
            route.continue_()
        until(page, "document.getElementById('tracks') !== null")
        page.wait_for_timeout(100)
        assert page.locator("#tracks").count() == 1
    page.close()


@pytest.mark.nightly
def test_the_experts_line_is_of_its_track_and_so_is_the_button(open_page: Callable[..., Any], tmp_path: Path) -> None:
    with serve(cards=[Inside(tmp_path)]) as server:
        page = open_page(server.url)
        show(server, page, placed(0))
        until(page, "Boolean(window.page)")
        page.evaluate("page.dashboard.map.onExpert = () => {}")
        page.evaluate("page.dashboard.map.setExpert({ seed: 700, points: [{ x_m: 0, y_m: 0 }] })")
        expert = page.locator("#map-tools button", has_text="expert")
        assert expert.get_attribute("aria-pressed") == "true"
        show(server, page, placed(0, episode=1))
        until(page, "document.querySelectorAll('#map-tools button')[1].getAttribute('aria-pressed') === 'false'")
