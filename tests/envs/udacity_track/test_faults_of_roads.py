"""What is wrong with a road on one day, drawn on a circle of a thousand points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nacdrive.envs.udacity_track.extras import missing, parked, stains
from nacdrive.envs.udacity_track.options import RoadOptions
from nacdrive.envs.udacity_track.track import load_track
from nacdrive.envs.udacity_track.traffic import apart, draw_slow_cars

TRACK = load_track("lake")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_marks_are_missing_on_their_share_of_the_lap_in_stretches(share: float) -> None:
    bare = missing(TRACK, share, np.random.default_rng(0))
    stretch = 45 / TRACK.length
    assert share <= bare.mean() <= min(1, share + stretch)
    if 0 < share < 1:
        begins = np.flatnonzero(bare & ~np.roll(bare, 1))
        ends = np.flatnonzero(bare & ~np.roll(bare, -1))
        lengths = (ends - begins if begins[0] <= ends[0] else np.roll(ends, -1) - begins) % len(bare) + 1
        assert lengths.min() * TRACK.spacing >= 11.5


def test_a_small_share_is_one_short_stretch() -> None:
    assert missing(TRACK, 3 / len(TRACK.line), np.random.default_rng(0)).sum() == 3


def test_stains_lie_on_the_road_two_thirds_of_them_dark() -> None:
    drawn = stains(TRACK, 400, np.random.default_rng(0))
    at, offset, length, width = np.array([stain for stain, _ in drawn]).T
    assert len(drawn) == 400 and stains(TRACK, 0, np.random.default_rng(0)) == ()
    assert at.min() >= 0 and at.max() < len(TRACK.line)
    assert 0.85 * TRACK.half_width < np.abs(offset).max() <= 0.9 * TRACK.half_width and offset.min() < 0 < offset.max()
    assert 1 <= length.min() < 1.2 and 6.8 < length.max() <= 7 and 0.5 <= width.min() < 0.6 and 2.4 < width.max() <= 2.5
    assert np.mean([dark for _, dark in drawn]) == pytest.approx(0.65, abs=0.07)


def test_parked_cars_stand_at_both_edges_apart_and_not_before_the_start() -> None:
    cars = parked(TRACK, 25, np.random.default_rng(0), 100.0)
    assert len(cars.s) == 25
    assert set(np.round(np.abs(cars.offset), 6)) == {round(TRACK.half_width - 0.15, 6)}
    assert cars.offset.min() < 0 < cars.offset.max()
    gaps = np.abs(apart(TRACK, cars.s[:, None], cars.s[None])) + 1e3 * np.eye(25)
    assert gaps.min() > 14
    ahead = (cars.s - 100) % TRACK.length
    assert ahead.min() >= 25
    for s, offset, place, turn in zip(cars.s, cars.offset, cars.places, cars.turns, strict=True):
        point, heading = TRACK.at(float(s))
        right = np.array((np.sin(heading), -np.cos(heading)))
        np.testing.assert_allclose(place[:2], point[:2] + offset * right)
        # Those on the left look the other way; none stands quite straight.
        assert np.cos(turn - heading) * np.sign(offset) > 0.98
        index = int(s / TRACK.spacing)
        assert not (TRACK.bridge | TRACK.tunnel | TRACK.rails[:, int(offset > 0)])[index]
    assert len(parked(TRACK, 0, np.random.default_rng(0), 0.0).s) == 0


def test_slow_cars_begin_apart_in_the_right_lane_at_three_to_six_metres_a_second() -> None:
    cars = draw_slow_cars(TRACK, 12, np.random.default_rng(0), 100.0)
    assert len(cars.s) == 12 and 3 <= cars.speed.min() < cars.speed.max() <= 6
    places = np.array([*cars.s, 100.0])
    gaps = np.abs(apart(TRACK, places[:, None], places[None])) + 1e3 * np.eye(13)
    assert gaps.min() > 25
    assert cars.offset == min(TRACK.half_width / 2, TRACK.half_width - 2.2)


def test_faults_that_nobody_asks_for_are_not_there() -> None:
    assert RoadOptions().given == {}
    options: dict[str, Any] = {
        "missing_marks": 0.0,
        "patches": 400,
        "parked_cars": 60,
        "slow_cars": 30,
        "sun_elevation": 5.0,
    }
    assert RoadOptions(**options).given == options
