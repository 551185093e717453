"""What stands around a driver: pace, speed, noise of the wheel, the mixture of DAgger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from nacdrive.common.action import Action
from nacdrive.drivers.base import FollowExpert
from nacdrive.drivers.mixture import Mixture
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.speed_control import SpeedControl, SpeedController
from nacdrive.drivers.steering_noise import SteeringNoise
from nacdrive.envs.base import DrivingEnv, Frame, Info

FRAME = np.zeros((4, 4, 3), np.uint8)


class Continuous(DrivingEnv):
    name, step_s = "continuous", 0.08
    action_space = spaces.Box(-1, 1, (2,), np.float32)


class RealTime(Continuous):
    realtime = True


class Constant:
    name = "constant"

    def __init__(self, action: Action) -> None:
        self.action = action

    def reset(self, env: DrivingEnv) -> None:
        pass

    def act(self, frame: Frame, info: Info) -> Action:
        return self.action


class CountingPolicy:
    """In the place of a Policy: steers by the number of its decisions."""

    name = "counting"

    def __init__(self) -> None:
        self.steps = self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def step(self, frame: Frame, t_s: float, speed_mps: float | None = None) -> Action:
        self.steps += 1
        return Action(self.steps / 100, 0.0, 0.0)


def info(t_s: float, speed_mps: float = 5.0, **more: Any) -> Info:
    made: Info = {"t_s": t_s, "speed_mps": speed_mps, **more}  # type: ignore[typeddict-item]
    return made


@pytest.mark.parametrize(("pace_s", "steps"), [(0.0, 50), (0.08, 13), (0.02, 50)])
def test_a_policy_is_asked_at_its_pace_and_its_last_decision_holds(pace_s: float, steps: int) -> None:
    policy = CountingPolicy()
    driver = PolicyDriver(policy, pace_s)  # type: ignore[arg-type]
    driver.reset(Continuous())
    steering = [driver.act(FRAME, info(k * 0.02)).steering for k in range(50)]
    assert policy.steps == steps and steering == sorted(steering) and steering[-1] == steps / 100
    driver.reset(Continuous())
    assert driver.act(FRAME, info(0.0)).steering == (steps + 1) / 100, "a new episode is decided on at once"


def drive_at(env: DrivingEnv, gap_s: float, target_mps: float = 12.0) -> float:
    """Speed in m/s after a minute of a driver that decides every ``gap_s``."""
    driver = SpeedControl(Constant(Action(0.0, 0.0, 0.0)), SpeedController(target_mps))
    driver.reset(env)
    speed = 0.0
    for k in range(round(60 / gap_s)):
        action = driver.act(FRAME, info(k * gap_s, speed))
        speed = max(0.0, speed + (3.0 * action.throttle - 8.0 * action.brake - 0.05 * speed) * gap_s)
    return speed


def test_the_speed_is_held_and_the_steering_left_alone() -> None:
    driver = SpeedControl(Constant(Action(0.25, 0.0, 0.0)), SpeedController(10.0))
    driver.reset(Continuous())
    assert driver.act(FRAME, info(0.0, 0.0)) == Action(0.25, 1.0, 0.0)
    assert drive_at(Continuous(), 0.08) == pytest.approx(12.0, abs=0.5)


def test_where_time_passes_by_itself_whoever_decides_rarely_goes_slowly() -> None:
    assert drive_at(RealTime(), 0.08) == pytest.approx(12.0, abs=0.5)
    assert drive_at(RealTime(), 0.8) < 6.0
    assert drive_at(RealTime(), 2.0) < 4.0
    assert drive_at(Continuous(), 0.8) > 8.0, "a simulator that waits can be driven at any speed"


def naive_kicks(strength: float, gap_s: float, rng: np.random.Generator) -> Callable[[float], float]:
    """What the recordings of the built-in tracks were made with, written down once more."""
    state = {"left": 0, "size": 0.0, "tremble": 0.0}

    def kick(speed: float) -> float:
        state["tremble"] = 0.8 * state["tremble"] + 0.6 * 0.04 * float(rng.normal())
        if state["left"] > 0:
            state["left"] -= 1
        elif rng.random() < gap_s / 3.0:
            state["left"] = int(rng.integers(4, 10))
            turn = float(rng.uniform(-0.35, 0.35))
            state["size"] = float(np.clip(turn * 2.87 / (max(speed, 3.0) * state["left"] * gap_s * 0.436), -0.8, 0.8))
        else:
            state["size"] = 0.0
        return strength * (state["size"] + state["tremble"])

    return kick


def test_noise_of_the_wheel_is_that_of_the_shipped_recordings() -> None:
    driver = SteeringNoise(Constant(Action(0.2, 0.5, 0.0)), 1.0, 0.08, np.random.default_rng([3, 7]))
    kicks = naive_kicks(1.0, 0.08, np.random.default_rng([3, 7]))
    driver.reset(Continuous())
    for k in range(500):
        speed = 2.0 + k % 10
        action = driver.act(FRAME, info(0.08 * k, speed))
        assert action.steering == float(np.clip(0.2 + kicks(speed), -1, 1)) and action.throttle == 0.5


def test_no_noise_changes_nothing_but_draws_the_same_numbers() -> None:
    rngs = [np.random.default_rng(1), np.random.default_rng(1)]
    for strength, rng in zip((0.0, 1.0), rngs, strict=True):
        driver = SteeringNoise(Constant(Action(0.2, 0.5, 0.0)), strength, 0.08, rng)
        driver.reset(Continuous())
        steering = [driver.act(FRAME, info(0.08 * k)).steering for k in range(200)]
        assert (set(steering) == {0.2}) == (strength == 0.0)
    assert rngs[0].random() == rngs[1].random()


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_expert_drives_its_share_in_stretches(beta: float) -> None:
    driver = Mixture(Constant(Action(0.5, 0.0, 0.0)), beta, np.random.default_rng(0))
    driver.reset(Continuous())
    expert = Action(-0.5, 0.7, 0.1)
    actions = [driver.act(FRAME, info(0.0, expert_action=expert)) for _ in range(5000)]
    share = np.mean([action.steering == -0.5 for action in actions])
    assert share == pytest.approx(beta, abs=0.08) and driver.expert_share == pytest.approx(share)
    assert {(action.throttle, action.brake) for action in actions} == {(0.7, 0.1)}, "pedals are the expert's"
    if 0 < beta < 1:
        changes = np.sum(np.diff([action.steering for action in actions]) != 0)
        # Drawn anew every tenth decision; half of the draws or so change nothing.
        assert 100 < changes < 350


def test_discrete_choices_are_mixed_whole() -> None:
    own, expert = Action(1.0, 0.0, 0.0, 1), Action(0.0, 1.0, 0.0, 3)
    driver = Mixture(Constant(own), 0.0, np.random.default_rng(0), expert_first=True)
    driver.reset(Continuous())
    actions = [driver.act(FRAME, info(0.0, expert_action=expert)) for _ in range(100)]
    assert actions[0] == expert and actions[-1] == own and set(map(id, actions)) == {id(own), id(expert)}


def test_whoever_follows_the_expert_needs_one() -> None:
    assert FollowExpert("ppo").act(FRAME, info(0.0, expert_action=Action(0, 1, 0))) == Action(0, 1, 0)
    with pytest.raises(RuntimeError, match="no expert"):
        FollowExpert().act(FRAME, info(0.0))


def test_a_kick_turns_the_car_by_a_bounded_angle_at_every_speed() -> None:
    for speed in (3.0, 8.0, 13.0):
        noise = SteeringNoise(Constant(Action(0.0, 0.5, 0.0)), 1.0, 0.08, np.random.default_rng(0))
        offsets = np.array([noise.offset(speed) for _ in range(5000)])
        # Between kicks the wheel trembles alone, by far less than a kick.
        kicks = np.where(np.abs(offsets) > 0.15, offsets, 0.0)
        turn = speed / 2.87 * np.tan(np.radians(25 * kicks)) * 0.08
        edges = np.flatnonzero(np.diff(np.r_[0, kicks != 0, 0]))
        turns = [turn[a:b].sum() for a, b in edges.reshape(-1, 2)]
        assert len(turns) > 50
        assert 0.2 < np.abs(turns).max() < 0.8
