"""What may be wrong with a road: marks that have gone, stains, parked cars; and that nothing changes unasked."""

from __future__ import annotations

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.pure_pursuit import PurePursuit
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.envs.udacity_track.appearance import standard_appearance, varied_day
from nacdrive.envs.udacity_track.cameras import Cameras
from nacdrive.envs.udacity_track.extras import CAR_EVERY, FREE_START, draw_extras
from nacdrive.envs.udacity_track.meshes import tiled, tiled_quickly
from nacdrive.envs.udacity_track.options import RoadOptions
from nacdrive.envs.udacity_track.random_road import draw_road
from nacdrive.envs.udacity_track.track import load_track


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
            assert not env.car.touches()
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


def test_faults_that_make_no_sense_are_named() -> None:
    for wrong, sentence in (
        ({"missing_marks": 1.2}, "--missing-marks is 1.2"),
        ({"patches": -1}, "--patches is -1"),
        ({"parked_cars": 1000}, "--parked-cars is 1000"),
    ):
        with pytest.raises(UserError, match=sentence):
            make_udacity_track("lake", **wrong)


def test_days_vary_with_the_knob() -> None:
    days = {v: [varied_day(np.random.default_rng(seed), v) for seed in range(40)] for v in (0.0, 1.0)}
    assert all(day.houses == 0 and day.ambient < 0.66 and day.sun[2] > 0.3 for day in days[0.0])
    assert any(day.ambient > 0.8 for day in days[1.0]) and any(day.sun[2] < 0.28 for day in days[1.0])
    assert sum(day.leaves == (1.0, 0.62, 0.32) for day in days[1.0]) >= 2  # autumn


def test_geometry_that_is_made_quickly_gives_the_same_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    from nacdrive.envs.udacity_track import scene

    road, day = draw_road(5, 0.5, 0.5), standard_appearance()
    pictures = []
    for lay in (tiled, tiled_quickly):
        monkeypatch.setattr(scene, "tiled_quickly", lay)
        cameras = Cameras(("center",))
        cameras.enter(*scene.build_scene(road, day), scene.build_hood(day))
        point, heading = road.at(50.0)
        cameras.rig.set_pos(*point)
        cameras.rig.set_h(np.degrees(heading) - 90)
        cameras.sky.set_pos(*point)
        pictures.append(cameras.look()["center"])
        cameras.close()
    np.testing.assert_array_equal(*pictures)
