"""What counts as a failure, and what is said of those that failed: only what is shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nacdrive.common.statistics import difference_of_shares
from nacdrive.extras.hunt.judge import (
    Lookout,
    compare,
    count_areas,
    failure,
    faults,
    knob_map,
    needs_reference,
    patterns,
)
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
        (row(finished_lap=False, progress=0.95), row(), None),
        (row(episode_return=810.0), row(), None),
        (row(episode_return=-50.0), row(episode_return=-20.0), None),
        (row(episode_return=-1.0), row(episode_return=0.0), None),
        (row(failure="nan", episode_return=0.0), row(failure="nan"), None),
        (road() | {"laps": 1.5}, road(), None),
        (road() | {"off_road_events": 1, "laps": 0.5}, road(), "left the road"),
        (road() | {"interventions": 1}, road() | {"interventions": 1}, None),
        (road() | {"interventions": 1, "collisions": 1}, road(), "touched a car"),
        (road() | {"laps": 0.5}, road(), "lap not finished"),
        (row(progress=0.0, finished_lap=False, episode_return=1.0),
         row(progress=0.0, finished_lap=False), "return below 90% of the reference's"),
        (row(progress=0.0, finished_lap=False, laps=0), row(progress=0.0, laps=1), "lap not finished"),
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
    lookout(make_tick(step=4, t_s=4.0, events=(), failure="nan", next_info={"progress": 0.2}))
    assert lookout.when_s("safety stop") == 4.0 and lookout.when_s("left the road") == 2.0


@pytest.mark.parametrize(
    ("events", "left_s"),
    [(("hit a car",), 1.5), (("intervention",), 1.5), (("started", "off road"), 1.5), (("lap finished",), 0.0)],
)
def test_the_first_hit_or_help_is_when_it_went_wrong(events: tuple[str, ...], left_s: float) -> None:
    lookout = Lookout()
    for t_s, seen in ((1.0, ("started",)), (1.5, events), (2.504, events)):
        lookout(make_tick(step=0, t_s=t_s, events=seen, next_info={}))
    assert lookout.when_s("touched a car") == left_s
    assert lookout.when_s("lap not finished") == 0.0, "it never got on"


def test_seconds_to_a_fault_are_those_of_the_last_metre_gained() -> None:
    lookout = Lookout()
    for t_s, progress in ((0.1, 0.2), (0.2004, 0.3), (0.3, 0.3), (0.4, 0.1)):
        lookout(make_tick(step=0, t_s=t_s, events=(), next_info={"progress": progress}))
    assert lookout.when_s("lap not finished") == 0.2


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


def test_a_pattern_says_by_how_many_points_more_of_its_kind_fail() -> None:
    pattern = compare("gravel", [(True, k < 8) for k in range(10)] + [(False, k < 3) for k in range(30)], 1)
    low, high = difference_of_shares(8, 10, 3, 30)
    assert pattern is not None and pattern.interval == (low, high)
    assert str(pattern) == (
        f"gravel: 8 of 10 fail, of the others 3 of 30 (+70 points, {100 * low:+.0f} to {100 * high:+.0f})"
    )


@pytest.mark.parametrize(("kind", "others"), [(5, 60), (60, 5)])
def test_five_episodes_on_a_side_are_enough_for_a_comparison_and_four_are_not(kind: int, others: int) -> None:
    def pairs(kind: int, others: int) -> list[tuple[bool, bool]]:
        return [(True, True)] * kind + [(False, False)] * others

    assert compare("x", pairs(kind, others), 1) is not None
    assert compare("x", pairs(*(count - (count == 5) for count in (kind, others))), 1) is None
    assert compare("x", [(side, failed) for side in (True, False) for failed in (True, False) * 30], 1) is None


def numbered(values: list[float], limit: float, *, above: bool, area: str = "starts", option: str = "") -> list[Any]:
    """Episodes of which those with a value above a limit fail, or the others."""
    return [
        {"area": area, "near": None, "unfair": False, "knobs": {option: value} if option else {}, "fault": "x",
         "road": {} if option else {"width": value}, "failed": (value > limit) == above}
        for value in values
    ]  # fmt: skip


@pytest.mark.parametrize("above", [True, False])
def test_the_side_of_a_number_on_which_it_fails_is_found_and_counted_on_the_other_half(above: bool) -> None:
    pattern = patterns(numbered([float(k % 10) for k in range(200)], 6.5, above=above), ())[0]
    assert pattern.words == ("width above 6" if above else "width at most 6")
    assert (pattern.count, pattern.failed, pattern.others, pattern.others_failed) == (
        (30, 30, 70, 0) if above else (70, 70, 30, 0)
    )


def test_a_number_is_divided_from_twenty_episodes_on_of_which_half_choose_where() -> None:
    values = [0.0, 1.0] * 10
    (pattern, *_) = patterns(numbered(values, 0.5, above=True), ())
    assert (pattern.count, pattern.others) == (5, 5)
    assert patterns(numbered(values[:18], 0.5, above=True), ()) == []


def test_of_a_start_beside_the_line_it_does_not_count_on_which_side_and_of_a_speed_it_does() -> None:
    starts = next(knob for knob in KNOBS if knob.option == "start_offset")
    both = numbered([float(k % 9 - 4) for k in range(180)], 2.5, above=True, option="start_offset")
    for one in both:
        one["failed"] = abs(one["knobs"]["start_offset"]) > 2.5
    assert patterns(both, (starts,))[0].words == f"{starts.words} above 2"
    speed = next(knob for knob in KNOBS if knob.option == "sun_elevation")
    shown = patterns(numbered([float(k % 9 - 4) for k in range(180)], -2.5, above=False, area="roads",
                              option="sun_elevation"), (speed,))  # fmt: skip
    assert shown[0].words == f"{speed.words} at most -3"


def test_a_knob_that_was_left_alone_has_its_usual_value() -> None:
    knob = next(knob for knob in KNOBS if knob.option == "brightness")
    turned = numbered([0.6, 0.7] * 40, 9.0, above=False, area="cameras", option="brightness")
    usual = [{**one, "knobs": {}, "failed": False} for one in turned]
    rows = [one for pair in zip(turned, usual, strict=True) for one in pair]
    (pattern, *_) = patterns(rows, (knob,))
    assert pattern.words.startswith("brightness at most 0.") and pattern.failed == pattern.count == 40


def test_the_clearest_pattern_comes_first_and_other_areas_are_no_part_of_a_knob() -> None:
    rows = numbered([float(k % 10) for k in range(200)], 6.5, above=True)
    for k, one in enumerate(rows):
        one["road"]["surface"] = "gravel" if one["failed"] != (k % 7 == 0) else "asphalt"
    shown = patterns(rows, ())
    assert [one.words for one in shown] == ["width above 6", "surface gravel"]
    assert shown[0].interval[0] > shown[1].interval[0]
    knob = next(knob for knob in KNOBS if knob.option == "noise")
    assert patterns([{**one, "knobs": {"noise": one["road"]["width"]}} for one in rows], (knob,)) == shown


def test_a_map_of_the_knobs_counts_what_fails_of_each_third_and_without_the_knob() -> None:
    heading, noise = (next(knob for knob in KNOBS if knob.option == name) for name in ("start_heading", "noise"))
    rows = numbered([float(k % 9) * (-1) ** k for k in range(90)], 5.5, above=True, option="start_heading")
    rows = [{**row, "failed": abs(row["knobs"]["start_heading"]) > 5.5} for row in rows]
    plain = [{**rows[0], "knobs": {}, "failed": k == 0} for k in range(4)]
    near = [{**rows[6], "near": 6, "failed": True}, {**rows[6], "unfair": True}]
    table = knob_map([*rows, *plain, *near], (heading, noise))
    assert table == [("degrees turned at first", "1 of 4", "3 and 6", "0 of 40", "11 of 31", "20 of 20")]
    assert knob_map([{**row, "failed": False} for row in rows], (heading,)) == []
    assert knob_map(rows[:14], (heading,)) == []


def test_what_was_driven_is_counted_by_area() -> None:
    rows = episodes(lambda one, rng: one["knobs"]["speed"] > 25, 40)
    counts = count_areas([*rows, {**rows[0], "near": 1, "failed": True}, {**rows[0], "unfair": True, "failed": False}])
    assert counts["areas"]["roads"]["near_failed"] == 1 and counts["areas"]["roads"]["drawn"] == 41
    assert counts["faults"] == {"left the road": sum(one["failed"] for one in rows) + 1}
    failed = sum(one["failed"] for one in rows)
    assert counts["areas"] == {"roads": {"drawn": 41, "failed": failed, "near": 1, "near_failed": 1, "unfair": 1}}
    more = [{**rows[0], "area": "seeds", "fault": "touched a car", "failed": True, "near": near} for near in (None, 3)]
    counts = count_areas([*more, *rows])
    assert list(counts["areas"]) == ["seeds", "roads"] and list(counts["faults"]) == ["left the road", "touched a car"]
    assert counts["areas"]["seeds"] == {"drawn": 1, "failed": 1, "near": 1, "near_failed": 1, "unfair": 0}


def test_the_difference_of_two_shares_is_that_of_the_paper() -> None:
    # Newcombe (1998), table II, method 10: 56 of 70 against 48 of 80, and 9 of 10 against 3 of 10.
    assert difference_of_shares(56, 70, 48, 80) == pytest.approx((0.0524, 0.3339), abs=1e-4)
    assert difference_of_shares(9, 10, 3, 10) == pytest.approx((0.1705, 0.8090), abs=1e-4)
    low, high = difference_of_shares(9, 10, 3, 10, comparisons=20)
    assert low < 0.1705 and high > 0.8090
