"""Histograms and calibration over a run: counts are those of the rows, and the card shows them live and in a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.web.episode_cache import EpisodeCache, EpisodeLabel, ReplaySource
from nacdrive.web.replay import ReplayServer
from tests.helpers.ticks import CHOICES, make_tick
from tests.web.test_page import PAINTED, STICKING_OUT, serve, text, until

COUNTS = """async ([rows, options]) => {
  const { RunStatistics } = await import('/js/run_statistics.js');
  const counts = new RunStatistics();
  counts.clear(options);
  const ring = {at: (i, name) => rows[i][name] ?? NaN};
  rows.forEach((row, i) => counts.observe(ring, i, row.driven));
  const {decisions, compared, asked, agreed, own, other} = counts;
  return {decisions, compared, asked, agreed, own: [...own.choices], other: [...other.choices],
    steering: [...own.steering], sure: counts.sure.map((bin) => [bin.count, bin.hits]), error: counts.calibrationError};
}"""


def row(choice: int, expert: int | None, sure: float | None = None, **more: Any) -> dict[str, Any]:
    steering = {1: 1.0, 2: -1.0}.get(choice, 0.0)
    fields = {"steering": steering, "choice": choice, "sure": sure, **more}
    return fields if expert is None else {**fields, "expert_steering": 0.0, "expert_choice": expert}


def counted(page: Any, rows: list[dict[str, Any]], **options: Any) -> Any:
    return page.evaluate(COUNTS, [rows, options])


@pytest.fixture(scope="module")
def counting(browser: Any) -> Iterator[Any]:
    """A page whose modules are called; what it shows does not matter."""
    with serve() as server:
        context = browser.new_context()
        page = context.new_page()
        page.goto(server.url)
        yield page
        context.close()


def test_counts_are_those_of_the_rows_and_the_calibration_error_is_the_formula(counting: Any) -> None:
    draw = np.random.default_rng(3)
    choices, experts, sure = draw.integers(0, 5, 200), draw.integers(0, 5, 200), draw.uniform(0.2, 1, 200)
    result = counted(counting, [row(int(c), int(e), float(s)) for c, e, s in zip(choices, experts, sure, strict=True)])
    assert (result["decisions"], result["compared"], result["asked"]) == (200, 200, 200)
    assert dict(result["own"]) == {c: int((choices == c).sum()) for c in set(choices.tolist())}
    assert dict(result["other"]) == {e: int((experts == e).sum()) for e in set(experts.tolist())}
    bins = np.minimum(9, (sure * 10).astype(int))
    same = choices == experts
    assert result["sure"] == [[int((bins == b).sum()), int(same[bins == b].sum())] for b in range(10)]
    error = sum(abs(same[bins == b].mean() - sure[bins == b].mean()) * (bins == b).mean() for b in set(bins))
    assert abs(result["error"] - error) < 1e-9
    assert [result["steering"][i] for i in (0, 10, 20)] == [
        int((choices == 2).sum()),
        int(((choices != 1) & (choices != 2)).sum()),
        int((choices == 1).sum()),
    ]


def test_held_frames_people_and_an_expert_that_drives_itself_are_no_evidence(counting: Any) -> None:
    rows = [
        row(3, 3, 0.9, held=1),
        {**row(1, 3, 0.9, person=1), "policy_steering": -1.0, "policy_choice": 2},
        row(1, 3, 0.9, person=1),
        row(3, None, 0.7, driven={"steering": 0.0, "choice": 3}),
        row(2, 3, 0.7, driven={"steering": -1.0, "choice": 2}),
    ]
    result = counted(counting, rows)
    assert dict(result["own"]) == {2: 2, 3: 1}, "of the policy beside a person; nothing where it had failed"
    assert (result["compared"], result["asked"], result["agreed"]) == (3, 3, 1), "the driver stands in for no expert"
    recorded = counted(counting, [row(3, 3, 0.9), row(2, 3, None)], scores=False)
    assert recorded["agreed"] == 1 and sum(count for count, _ in recorded["sure"]) == 0, "the scores are the expert's"
    alone = counted(counting, rows, itself=True)
    assert (alone["decisions"], alone["compared"]) == (3, 0)


def test_the_card_shows_a_live_run_and_goes_on_with_it(open_page: Callable[..., Any]) -> None:
    with serve() as server:
        page = open_page(server.url)
        for step in range(40):
            expert = make_tick(step).action if step % 4 else Action(0.0, 0.0, 0.8, 4)
            server.publish(make_tick(step, circuit=False, saliency=False, expert=expert))
        until(page, "document.getElementById('step').textContent === '39'")
        page.keyboard.press("a")
        until(page, "document.getElementById('statistics-note').textContent === '40 decisions'")
        assert "the same action in 75 %" in text(page, "#shares-text")
        assert "Mean distance" in text(page, "#calibration-text")
        for canvas in ("shares", "calibration"):
            until(page, PAINTED, canvas)
        server.publish(make_tick(40, circuit=False, saliency=False))
        until(page, "document.getElementById('statistics-note').textContent === '41 decisions'")
        page.keyboard.press("Escape")
        page.wait_for_selector("#statistics", state="hidden")
        assert [fault for fault in page.faults if "getImageData" not in fault] == []


def test_a_replay_counts_the_episode_and_then_all_of_the_run(open_page: Callable[..., Any]) -> None:
    def load(number: int) -> list[Any]:
        ticks = [make_tick(step, episode=number, circuit=False, saliency=False, expert=None) for step in range(30)]
        return [replace(tick, action=replace(tick.action, choice=3, steering=0.0)) for tick in ticks]

    def driven(number: int) -> list[Action]:
        return [Action(0.0, 1.0, 0.0, 3 if number == 0 else 4) for _ in range(30)]

    labels = [EpisodeLabel(700 + i, 30, 1.0, "keyboard") for i in range(2)]
    run = ReplaySource("mine", labels, load, CHOICES, policy="nac_steady", expert="keyboard", driven=driven)
    with ReplayServer(EpisodeCache([run]), port=0) as server:
        page = open_page(server.url, viewport={"width": 390, "height": 844})
        until(page, "Number(document.getElementById('step').textContent) > 0")
        page.click("#over-run")
        until(page, "document.getElementById('statistics-note').textContent === '30 decisions'")
        assert "beside keyboard in 30 of them; the same action in 100 %" in text(page, "#shares-text")
        page.get_by_role("button", name="All episodes of this run").click()
        until(page, "document.getElementById('statistics-note').textContent === '60 decisions'")
        until(page, "document.getElementById('shares-text').textContent.includes('the same action in 50 %')")
        assert page.evaluate(STICKING_OUT) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.faults == []
