from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.box2d import car_racing

from nacdrive.common.errors import UserError
from nacdrive.drivers import load_driver, load_expert
from nacdrive.drivers.racing_line import (
    RacingLine,
    RacingLineParameters,
    racing_line,
    speed_plan,
    with_margin,
)
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.envs.carracing.fast_renderer import FastCarRacing
from nacdrive.envs.carracing.tyres import MASS
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.rollout.drive import Drive
from tests.helpers.nightly import daily

SEEDS = (1_000_000, 1_000_001, 1_000_002)


@pytest.fixture(scope="module")
def world() -> FastCarRacing:
    made = FastCarRacing(continuous=True)
    made.drawing = False
    return made


@pytest.mark.parametrize("seed", daily(SEEDS, [str(SEEDS[0])]))
def test_drives_the_whole_lap_with_hardly_a_wheel_on_the_grass(world: FastCarRacing, seed: int) -> None:
    assert lap(world, seed, RacingLine(), 2) > 910


def test_with_a_margin_a_lap_is_driven_at_ten_decisions_a_second(world: FastCarRacing) -> None:
    assert lap(world, SEEDS[0], with_margin(), 5) > 900


@pytest.mark.parametrize("speed", [0.0, 30.0])
def test_as_seen_a_car_that_drives_the_wrong_way_is_led_on_that_way(speed: float) -> None:
    options = {"renderer": "fast", "max_frames": 300, "start_heading": 180.0, "start_speed": speed}
    for driver, turns in (("AsSeen", False), ("with_margin", True)):
        with Drive(driver=f"nacdrive.drivers.racing_line:{driver}", options=options).open(SEEDS[0]) as opened:
            ticks = list(opened)
        # Tiles count either way round.
        assert ticks[-1].progress > 0.15 and (ticks[0].action.steering == -1.0) == turns


@pytest.mark.parametrize(("offset", "heading"), [(55.0, 1.57), (90.0, 0.0)])
def test_as_seen_where_no_road_is_in_sight_it_circles_until_one_is(offset: float, heading: float) -> None:
    options = {"renderer": "fast", "max_frames": 700}
    with Drive(driver="nacdrive.drivers.racing_line:AsSeen", options=options).open(SEEDS[0]) as opened:
        opened.start = {"offset": offset, "heading": heading, "speed": 15.0}
        ticks = list(opened)
    assert ticks[-1].progress > 0.1
    assert sum(abs(tick.action.steering) == 0.05 and tick.speed_mps < 41 for tick in ticks) > 20


def test_as_seen_on_the_road_it_is_the_driver_with_a_margin() -> None:
    first, second = (
        Drive(driver=f"nacdrive.drivers.racing_line:{one}", options={"renderer": "fast", "max_frames": 200})
        for one in ("AsSeen", "with_margin")
    )
    with first.open(SEEDS[1]) as its, second.open(SEEDS[1]) as others:
        mine, yours = list(its), list(others)
    assert mine[0].action.throttle == 0.2 > yours[0].action.throttle > 0, "more gas from rest"
    assert mine[-1].episode_return == pytest.approx(yours[-1].episode_return, abs=4)


@pytest.mark.parametrize("hertz", [5.0, 25.0])
def test_at_frame_rate_it_is_the_slower_the_rarer_the_pictures(hertz: float) -> None:
    options, camera = {"renderer": "fast", "max_frames": 500}, CameraNoise(rate=(hertz, hertz))
    drives = []
    for name in ("AtFrameRate", "AsSeen"):
        with Drive(driver=f"nacdrive.drivers.racing_line:{name}", options=options, camera=camera).open(SEEDS[0]) as one:
            drives.append(list(one))
    mine, others = drives
    if hertz == 25.0:
        assert [tick.action for tick in mine] == [tick.action for tick in others]
    else:
        assert max(tick.speed_mps for tick in mine) < 0.9 * max(tick.speed_mps for tick in others)
        assert mine[-1].progress > 0.4


def lap(world: FastCarRacing, seed: int, driver: RacingLine, repeat: int) -> float:
    """The return of a whole lap, with hardly a wheel on the grass."""
    world.reset(seed=seed)
    driver.reset(world)
    total, frames, grass, ended = 0.0, 0, 0.0, False
    while not ended and frames < 1000:
        action = driver.act()
        native = np.array([action.steering, action.throttle, action.brake], dtype=np.float32)
        assert world.action_space.contains(native)
        for _ in range(repeat):
            _, reward, ended, _, info = world.step(native)
            total, frames, grass = total + reward, frames + 1, grass + world.grass_share()
            if ended:
                break
    assert info["lap_finished"] and grass / frames < 0.003
    return total


