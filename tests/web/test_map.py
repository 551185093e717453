"""The map of a recorded drive: the line from the recording's own places, lap and sector times, and what colours it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nacdrive.datasets.episode import Episode
from nacdrive.datasets.episode_file import from_parquet, to_parquet
from nacdrive.drivers.tick import Tick
from nacdrive.viz.recorded import recorded_ticks
from nacdrive.web.episode_cache import EpisodeCache, EpisodeLabel, ReplaySource
from nacdrive.web.replay import ReplayServer
from tests.helpers.ticks import CHOICES
from tests.web.test_page import PAINTED, text, until
from tests.web.test_replay import make_episode

LINE_COLOURS = """() => {
  const c = document.getElementById('map');
  const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  const colours = new Set();
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) colours.add(data.slice(i, i + 3).join());
  return [...colours];
}"""


def placed(steps: int = 120, *, expert_drives: bool = True) -> Episode:
    """A round drive of two laps that knows where it was, through the file and back."""
    share = np.linspace(0, 2, steps)
    episode = replace(
        make_episode(steps),
        driver="ppo" if expert_drives else "nac_steady",
        x_m=100 * np.cos(2 * np.pi * share),
        y_m=60 * np.sin(2 * np.pi * share),
        heading_rad=2 * np.pi * share + np.pi / 2,
        progress=share,
        meta={"ended": "lap finished"},
    )
    if expert_drives:
        episode = replace(episode, expert_choice=episode.choice)
    return from_parquet(to_parquet(episode))


def replayed(episode: Episode, *, policy: str | None = None, expert_return: float | None = None) -> ReplayServer:
    label = EpisodeLabel(episode.seed, len(episode), episode.episode_return, episode.driver, expert_return)

    def ticks(_: int) -> Sequence[Tick]:
        return recorded_ticks(episode)

    return ReplayServer(
        EpisodeCache([ReplaySource("sample", [label], ticks, CHOICES, expert="ppo", policy=policy)]), port=0
    )


def stopped_at(page: Any, key: str) -> None:
    until(page, "Number(document.getElementById('step').textContent) > 0")
    page.keyboard.press("Space")
    page.keyboard.press(key)


# Words of 40 x 10 beside one point on a canvas of 200 x 100, over a line that runs to the right of it.
PLACED = """async () => {
  const { roomFor } = await import("/js/track_map.js");
  const line = Array.from({ length: 50 }, (_, i) => [100 + 2 * i, 50]);
  const boxes = [];
  do boxes.push(roomFor([100, 50], [40, 10], 6, [200, 100], line, boxes)); while (boxes.at(-1));
  return boxes;
}"""


LAP = [0, 0.2, 0.34, 0.5, 0.67, 0.9, 0.995]
PASSED = """async ([progress, until]) => {
  const { lapSeconds, passedSectors } = await import('/js/lap_times.js');
  const columns = {t_s: (i) => i / 2, step: (i) => i, progress: (i) => progress[i] ?? NaN};
  const ring = {at: (i, name) => columns[name](i)};
  const first = Math.max(0, progress.findIndex((share) => share !== 'gone'));
  const passed = passedSectors(ring, {first, end: progress.length}, until);
  return [passed.map((p) => [p.lap, p.sector, p.seconds]), lapSeconds(passed)];
}"""
ALL = [[0, 0, 1], [0, 1, 1], [0, 2, 1]]
SECTORS = (
    ("a lap", LAP, 99, ALL, [3]),
    ("up to a moment", LAP, 1.5, ALL[:1], []),
    ("unknown", [None, None], 99, [], []),
    ("a second lap", [0.0, 0.4, 0.7, 1.0, 1.4], 99, [[0, 0, 0.5], [0, 1, 0.5], [0, 2, 0.5], [1, 0, 0.5]], [1.5]),
    ("a gap", [0, 0.2, 0.34, None, 0.67, 0.9, 1.0, 1.2, 1.4], 99, [[0, 0, 1], [1, 0, 1]], []),
    ("thirds at once", [0, 0.7, 0.9, 1.0], 99, [[0, 0, 0.5], [0, 2, 1]], []),
    ("from the middle of a lap on", ["gone", 1.5, 1.7, 1.9, 2.0, 2.2, 2.4], 99, [[1, 2, 1], [2, 0, 1]], []),
    ("from the first third on", ["gone", 0.1, 0.4, 0.5, 0.7], 99, [[0, 1, 1]], []),
)
"""What is looked at, places of a lap ("gone": before the rows begin), up to when, which sectors are timed, and laps."""


def overlap(one: list[float], other: list[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_a_recording_with_places_shows_its_line_without_a_model_coloured_by_speed(
    open_page: Callable[..., Any],
) -> None:
    with replayed(placed()) as server:
        page = open_page(server.url)
        stopped_at(page, "End")
        until(page, PAINTED, "map")
        assert page.is_visible("#map")
        assert page.get_attribute("#map-tools button", "aria-pressed") == "true"
        until(page, "document.getElementById('map-note').textContent.includes('lap\u00a02')")
        note = "200 % in 9.5 s · lap 2, thirds 1.6 · 1.6 · 1.6 s · laps 4.7 · 4.8 s"
        assert " ".join(text(page, "#map-note").strip("\u200b").split()) == note
        boxes = page.evaluate(PLACED)
        assert boxes.pop() is None and len(boxes) > 3, "as many words as have room"
        assert not any(overlap(one, other) for one, other in itertools.combinations(boxes, 2))
        assert len(page.evaluate(LINE_COLOURS)) > 12, "many speeds are many colours"
        for case, progress, until_s, *passed in SECTORS:
            assert page.evaluate(PASSED, [progress, until_s]) == passed, case
        assert [fault for fault in page.faults if "getImageData" not in fault] == []


@pytest.mark.nightly
def test_where_the_expert_differs_from_who_drove_the_line_says_so_until_a_person_asks_for_speed(
    open_page: Callable[..., Any],
) -> None:
    with replayed(placed(expert_drives=False)) as server:
        page = open_page(server.url)
        stopped_at(page, "End")
        until(page, PAINTED, "map")
        assert page.get_attribute("#map-tools button", "aria-pressed") == "false"
        differs, agrees = page.evaluate(
            "['--expert', '--policy'].map((n) => getComputedStyle(document.documentElement).getPropertyValue(n).trim())"
        )
        there = page.evaluate(LINE_COLOURS)
        assert as_rgb(differs) in there and as_rgb(agrees) in there
        page.click("#map-tools button")
        until(page, "document.querySelector('#map-tools button').ariaPressed === 'true'")
        page.wait_for_timeout(150)
        assert as_rgb(agrees) not in page.evaluate(LINE_COLOURS)
        assert [fault for fault in page.faults if "getImageData" not in fault] == []


def as_rgb(colour: str) -> str:
    """``#rrggbb`` as ``r,g,b``."""
    return ",".join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))


