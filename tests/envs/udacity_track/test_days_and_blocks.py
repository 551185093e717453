"""The days of a track and what stands beside it, as far as a seed may vary them."""

from __future__ import annotations

import numpy as np
import pytest

from nacdrive.envs.udacity_track.appearance import (
    SEASONS,
    Appearance,
    at_elevation,
    random_appearance,
    unit,
    unit_vector,
    varied_day,
)
from nacdrive.envs.udacity_track.blocks import CAR, boulders, boxes, cars, houses
from nacdrive.envs.udacity_track.outline import border_of, clump
from nacdrive.envs.udacity_track.random_road import draw_heights, draw_lake, mixed, random_style, smoothed

DAY = Appearance()
DAYS = [random_appearance(np.random.default_rng(seed)) for seed in range(150)]
ONE = np.zeros((1, 3))


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("ambient", 0.35, 0.65), ("exposure", 0.85, 1.46), ("asphalt_contrast", 0.03, 0.16), ("trees", 200, 800),
        ("bushes", 100, 500), ("shadows", 0, 60), ("shadow_depth", 0.25, 0.6), ("paint_seed", 0, 2**31),
    ],
)  # fmt: skip
def test_another_day_varies_everything_within_bounds(name: str, low: float, high: float) -> None:
    values = np.array([getattr(day, name) for day in DAYS])
    reserve = 0.06 * (high - low)
    assert low <= values.min() < low + reserve and high - reserve < values.max() <= high


def test_the_sun_of_another_day_stands_between_18_and_75_degrees_in_any_direction() -> None:
    suns = np.array([day.sun for day in DAYS])
    np.testing.assert_allclose(np.linalg.norm(suns, axis=1), 1)
    heights = np.rad2deg(np.arcsin(suns[:, 2]))
    assert 18 <= heights.min() < 21 and 72 < heights.max() <= 75
    assert all(60 < count < 90 for count in ((suns[:, 0] > 0).sum(), (suns[:, 1] > 0).sum()))
    assert (DAYS[0].houses, DAYS[0].boulders) == (0, 0)


def test_a_cast_makes_a_day_warmer_or_colder_and_asphalt_grey() -> None:
    ratios = np.array([np.array(day.rock) / DAY.rock for day in DAYS])
    warm = np.log(ratios[:, 0] / ratios[:, 2])
    assert 0.12 < warm.std() < 0.17 and abs(warm.mean()) < 0.04
    asphalt = np.array([day.asphalt for day in DAYS])
    assert 0.3 < asphalt.min() < 0.45 and 0.75 < asphalt.max() < 1
    assert np.mean([day.marking[2] > 0.5 for day in DAYS]) == pytest.approx(0.3, abs=0.12), "white lines on some days"


def test_without_variety_a_day_is_a_summers_and_with_it_there_are_dusks_rain_and_seasons() -> None:
    plain, varied = ([varied_day(np.random.default_rng(k), v) for k in range(n)] for v, n in ((0.0, 20), (1.0, 200)))
    assert all(day.houses == day.boulders == 0 and day.sun[2] > 0.3 for day in plain)
    assert max(day.houses for day in varied) == 25 and 130 < max(day.boulders for day in varied) < 140
    dusk = [day for day in varied if day.horizon == (0.92, 0.66, 0.46)]
    grey = [day for day in varied if day.ambient == 0.86]
    # 18 % in the evening and 25 % under clouds, half of these wet; under clouds the horizon is grey in the evening too.
    assert len(dusk) / 200 == pytest.approx(0.18 * 0.75, abs=0.07) and len(grey) / 200 == pytest.approx(0.25, abs=0.08)
    assert all(0.1 < day.sun[2] < 0.28 and day.zenith == (0.36, 0.36, 0.52) for day in dusk)
    assert all(day.shadows == 0 and day.zenith[2] == pytest.approx(1.03 * day.zenith[0]) for day in grey)
    assert all(day.horizon == (pytest.approx(1.08 * day.zenith[0]),) * 3 for day in grey)
    wet = [day for day in grey if day.asphalt_contrast < 0.065 and max(day.asphalt) < 0.6]
    assert 10 <= len(wet) <= 40
    for season, colours in SEASONS.items():
        share = np.mean([all(getattr(day, name) == value for name, value in colours.items()) for day in varied])
        assert season == "summer" or 0.08 < share < 0.28


