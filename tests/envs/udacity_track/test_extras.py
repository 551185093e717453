"""What may be wrong with a road: marks that have gone, stains, parked cars; and that nothing changes unasked."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from panda3d.core import DepthOffsetAttrib

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.pure_pursuit import PurePursuit
from nacdrive.envs.udacity_track import make_udacity_track, meshes, scene
from nacdrive.envs.udacity_track.appearance import Appearance, varied_day
from nacdrive.envs.udacity_track.cameras import Cameras
from nacdrive.envs.udacity_track.extras import CAR_EVERY, FREE_START, draw_extras
from nacdrive.envs.udacity_track.options import RoadOptions
from nacdrive.envs.udacity_track.random_road import draw_road
from nacdrive.envs.udacity_track.track import load_track
from nacdrive.envs.udacity_track.traffic import KEEP, apart


def yellow(frame: np.ndarray) -> int:
    """Pixels of yellow paint on the road itself, and not of the sand beside it."""
    red, _, blue = frame[86:104].astype(float).transpose(2, 0, 1)
    return int((red - blue > 60).sum())


def test_marks_can_be_missing_on_fixed_tracks_too() -> None:
    frames = []
    for share in (None, 0.0, 1.0):
        env = make_udacity_track("lake", randomize=False, missing_marks=share)
        env.reset(seed=1)
        frames.append(env.place(60.0)[0])
        env.close()
    np.testing.assert_array_equal(frames[0], frames[1])
    assert yellow(frames[0]) > 50 and yellow(frames[2]) < 0.4 * yellow(frames[0])


def test_so_much_of_the_lap_has_lost_its_marks_as_was_asked() -> None:
    road = load_track("lake")
    bare = draw_extras(road, RoadOptions(missing_marks=0.3), np.random.default_rng(0), 0.0).bare
    assert bare is not None and 0.3 <= bare.mean() < 0.34
    again = draw_extras(road, RoadOptions(missing_marks=0.3), np.random.default_rng(0), 0.0).bare
    np.testing.assert_array_equal(bare, again)


def test_stains_lie_on_the_road_alone() -> None:
    frames = []
    for patches in (0, 300):
        env = make_udacity_track("lake", randomize=False, patches=patches)
        env.reset(seed=1)
        frames.append(env.place(60.0)[0].astype(int))
        env.close()
    changed = np.abs(frames[1] - frames[0]).max(axis=2) > 5
    assert changed[75:].sum() > 500 and not changed[:55].any()


def test_parked_cars_stand_at_the_edges_apart_and_not_where_the_car_starts() -> None:
    road = draw_road(4, 0.5, 0.5)
    cars = draw_extras(road, RoadOptions(parked_cars=12), np.random.default_rng(1), 100.0).cars
    assert len(cars.s) > 6 and np.allclose(np.abs(cars.offset), road.half_width - 0.15)
    gaps = np.abs((cars.s[:, None] - cars.s + road.length / 2) % road.length - road.length / 2)
    assert gaps[~np.eye(len(gaps), dtype=bool)].min() > CAR_EVERY
    assert ((cars.s - 100.0) % road.length).min() > FREE_START
    index = (cars.s / road.spacing).astype(int) % len(road.line)
    assert not (road.tunnel | road.bridge)[index].any()


@pytest.mark.parametrize("side", [0, 1])
def test_no_car_is_parked_where_a_rail_is(side: int) -> None:
    rails = np.zeros((len(load_track("lake").line), 2), dtype=bool)
    rails[:, side] = True
    road = replace(load_track("lake"), rails=rails)
    cars = draw_extras(road, RoadOptions(parked_cars=8), np.random.default_rng(1), 100.0).cars
    assert cars is not None and len(cars.offset) > 4 and {*np.sign(cars.offset)} == {1.0 if side == 0 else -1.0}


def test_the_geometric_driver_passes_parked_cars_without_touching_them() -> None:
    env = make_udacity_track("random:4", parked_cars=10, randomize=False)
    env.reset(seed=1)
    assert len(env.car.parked) >= 6
    driver = PurePursuit()
    driver.reset(env)
    while env.track_position.driven < env.track.length:
        action = driver.act()
        for _ in range(5):
            env.advance(action.steering, action.throttle - action.brake)
            assert not env.car.touched()
    env.close()


@pytest.mark.parametrize("recover", [False, True])
def test_hitting_a_parked_car_ends_the_drive_or_is_an_intervention(recover: bool) -> None:
    env = make_udacity_track("random:4", parked_cars=10, randomize=False, recover=recover)
    env.reset(seed=1)
    env.track_position.find(np.array(env.car.parked[0].get_transform().get_pos()))
    env.place(env.track_position.s - 9.0, env.track_position.offset, speed=9.0)
    events: list[str] = []
    terminated, info = False, {}
    for _step in range(15):
        _, _, terminated, _, info = env.step(Action(0.0, 1.0, 0.0))
        events += info["events"]
        if "hit a parked car" in events:
            break
    assert "hit a parked car" in events and terminated is not recover and info["put_back"] is recover
    assert env.metrics()["collisions"] == env.metrics()["interventions"] == 1
    if not recover:
        assert info["ended"] == "hit a parked car"
    env.close()


def test_without_parked_cars_nothing_is_said_of_collisions() -> None:
    env = make_udacity_track("lake")
    env.reset(seed=0)
    env.step(Action(0.0, 0.5, 0.0))
    assert "collisions" not in env.metrics() and env.episode_meta()["track"] == "lake"
    env.close()


def test_a_low_sun_dims_the_road_and_leaves_the_rest_of_the_day_as_it_is() -> None:
    frames = {}
    for degrees in (None, standard_elevation(), 5.0, 90.0):
        env = make_udacity_track("lake", randomize=False, sun_elevation=degrees)
        env.reset(seed=1)
        frames[degrees] = env.place(60.0)[0].astype(int)
        assert env.episode_meta().get("sun_elevation") == degrees
        env.close()
    np.testing.assert_allclose(frames[None], frames[standard_elevation()], atol=1)
    road = {degrees: frame[110:130, 100:220].mean() for degrees, frame in frames.items()}
    assert road[5.0] < 0.95 * road[None] < road[90.0]


def standard_elevation() -> float:
    east, north, up = Appearance().sun
    return math.degrees(math.atan2(up, math.hypot(east, north)))


def test_faults_that_make_no_sense_are_named() -> None:
    for wrong, sentence in (
        ({"missing_marks": 1.2}, "--missing-marks is 1.2"),
        ({"patches": -1}, "--patches is -1"),
        ({"parked_cars": 1000}, "--parked-cars is 1000"),
        ({"slow_cars": 31}, "--slow-cars is 31"),
        ({"sun_elevation": 3.0}, "--sun-elevation is 3: give 5 to 90"),
    ):
        with pytest.raises(UserError, match=sentence):
            make_udacity_track("lake", **wrong)


def test_days_vary_with_the_knob() -> None:
    days = {v: [varied_day(np.random.default_rng(seed), v) for seed in range(40)] for v in (0.0, 1.0)}
    assert all(day.houses == 0 and day.ambient < 0.66 and day.sun[2] > 0.3 for day in days[0.0])
    assert any(day.ambient > 0.8 for day in days[1.0]) and any(day.sun[2] < 0.28 for day in days[1.0])
    assert sum(day.leaves == (1.0, 0.62, 0.32) for day in days[1.0]) >= 2  # autumn


@pytest.mark.parametrize("way", ["a tile per square", "no shared corners", "sky first"])
def test_what_makes_the_scene_quick_to_draw_leaves_every_pixel_as_it_is(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    road, day = draw_road(5, 0.5, 0.5), Appearance()
    pictures = []
    for slow in (False, True):
        if slow and way == "a tile per square":
            monkeypatch.setattr(meshes, "LONG", 1)
        elif slow and way == "no shared corners":
            # All corners of a part get the same number.
            monkeypatch.setattr(meshes, "MIXERS", np.zeros_like(meshes.MIXERS))
        world, sky = scene.build_scene(road, day, draw_extras(road, RoadOptions(), np.random.default_rng(0), 0.0))
        if slow and way == "sky first":
            sky.clear_attrib(DepthOffsetAttrib)
            sky.set_bin("background", 0)
            sky.set_depth_test(False)
        cameras = Cameras(("center",))
        cameras.enter(world, sky, scene.build_hood(day))
        point, heading = road.at(50.0)
        cameras.rig.set_pos(*point)
        cameras.rig.set_h(np.degrees(heading) - 90)
        cameras.sky.set_pos(*point)
        pictures.append(cameras.look()["center"])
        cameras.close()
    np.testing.assert_array_equal(*pictures)


def test_slow_cars_keep_to_their_lane_and_never_run_into_each_other_or_into_the_car() -> None:
    env = make_udacity_track("random:4", slow_cars=8, randomize=False)
    env.reset(seed=1)
    assert env.traffic is not None
    cars, road = env.traffic.cars, env.track
    before = cars.s.copy()
    env.place(float(cars.s[0]) + 12.0, cars.offset)  # it stands in the way of one of them
    for _ in range(400):
        env.advance(0.0, 0.0)
    moved = (cars.s - before) % road.length
    assert (moved <= cars.speed * 8.0 + 1e-6).all() and moved.max() > 20.0
    # The one in the way may have rolled on a little.
    assert apart(road, cars.s, env.track_position.s)[0] <= 1e-6 - KEEP and moved[0] < 0.6 * 8.0 * cars.speed[0]
    gaps = (cars.s[:, None] - cars.s) % road.length
    assert gaps[~np.eye(len(gaps), dtype=bool)].min() >= KEEP - 1e-6
    assert not env.car.touched()
    env.look()
    for path, body in zip(env.traffic.paths, env.traffic.bodies, strict=True):
        seen, touched = path.get_pos(), body.get_transform().get_pos()
        assert touched.z < -100 or (seen - touched).length() < 1.0  # never where it was before
    env.close()


def test_the_geometric_driver_passes_slow_cars_and_the_drive_comes_again() -> None:
    pictures, passed = [], 0
    for decisions in (90, 25):
        env = make_udacity_track("random:4", slow_cars=8, parked_cars=6)
        env.reset(seed=1)
        driver = PurePursuit()
        driver.reset(env)
        assert env.traffic is not None
        ahead = apart(env.track, env.traffic.cars.s, env.track_position.s)
        for number in range(decisions):
            env.step(driver.act())
            now = apart(env.track, env.traffic.cars.s, env.track_position.s)
            passed += int(((ahead > 0) & (now <= 0) & (ahead < 20)).sum())
            ahead = now
            if number == 24:
                pictures.append(env.frames["center"])
        assert env.metrics()["collisions"] == 0
        env.close()
    assert passed >= 1
    np.testing.assert_array_equal(*pictures)


def test_a_slow_car_is_seen_and_one_that_is_hit_lets_pass() -> None:
    env = make_udacity_track("lake", slow_cars=1, randomize=False, recover=True)
    env.reset(seed=1)
    assert env.traffic is not None
    cars = env.traffic.cars
    seen = env.place(float(cars.s[0]) - 9.0, cars.offset, speed=11.0)[0].astype(int)
    cars.s[0] += 100.0
    assert 800 < (np.abs(env.look() - seen).max(axis=2) > 5).sum() < 3000
    cars.s[0] -= 100.0
    events: list[str] = []
    for _ in range(20):
        *_, info = env.step(Action(0.0, 1.0, 0.0))
        events += info["events"]
        if info["put_back"]:
            break
    assert "hit a slow car" in events and env.metrics()["collisions"] == env.metrics()["interventions"] == 1
    assert apart(env.track, cars.s, env.track_position.s)[0] < -10 and not env.car.touched()
    env.close()