def test_the_end_card_of_a_replay_says_what_the_expert_scored_there_and_goes_with_the_first_step_back(
    open_page: Callable[..., Any],
) -> None:
    with replayed(placed(24, expert_drives=False), expert_return=912.34) as server:
        page = open_page(server.url)
        until(page, "!document.getElementById('end-card').hidden")
        card = text(page, "#end-card")
        assert "Track 5: lap finished" in card
        assert "return48.0the expert here: 912.3" in card
        assert "as the expert21 %of the decisions" in card
        page.keyboard.press(",")
        until(page, "document.getElementById('end-card').hidden")
        page.keyboard.press("End")
        page.wait_for_timeout(200)
        assert not page.is_visible("#end-card"), "a person who looks for the last frame sees it"


@pytest.mark.nightly
@pytest.mark.parametrize("expert_drives", [True, False])
def test_an_expert_whose_score_is_not_known_or_that_drove_itself_has_none_on_the_end_card(
    open_page: Callable[..., Any], expert_drives: bool
) -> None:
    with replayed(placed(12, expert_drives=expert_drives), expert_return=912.3 if expert_drives else None) as server:
        page = open_page(server.url)
        until(page, "!document.getElementById('end-card').hidden")
        assert "the expert here" not in text(page, "#end-card")
        assert ("as the expert" in text(page, "#end-card")) is not expert_drives


@pytest.mark.nightly
def test_a_policy_that_looks_on_gets_no_return_on_the_end_card(open_page: Callable[..., Any]) -> None:
    with replayed(placed(12), policy="nac_steady") as server:
        page = open_page(server.url)
        until(page, "!document.getElementById('end-card').hidden")
        assert "return of ppo24.0" in text(page, "#end-card")
        assert "nac_steady as the expert100 %" in text(page, "#end-card")


@pytest.mark.nightly
def test_a_recording_without_places_has_no_map(open_page: Callable[..., Any]) -> None:
    with replayed(make_episode(40)) as server:
        page = open_page(server.url)
        until(page, "Number(document.getElementById('step').textContent) > 0")
        assert not page.is_visible("#map")