def test_a_place_in_the_sky_is_a_unit_vector() -> None:
    assert unit_vector(np.pi / 2, 1.0) == pytest.approx((0, 0, 1)) and unit_vector(0, np.pi / 2) == pytest.approx(
        (0, 1, 0)
    )
    assert unit_vector(np.pi / 6, np.pi) == pytest.approx((-np.sqrt(0.75), 0, 0.5))
    low = at_elevation(DAY, 30)
    assert low.sun[2] == pytest.approx(0.5) and low.sun[1] / low.sun[0] == pytest.approx(DAY.sun[1] / DAY.sun[0])
    assert low.sun[0] > 0 and low.asphalt == DAY.asphalt and unit(np.array([-1, 0.5, 2])) == (0, 0.5, 1)


# ---------------------------------------------------------------- boxes


def test_a_box_stands_on_its_floor_along_its_direction_and_is_lit_by_the_sun() -> None:
    place, size = np.array([[10.0, 20, 5]]), np.array([[2.0, 6, 3]])
    quads = boxes(place, size, np.array([0.0]), np.array([[0.4, 0.4, 0.4]]), DAY)
    assert quads.corners.shape == (5, 4, 3)
    corners = quads.corners.reshape(-1, 3)
    # Along the east: six metres long from west to east, two wide.
    assert corners.min(axis=0) == pytest.approx([7, 19, 5]) and corners.max(axis=0) == pytest.approx([13, 21, 8])
    # Rear, right, front, left, roof: west, south, east, north, up.
    facing = np.clip([-DAY.sun[0], -DAY.sun[1], DAY.sun[0], DAY.sun[1], DAY.sun[2]], 0, None)
    light = DAY.exposure * (DAY.ambient + (1 - DAY.ambient) * facing)
    np.testing.assert_allclose(quads.colours[:, 0, 0], 0.4 * light)
    assert quads.uv.shape == (5, 4, 2)
    turned = boxes(place, size, np.array([np.pi / 2]), np.ones((1, 3)), DAY, taper=0.5)
    assert np.ptp(turned.corners[:4, :2, :2].reshape(-1, 2), axis=0) == pytest.approx([2, 6])
    assert np.ptp(turned.corners[4, :, :2], axis=0) == pytest.approx([1, 3]) and turned.colours.max() <= 1


def test_a_car_is_as_large_as_the_one_that_is_touched() -> None:
    corners = cars(ONE, np.array([np.pi / 2]), np.random.default_rng(0), DAY).corners.reshape(-1, 3)
    assert np.ptp(corners[:, :2], axis=0) == pytest.approx(CAR[:2], abs=0.01) and CAR == (1.75, 4.3, 1.42)
    assert corners[:, 2].min() == pytest.approx(0.02) and corners[:, 2].max() == pytest.approx(CAR[2] + 0.03)
    # The cabin stands behind the middle.
    cabin = corners.reshape(4, -1, 3)[2]
    assert cabin[:, 1].mean() == pytest.approx(-0.25) and cabin[:, 2].min() == pytest.approx(0.86)


def test_houses_and_boulders_have_sizes_of_their_own_and_reach_into_the_ground() -> None:
    places = np.zeros((300, 3))
    built = houses(places, np.random.default_rng(0), DAY).corners.reshape(2, 300, -1, 3)
    walls, roofs = built[0], built[1]
    assert walls[..., 2].min() == pytest.approx(-0.8)
    heights = walls[..., 2].max(axis=1) + 0.8
    assert 2.6 <= heights.min() < 2.8 and 5.8 < heights.max() <= 6
    np.testing.assert_allclose(roofs[..., 2].min(axis=1), heights - 0.8)
    rising = np.ptp(roofs[..., 2], axis=1)
    assert 1.2 <= rising.min() < 1.3 and 2.5 < rising.max() <= 2.6
    rocks = boulders(places, np.random.default_rng(0), DAY).corners.reshape(300, -1, 3)
    assert rocks[..., 2].min() == pytest.approx(-0.3) and 1.5 < rocks[..., 2].max() + 0.3 <= 2.4 * 1.4 * 0.7


# ---------------------------------------------------------------- drawn roads


def test_bounds_lie_between_those_of_easy_and_of_difficult_roads() -> None:
    assert [mixed((4, 6), (2, 3), share) for share in (0, 0.5, 1)] == [(4, 6), (3, 4.5), (2, 3)]


