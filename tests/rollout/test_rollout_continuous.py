"""The loop where the world takes steering and throttle: the contract that the lake track keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from nacdrive.common.action import Action
from nacdrive.drivers.tick import Tick
from nacdrive.rollout.old_loop import Frame, drive_episode

ROAD_HALF_M, STEP_S = 4.0, 0.05


class Bend(gymnasium.Env[Frame, Any]):
    """A car on a straight road, a bicycle model: steering turns it, throttle and brake change its speed."""

    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, steps: int = 200) -> None:
        self.steps = steps
        self.taken: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Frame, dict[str, Any]]:
        self.count, self.x, self.y, self.heading, self.speed, self.taken = 0, 0.0, 0.0, 0.0, 8.0, []
        return np.zeros((160, 320, 3), np.uint8), self.info()

    def step(self, action: np.ndarray) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        self.taken.append(action)
        steering, push = map(float, action)
        self.speed = max(0.0, self.speed + (2.0 if push > 0 else 8.0) * push * STEP_S)
        self.heading += steering * 0.15 * self.speed * STEP_S
        self.x += np.cos(self.heading) * self.speed * STEP_S
        self.y += np.sin(self.heading) * self.speed * STEP_S
        self.count += 1
        return np.zeros((160, 320, 3), np.uint8), 1.0, False, self.count >= self.steps, self.info()

    def info(self) -> dict[str, Any]:
        off = abs(self.y) > ROAD_HALF_M
        return {
            "t_s": self.count * STEP_S,
            "speed_mps": self.speed,
            "lane_offset_m": self.y,
            "off_road": off,
            "wheels_off": float(off),
            "progress": self.x / 100,
            "laps": int(self.x // 40),
        }


class Steering:
    """Drives by a rule of the decision's number."""

    def __init__(self, rule: Callable[[int], Action]) -> None:
        self.rule, self.count = rule, -1

    def reset(self) -> None:
        self.count = -1

    def step(self, frame: Frame, t_s: float, speed_mps: float | None = None) -> Action:
        self.count += 1
        return self.rule(self.count)

    def neurons(self) -> Mapping[str, Any]:
        return {}


def test_steering_and_throttle_reach_the_world_and_brakes_are_negative() -> None:
    rule = [Action(0.25, 0.5, 0.0), Action(-0.5, 0.0, 0.75), Action(1.5, 2.0, 0.0)]
    world = Bend(3)
    drive_episode(world, Steering(lambda k: rule[k]), 1)
    assert all(taken.dtype == np.float32 for taken in world.taken)
    assert np.array_equal(world.taken, np.array([[0.25, 0.5], [-0.5, -0.75], [1.0, 1.0]], np.float32))


def test_lane_offset_laps_and_leaving_the_road_are_told() -> None:
    ticks: list[Tick] = []
    result = drive_episode(Bend(150), Steering(lambda k: Action(0.02, 0.2, 0.0)), 1, listeners=[ticks.append])
    assert ticks[0].lane_offset_m == 0.0 and ticks[-1].lane_offset_m > ROAD_HALF_M
    said = [event for tick in ticks for event in tick.events]
    assert said.count("off road") == 1 and "lap finished" in said
    left = next(k for k, tick in enumerate(ticks) if "off road" in tick.events)
    # The event follows the decision: the frame after it is the first one beside the road.
    assert abs(ticks[left].lane_offset_m or 0) <= ROAD_HALF_M < abs(ticks[left + 1].lane_offset_m or 0)
    assert result.finished_lap and 0 < result.grass_share < 1
    assert result.tiles_visited > 0.4 and result.expert_agreement is None


def test_a_failing_driver_holds_the_course_then_straightens_and_brakes_until_the_car_stands() -> None:
    world, ticks = Bend(), []
    rule = lambda k: Action(-0.4, 0.3, 0.0) if k < 10 else Action(float("nan"), 0.3, 0.0)  # noqa: E731
    result = drive_episode(world, Steering(rule), 1, listeners=[ticks.append])
    assert result.failure is not None and "not finite for steering" in result.failure
    stop = np.array(world.taken[10:])
    assert stop[:2] == pytest.approx(np.array([[-0.4, 0.0]] * 2)), "the course is held first, without throttle"
    assert np.all(np.diff(stop[1:6, 0]) > 0) and not stop[6:, 0].any(), "then the wheel is straightened by degrees"
    assert np.all(stop[2:, 1] == -1), "and the car brakes"
    assert ticks[-1].events == ("stopped safely",) and (ticks[-1].speed_mps or 0) < 0.5


def test_a_world_that_takes_something_else_is_refused() -> None:
    class Odd(Bend):
        action_space = spaces.Box(-1, 1, (3,), np.float32)

    with pytest.raises(TypeError, match="steering and throttle"):
        drive_episode(Odd(3), Steering(lambda k: Action(0, 0, 0)), 1)
