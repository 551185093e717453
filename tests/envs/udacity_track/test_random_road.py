"""Roads from seeds: closed, clear of themselves, drivable, the same again; those to learn from are never judged on."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nacdrive.common.errors import UserError
from nacdrive.drivers.pure_pursuit import PurePursuit
from nacdrive.envs.registry import env_spec
from nacdrive.envs.seeds import POLICY_RECORDING, POLICY_TEST
from nacdrive.envs.udacity_track import make_udacity_track, random_road
from nacdrive.envs.udacity_track.drivable import BEND, CLEARANCE, farthest_off, keeps_clear
from nacdrive.envs.udacity_track.outline import border_of, clump
from nacdrive.envs.udacity_track.random_road import Structures, UndrivableError, attempt_road, draw_line, draw_road
from nacdrive.envs.udacity_track.terrain import beside, beside_quickly, terrain_of
from nacdrive.envs.udacity_track.track import Track, directions, load_track
from nacdrive.rollout.dagger import DaggerRound
from nacdrive.rollout.drive import Drive
from nacdrive.rollout.record_config import RecordConfig
from nacdrive.rollout.train_config import TrainConfig

DIFFICULTIES = (0.0, 0.5, 1.0)


def crossings(line: np.ndarray) -> int:
    """How often a closed line crosses itself, pair by pair of its pieces."""
    ends = np.roll(line, -1, axis=0)
    count, result = len(line), 0
    for i in range(count):
        a, b = line[i], ends[i]
        others = np.arange(i + 2, count - (i == 0))
        c, d = line[others], ends[others]

        def side(p: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
            return np.sign((q - p)[..., 0] * (r - p)[..., 1] - (q - p)[..., 1] * (r - p)[..., 0])

        result += int(((side(a, b, c) * side(a, b, d) < 0) & (side(c, d, a) * side(c, d, b) < 0)).sum())
    return result


def clear_by_loops(line: np.ndarray, spacing: float) -> bool:
    """``keeps_clear`` pair by pair."""
    points = line[::3]
    for i, p in enumerate(points):
        for j, q in enumerate(points):
            along = min(abs(i - j), len(points) - abs(i - j)) * 3 * spacing
            if math.dist(p, q) < min(CLEARANCE, BEND * along) - 1e-4:
                return False
    return True


def ring(bulge: float) -> np.ndarray:
    """A closed line of about 400 m; the larger ``bulge``, the nearer it comes to itself."""
    angle = np.linspace(0, 2 * np.pi, 420, endpoint=False)
    radius = 60 * (1 + bulge * np.cos(2 * angle))
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_no_road_crosses_itself_and_none_has_a_bend_too_tight_for_its_width(difficulty: float) -> None:
    for seed in range(6):
        road = draw_road(seed, difficulty, 0.5)
        assert crossings(road.line[::2, :2]) == 0
        assert 1 / np.abs(road.curvature).max() > road.half_width + 2
        assert 450 < road.length < 1300
        assert abs(road.curvature.sum() * road.spacing) == pytest.approx(2 * np.pi, abs=0.1)  # once around
        assert np.abs(np.diff(road.line[:, 2])).max() / road.spacing < 0.13
        np.testing.assert_allclose(np.linalg.norm(np.diff(road.line[:, :2], axis=0), axis=1), road.spacing, rtol=0.02)


def test_the_quick_check_of_clearance_agrees_with_the_one_by_loops() -> None:
    verdicts = []
    for bulge in (0.0, 0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.97):
        line = ring(bulge)
        spacing = float(np.linalg.norm(np.diff(line, axis=0), axis=1).mean())
        verdicts.append(keeps_clear(line, spacing))
        assert verdicts[-1] == clear_by_loops(line, spacing)
    assert True in verdicts and False in verdicts
    turn = np.linspace(0, 2 * np.pi, 500, endpoint=False) + 0.003
    eight = np.stack([80 * np.sin(turn), 60 * np.sin(2 * turn)], axis=1)
    assert crossings(eight) == 1 and not keeps_clear(eight, 1.0)


@given(seed=st.integers(0, 2**32), count=st.integers(2, 14))
def test_the_border_of_any_clump_is_one_line_that_meets_itself_nowhere(seed: int, count: int) -> None:
    squares = clump(np.random.default_rng(seed), count)
    border = border_of(squares)
    assert len(squares) == count and len({tuple(p) for p in border.tolist()}) == len(border)
    x, y = border.T
    area = 0.5 * float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum())
    assert area == count  # the shoelace formula: counter-clockwise, nothing enclosed twice, no hole


def test_the_same_seed_gives_the_same_road_and_another_another() -> None:
    one = draw_road(7, 0.5, 0.5)
    draw_road.cache_clear()
    again, other = draw_road(7, 0.5, 0.5), draw_road(8, 0.5, 0.5)
    assert again is not one and again.style == one.style and again.half_width == one.half_width
    for name in ("line", "bank", "rails", "tunnel", "bridge"):
        np.testing.assert_array_equal(getattr(again, name), getattr(one, name))
    assert other.line.shape != one.line.shape or not np.array_equal(other.line, one.line)


def test_the_knobs_do_what_they_say() -> None:
    easy, hard = ([draw_road(seed, d, 0.5) for seed in range(5)] for d in (0.0, 1.0))

    def mean(roads: list[Track], of: str) -> float:
        values = {
            "radius": [1 / np.abs(r.curvature).max() for r in roads],
            "width": [r.half_width for r in roads],
            "slope": [np.abs(np.diff(r.line[:, 2])).max() for r in roads],
        }
        return float(np.mean(values[of]))

    assert mean(easy, "radius") > 2.5 * mean(hard, "radius")
    assert mean(easy, "width") > mean(hard, "width") + 0.5 and mean(easy, "slope") < 0.5 * mean(hard, "slope")
    plain, varied = ([draw_road(seed, 0.5, v).style for seed in range(20)] for v in (0.0, 1.0))
    assert len(set(plain)) == 1 and plain[0].surface == "asphalt" and plain[0].edge_line == "double"
    assert {style.surface for style in varied} >= {"asphalt", "concrete", "gravel"}
    assert {style.centre_line for style in varied} == {"none", "dashed", "solid", "double"}
    # The knob of looks leaves the road itself alone.
    np.testing.assert_array_equal(draw_road(3, 0.5, 0.0).line, draw_road(3, 0.5, 1.0).line)


def test_all_kinds_of_structures_come() -> None:
    roads = [draw_road(seed, 0.5, 0.5) for seed in range(20)]
    assert 2 < sum(road.tunnel.any() for road in roads) < 16 and 2 < sum(road.bridge.any() for road in roads) < 16
    assert any(road.rails.any() for road in roads) and any(np.abs(road.bank).max() > 0.02 for road in roads)
    for road in roads:
        assert not (road.tunnel & road.bridge).any() and not (road.rails.any(axis=1) & road.tunnel).any()
        assert road.line[:, 2].min() > road.water_level + 0.9


def test_what_cannot_be_driven_is_drawn_again_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    again = next(road for road in (draw_road(seed, 0.5, 0.5) for seed in range(20)) if road.redraws)
    for attempt in range(again.redraws):
        with pytest.raises(UndrivableError):
            attempt_road(again.road_seed, attempt, 0.5, 0.5)
    np.testing.assert_array_equal(attempt_road(again.road_seed, again.redraws, 0.5, 0.5).line, again.line)
    # A car that would leave the road is a reason, too.
    monkeypatch.setattr(random_road, "farthest_off", lambda track: math.inf)
    with pytest.raises(UndrivableError, match="would leave"):
        attempt_road(again.road_seed, again.redraws, 0.5, 0.5)
    monkeypatch.setattr(random_road, "MOST_DRAWS", 4)
    draw_road.cache_clear()
    with pytest.raises(RuntimeError, match="4 draws"):
        draw_road(again.road_seed, 0.5, 0.5)


def test_the_car_that_tries_roads_knows_a_road_that_is_too_tight() -> None:
    for name in ("lake", "mountain"):
        assert farthest_off(load_track(name)) < 1.0
    tight = ring(0.0) / 12  # a circle of 5 m
    road = draw_road(0, 0.5, 0.5)
    assert farthest_off(road) < 1.0
    heading, curvature = directions(tight)
    small = replace(
        road, line=np.c_[tight, np.zeros(len(tight))], heading=heading, curvature=curvature, bank=np.zeros(len(tight))
    )
    assert farthest_off(small) == math.inf


@pytest.mark.parametrize(
    ("difficulty", "roads"),
    [(1.0, 2), *(pytest.param(difficulty, 2, marks=pytest.mark.nightly) for difficulty in DIFFICULTIES)],
)
def test_the_geometric_driver_laps_random_roads_without_leaving_them(difficulty: float, roads: int) -> None:
    env = make_udacity_track("random", road_difficulty=difficulty, randomize=False)
    for seed in range(POLICY_TEST.start, POLICY_TEST.start + roads):
        env.reset(seed=seed)
        driver, farthest = PurePursuit(), 0.0
        driver.reset(env)
        while env.track_position.driven < env.track.length:
            action = driver.act()
            for _ in range(5):
                env.advance(action.steering, action.throttle - action.brake)
            assert env.wheels_off() == 0 and not env.is_lost()
            farthest = max(farthest, abs(env.track_position.offset))
        assert farthest < env.track.half_width - 1.15 and env.t_s < 200
    env.close()


def test_the_land_never_shows_through_a_drawn_road() -> None:
    for seed in range(8):
        road = draw_road(seed, 1.0, 0.5)
        ground = terrain_of(road)
        for offset in np.linspace(-road.half_width, road.half_width, 7):
            places = road.line[:, :2] - road.left * offset
            land = ground.at(ground.height, *places.T) - road.line[:, 2] - road.bank * offset
            assert land[~road.bridge].max() < -0.1


def test_the_quick_look_at_the_land_agrees_with_the_exact_one() -> None:
    road = draw_road(2, 0.5, 0.5)
    places = np.random.default_rng(0).uniform(-150, 150, (400, 2))
    (distance, height, nearest), (quick, rough, near) = beside(road, places), beside_quickly(road, places)
    # A point that was left out lies up to a metre and a half along the road.
    np.testing.assert_allclose(quick**2, distance**2, rtol=0.01, atol=3.0)
    np.testing.assert_allclose(rough, height, atol=0.6)
    far = np.abs(nearest - near)
    assert (np.minimum(far, len(road.line) - far) <= 3).mean() > 0.97


def test_random_draws_the_road_of_the_seed_and_its_name_fixes_it() -> None:
    env, one = make_udacity_track("random"), make_udacity_track("random:7")
    frame, _ = env.reset(seed=7)
    same, _ = one.reset(seed=7)
    np.testing.assert_array_equal(frame, same)
    assert env.track.name == one.track.name == env.episode_meta()["track"] == "random:7"
    another, _ = one.reset(seed=8)
    assert one.track.name == "random:7" and (another != same).any()  # the same road on another day
    env.reset(seed=9)
    assert env.track.name == "random:9" and env.car.ground is not one.car.ground
    env.reset()
    assert env.track.road_seed in POLICY_RECORDING  # who gives no seeds is training
    assert env.episode_meta()["road_difficulty"] == 0.5 and "redraws" in env.episode_meta()
    env.close()
    one.close()


def test_roads_to_learn_from_are_never_those_of_judgement() -> None:
    spec = env_spec("udacity-track")
    assert spec.track_of("random", 5) == "random:5" and spec.track_of("random:7", 5) == "random:7"
    for roads in (1, 3, 30):
        seen = {spec.track_of("random", seed, roads) for seed in (*POLICY_RECORDING[:100], *POLICY_RECORDING[-100:])}
        assert len(seen) == roads and all(int(name.partition(":")[2]) in POLICY_RECORDING for name in seen)
    assert set(DaggerRound(Drive(), 25, 1000, 19).tracks) <= set(POLICY_RECORDING)


def test_wrong_seeds_and_knobs_are_named() -> None:
    for wrong in ("random:", "random:-1", "random:1.5", "random:x", f"random:{2**31}", "random:" + "9" * 5000):
        with pytest.raises(UserError, match="whole number from 0 to 2147483647"):
            make_udacity_track(wrong)
    with pytest.raises(UserError, match="did you mean 'random'"):
        make_udacity_track("randon")
    with pytest.raises(UserError, match=r"--road-difficulty is 1\.5: give 0 to 1"):
        make_udacity_track("random", road_difficulty=1.5)
    with pytest.raises(UserError, match="--scene-variety is nan"):
        make_udacity_track("random", scene_variety=math.nan)
    with pytest.raises(UserError, match="--road-difficulty is for random roads: add --track random"):
        make_udacity_track("lake", road_difficulty=0.5)
    for config in (RecordConfig, TrainConfig):
        of = {"env": "udacity"} if config is RecordConfig else {"task": "udacity"}
        with pytest.raises(UserError, match="policies are judged on"):
            config(**of, track="random:4000001")
        with pytest.raises(UserError, match="--roads is for random roads"):
            config(**of, roads=3)
        with pytest.raises(UserError, match="--roads is 0"):
            config(**of, track="random", roads=0)
        with pytest.raises(UserError, match="--roads is for random roads"):
            config(**of, track="random:5", roads=3)


def along_a_road(count: int, seed: int) -> SimpleNamespace:
    """What guard rails are drawn from, with nothing built."""
    nothing = np.zeros(count, dtype=bool)
    return SimpleNamespace(rng=np.random.default_rng(seed), count=count, bridge=nothing, tunnel=nothing, spacing=1.0)


def test_rails_of_bends_stand_at_the_outside() -> None:
    left = np.full(200, 1 / 30)
    kinds = {seed: np.random.default_rng(seed).random() for seed in range(40)}
    outside = [seed for seed, kind in kinds.items() if 0.35 < kind <= 0.7]
    assert len(outside) > 5
    for seed in outside:
        for curvature, side in ((left, 1), (-left, 0), (np.zeros(200), None)):
            rails = Structures._rails(along_a_road(200, seed), curvature)  # type: ignore[arg-type]
            assert [rails[:, k].all() for k in (0, 1)] == [side == 0, side == 1]
            assert rails.any() == (side is not None)


def test_parts_of_the_road_are_near_each_other_across_its_seam_as_anywhere() -> None:
    around = np.linspace(0, 2 * np.pi, 1200, endpoint=False)
    circle = 191 * np.c_[np.cos(around), np.sin(around)]
    assert Structures._lonely(along_a_road(1200, 0), circle).all()  # type: ignore[arg-type]
    flat = circle * (1, 0.02)
    assert not Structures._lonely(along_a_road(1200, 0), flat).all()  # type: ignore[arg-type]


def test_a_bend_has_room_for_the_whole_width_of_the_road() -> None:
    for seed in range(12):
        with pytest.raises(UndrivableError):
            draw_line(np.random.default_rng(seed), 0.5, 1000.0)
    narrow = []
    for seed in range(12):
        with suppress(UndrivableError):
            narrow.append(draw_line(np.random.default_rng(seed), 0.5, 4.0))
    assert narrow


def test_roads_are_banked_into_their_bends_as_their_curvature_says() -> None:
    roads = [draw_road(seed, 0.5, 0.5) for seed in range(3)]
    banked = [road for road in roads if road.bank.any()]
    assert banked
    for road in banked:
        assert np.corrcoef(road.bank, road.curvature)[0, 1] > 0.3