def test_heights_close_the_lap_begin_above_the_sea_and_are_no_steeper_than_the_difficulty_allows() -> None:
    steepest = {0.0: [], 1.0: []}  # type: ignore[var-annotated]
    for seed in range(60):
        for difficulty, slopes in steepest.items():
            heights = draw_heights(np.random.default_rng(seed), 600, 1.5, difficulty)
            assert heights.shape == (600,) and heights.min() == pytest.approx(1.2)
            slopes.append(np.abs(np.diff(heights, append=heights[:1])).max() / 1.5)
    assert min(steepest[0.0]) >= 0.25 * 0.025 and 0.0235 < max(steepest[0.0]) <= 0.025 + 1e-9
    assert min(steepest[1.0]) >= 0.25 * 0.115 and 0.109 < max(steepest[1.0]) <= 0.115 + 1e-9


def test_smoothing_along_a_closed_line_keeps_the_mean_and_spreads_a_point_as_a_gaussian() -> None:
    point = np.zeros(101)
    point[0] = 1
    weights = smoothed(point, 4.0)
    assert weights.sum() == pytest.approx(1) and weights[3] == pytest.approx(weights[-3])
    away = np.minimum(np.arange(101), 101 - np.arange(101))
    assert (weights * away**2).sum() == pytest.approx(16, rel=1e-3)


def test_a_lake_lies_beside_the_road() -> None:
    line = np.zeros((50, 2))
    lakes = np.array([draw_lake(np.random.default_rng(seed), line) for seed in range(200)])
    away = np.hypot(lakes[:, 0], lakes[:, 1])
    assert 35 <= away.min() < 37 and 73 < away.max() <= 75 and lakes[:, 2].min() >= 20 and lakes[:, 2].max() <= 60
    assert 70 < (lakes[:, 0] > 0).sum() < 130


def test_a_roads_looks_are_the_usual_ones_without_variety_and_of_all_kinds_with_it() -> None:
    usual = random_style(np.random.default_rng(0), 0.0)
    assert usual == random_style(np.random.default_rng(1), 0.0)
    assert (usual.surface, usual.edge_line, usual.centre_line, usual.kerbs, usual.shoulder) == (
        "asphalt", "double", "none", "bends", "concrete",
    )  # fmt: skip
    assert (usual.white_edges, usual.white_centre, usual.line_m, usual.dash) == (False, False, 0.13, (8, 8))
    styles = [random_style(np.random.default_rng(seed), 1.0) for seed in range(400)]
    assert {style.surface for style in styles} == {"asphalt", "concrete", "cobbles", "gravel"}
    assert {style.dash for style in styles} == {(8, 8), (4, 4), (4, 8), (12, 4)}
    assert {style.edge_line for style in styles} == {style.centre_line for style in styles} == {
        "double", "solid", "dashed", "none",
    }  # fmt: skip
    assert {style.kerbs for style in styles} == {"bends", "everywhere", "none"}
    assert {style.shoulder for style in styles} == {"concrete", "gravel", "earth"}
    assert all(0.10 <= style.line_m <= 0.22 for style in styles) and max(style.line_m for style in styles) > 0.215
    assert np.mean([style.white_edges for style in styles]) == pytest.approx(0.7, abs=0.07)
    for style in styles:
        if style.surface == "gravel":
            assert (style.edge_line, style.centre_line, style.kerbs) == ("none",) * 3
    assert np.mean([style.surface == "asphalt" for style in styles]) == pytest.approx(6 / 9.6, abs=0.08)


def test_a_clump_hangs_together_and_its_border_runs_around_it_once() -> None:
    for seed in range(20):
        squares = clump(np.random.default_rng(seed), 8)
        border = border_of(squares)
        assert len(squares) == 8 and len(set(map(tuple, border))) == len(border)
        np.testing.assert_array_equal(np.abs(np.diff(border, axis=0, append=border[:1])).sum(axis=1), 1)
        following = np.roll(border, -1, axis=0)
        area = (border[:, 0] * following[:, 1] - following[:, 0] * border[:, 1]).sum() / 2
        assert area == 8, "counter-clockwise"
    with pytest.raises(ValueError, match="at a corner alone"):
        border_of({(0, 0), (1, 1)})
    with pytest.raises(ValueError, match="have a hole"):
        border_of({(x, y) for x in range(3) for y in range(3)} - {(1, 1)})
