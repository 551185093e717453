"""What counts as a failure, and what is said of those that failed: only what is shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nacdrive.common.statistics import difference_of_shares
from nacdrive.extras.hunt.judge import Lookout, compare, count_areas, failure, faults, needs_reference, patterns
from nacdrive.extras.hunt.search import KNOBS
from tests.helpers.ticks import make_tick


def row(**more: Any) -> dict[str, Any]:
    """Of an environment that counts nothing itself, such as CarRacing."""
    return {"failure": None, "finished_lap": True, "progress": 1.0, "episode_return": 900.0, **more}


def road(**more: Any) -> dict[str, Any]:
    """Of one that counts what leaves the road."""
    return row(laps=1.0, off_road_events=0, interventions=0, **more)


@pytest.mark.parametrize(
    ("own", "reference", "what"),
    [
        (row(), row(), None),
        (row(episode_return=700.0), row(), "return below 90% of the reference's"),
        (row(finished_lap=False, progress=0.4), row(), "lap not finished"),
        (row(finished_lap=False, progress=0.96), row(), None),
        (row(finished_lap=False, progress=0.4), row(finished_lap=False, progress=0.5), None),
        (row(failure="nan"), row(), "safety stop"),
            (road() | {"off_road_events": 1}, road(), "left the road"),
        (road() | {"interventions": 1}, road() | {"interventions": 1}, None),
        (road() | {"interventions": 1, "collisions": 1}, road(), "touched a car"),
        (road() | {"laps": 0.5}, road(), "lap not finished"),
        (row(progress=0.0, finished_lap=False, episode_return=1.0),
         row(progress=0.0, finished_lap=False), "return below 90% of the reference's"),
    ],
)  # fmt: skip
def test_a_failure_is_what_the_reference_passes(own: dict[str, Any], reference: dict[str, Any], what: str) -> None:
    assert failure(own, reference, 1.0, 0.9) == what


def test_who_cuts_an_episode_short_asks_for_no_lap() -> None:
    assert faults(row(finished_lap=False, progress=0.1), 0.0) == []


def test_the_reference_drives_only_where_it_decides() -> None:
    assert not needs_reference(row(), 1.0, 0.9, 1000.0) and needs_reference(row(episode_return=899.0), 1.0, 0.9, 1000.0)
    assert needs_reference(row(), 1.0, 0.9, None) and not needs_reference(road(episode_return=5.0), 1.0, 0.9, None)
    assert needs_reference(road() | {"laps": 0.2}, 1.0, 0.9, None)


def test_when_it_went_wrong() -> None:
    lookout = Lookout()
    for step, (progress, events) in enumerate([(0.1, ()), (0.2, ("started",)), (0.2, ("off road",)), (0.2, ())]):
        lookout(make_tick(step=step, t_s=float(step), events=events, next_info={"progress": progress}))
    assert lookout.when_s("left the road") == 2.0 and lookout.when_s("lap not finished") == 1.0


def episodes(fails: Any, count: int = 400) -> list[dict[str, Any]]:
    rng = np.random.default_rng(5)
    surfaces = ["asphalt", "gravel", "concrete"]
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        knobs = {"speed": float(rng.uniform(12, 30)), "patches": int(rng.integers(60))}
        facts = {"surface": surfaces[rng.integers(3)], "width": float(rng.uniform(7, 11))}
        one = {"area": "roads", "near": None, "unfair": False, "knobs": knobs, "road": facts}
        rows.append({**one, "failed": bool(fails(one, rng)), "fault": "left the road"})
    return rows


def test_what_goes_with_failures_is_said_with_its_numbers() -> None:
    def fails(one: dict[str, Any], rng: np.random.Generator) -> bool:
        return rng.random() < 0.05 + 0.5 * (one["road"]["surface"] == "gravel") + 0.3 * (one["knobs"]["speed"] > 25)

    shown = patterns(episodes(fails), KNOBS)
    words = [pattern.words for pattern in shown]
    assert words[0] == "surface gravel" and any(word.startswith("mph above") for word in words)
    assert not any("patches" in word or "width" in word for word in words)
    assert "fail, of the others" in str(shown[0]) and shown[0].interval[0] > 0


def test_nothing_is_said_of_chance() -> None:
    said = [patterns(episodes(lambda one, rng: rng.random() < 0.3, 120), KNOBS) for _ in range(1)]
    assert said == [[]]


def test_episodes_near_failures_and_those_that_both_fail_count_for_no_pattern() -> None:
    rows = episodes(lambda one, rng: one["road"]["surface"] == "gravel")
    assert patterns([{**one, "near": 3} for one in rows], KNOBS) == []
    assert patterns([{**one, "unfair": True} for one in rows], KNOBS) == []
    assert compare("few", [(True, True)] * 4 + [(False, False)] * 50, 1) is None


def test_what_was_driven_is_counted_by_area() -> None:
    rows = episodes(lambda one, rng: one["knobs"]["speed"] > 25, 40)
    counts = count_areas([*rows, {**rows[0], "near": 1, "failed": True}, {**rows[0], "unfair": True, "failed": False}])
    assert counts["areas"]["roads"]["near_failed"] == 1 and counts["areas"]["roads"]["drawn"] == 41
    assert counts["faults"] == {"left the road": sum(one["failed"] for one in rows) + 1}


def test_the_difference_of_two_shares_is_that_of_the_paper() -> None:
    # Newcombe (1998), table II, method 10: 56 of 70 against 48 of 80, and 9 of 10 against 3 of 10.
    assert difference_of_shares(56, 70, 48, 80) == pytest.approx((0.0524, 0.3339), abs=1e-4)
    assert difference_of_shares(9, 10, 3, 10) == pytest.approx((0.1705, 0.8090), abs=1e-4)
    low, high = difference_of_shares(9, 10, 3, 10, comparisons=20)
    assert low < 0.1705 and high > 0.8090