@pytest.mark.parametrize("seed", [900_000, 900_003])
def test_a_car_that_stands_beside_the_road_is_brought_back(seed: int) -> None:
    """At full lock, with all of the gas, a car on grass turns on the spot for good."""
    start = {"start_offset": 12.0 if seed % 2 else -12.0, "start_heading": 90.0}
    teacher = Drive(driver="racing-line", options={"renderer": "fast", "repeat": 4, "max_frames": 480, **start})
    with teacher.open(seed) as opened:
        ticks = list(opened)
    assert ticks[0].info["wheels_off"] == 1 and ticks[-1].progress is not None and ticks[-1].progress > 0.05


def test_the_mass_it_reckons_with_is_that_of_the_car(world: FastCarRacing) -> None:
    world.reset(seed=1)
    assert world.car is not None
    assert world.car.hull.mass + sum(wheel.mass for wheel in world.car.wheels) == pytest.approx(MASS, abs=1e-3)


def test_the_line_is_the_one_of_least_bending_within_the_road(world: FastCarRacing) -> None:
    from scipy.optimize import minimize

    world.reset(seed=SEEDS[0])
    track, p = np.array(world.track), RacingLineParameters()
    line = racing_line(track, p)
    offsets = ((line - track[:, 2:4]) * np.stack([np.cos(track[:, 1]), np.sin(track[:, 1])], axis=1)).sum(axis=1)
    room = car_racing.TRACK_WIDTH - p.margin
    assert np.abs(offsets).max() <= room + 1e-9 and np.abs(offsets).max() > 0.9 * room
    across = np.stack([np.cos(track[:, 1]), np.sin(track[:, 1])], axis=1)
    spacing = np.linalg.norm(np.roll(track[:, 2:4], -1, axis=0) - track[:, 2:4], axis=1)[:, None]
    spacing = np.maximum(spacing, car_racing.TRACK_DETAIL_STEP / 2)

    def cost(x: np.ndarray) -> tuple[float, np.ndarray]:
        """What is minimised, written down once more, and its gradient."""
        points = track[:, 2:4] + x[:, None] * across
        slope = (np.roll(points, -1, axis=0) - points) / spacing
        bend = slope - np.roll(slope, 1, axis=0)
        by_slope = 2 * (bend - np.roll(bend, -1, axis=0)) + 2 * p.shortness * slope
        by_point = np.roll(by_slope / spacing, 1, axis=0) - by_slope / spacing
        return float((bend**2).sum() + p.shortness * (slope**2).sum()), (by_point * across).sum(axis=1)

    best = minimize(cost, offsets, jac=True, method="L-BFGS-B", bounds=[(-room, room)] * len(track))
    assert cost(offsets)[0] == pytest.approx(best.fun, rel=1e-3)
    assert cost(offsets)[0] < 0.9 * cost(np.zeros(len(track)))[0]


def test_speeds_are_those_that_the_tyres_allow() -> None:
    p = RacingLineParameters()
    angle = np.linspace(0, 2 * math.pi, 200, endpoint=False)
    circle = 40 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    speeds, curvature, along = speed_plan(circle, p)
    assert curvature == pytest.approx(1 / 40, rel=1e-3) and along[-1] == pytest.approx(2 * math.pi * 40, rel=1e-3)
    assert speeds == pytest.approx(math.sqrt(p.grip * 40), rel=1e-3)
    oval = np.concatenate(
        [circle[:100] + np.array((0, 200)), np.stack([np.full(200, -40.0), np.linspace(200, 0, 200)], axis=1)]
    )
    oval = np.concatenate([oval, circle[100:], np.stack([np.full(200, 40.0), np.linspace(0, 200, 200)], axis=1)])
    speeds, _, along = speed_plan(oval, p)
    change = np.diff(speeds**2) / (2 * np.diff(along[:-1]).clip(1e-3))
    moving = np.diff(along[:-1]) > 0.5
    assert change[moving].max() <= p.drive * 1.001 and change[moving].min() >= -p.braking * 1.001
    assert speeds.max() > 1.05 * speeds.min()


def test_it_is_found_by_name_and_drives_the_environment_through_actions() -> None:
    driver: Any = load_driver("racing-line")
    env = make_carracing(renderer="fast", continuous=True, repeat=driver.needs.repeat)
    frame, info = env.reset(seed=4)
    driver.reset(env)
    for _ in range(60):
        frame, _, terminated, _, info = env.step(driver.act(frame, info))
    assert not terminated and info["speed_mps"] > 25 and not info["off_road"]


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="reset"):
        RacingLine().act()
    with pytest.raises(UserError, match="let somebody else drive udacity-track"):
        RacingLine().reset(make_udacity_track(randomize=False))
    with pytest.raises(UserError, match="let somebody else drive CartPoleEnv"):
        RacingLine().reset(gymnasium.make("CartPole-v1"))
    with pytest.raises(UserError, match="give CarRacing continuous"):
        RacingLine().reset(make_carracing(renderer="fast"))
    with pytest.raises(UserError, match="racing-line has continuous actions"):
        load_expert("racing-line")
