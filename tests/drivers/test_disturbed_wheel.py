"""A wheel that is held wrong now and then, a bad beginning, and a speed that is kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.drivers.base import Driver
from nacdrive.drivers.mixture import Mixture
from nacdrive.drivers.speed_control import SpeedController
from nacdrive.drivers.steering_noise import SteeringNoise

BLANK = np.zeros((2, 2, 3), np.uint8)


class Straight(Driver):
    name = "straight"

    def act(self, frame: Any, info: Any) -> Action:
        return Action(0.1, 0.4, 0.2)


def offsets(strength: float, speed: float, steps: int = 6000, step_s: float = 0.05) -> np.ndarray:
    noise = SteeringNoise(Straight(), strength, step_s, np.random.default_rng(0))
    return np.array([noise.offset(speed) for _ in range(steps)])


def test_a_wheel_trembles_and_is_kicked_every_three_seconds_for_less_than_a_second() -> None:
    added = offsets(1.0, 10.0)
    kicked = np.abs(added) > 0.2
    begins = np.flatnonzero(np.diff(kicked.astype(int)) == 1)
    # 300 s; the smallest kicks drown in what trembles.
    assert 40 < len(begins) < 110
    # Between kicks: autoregressive, 0.6 * 0.04 / sqrt(1 - 0.8^2) = 0.04.
    assert 0.03 < np.median(np.abs(added)) * 1.48 < 0.09
    assert np.abs(added).max() < 0.8 + 0.2
    np.testing.assert_allclose(offsets(0.5, 10.0), added / 2)
    assert (offsets(0.0, 10.0) == 0).all()


def test_a_kick_turns_the_car_alike_at_any_speed_and_a_standing_one_as_at_three_metres_a_second() -> None:
    slow, fast = np.abs(offsets(1.0, 6.0)).max(), np.abs(offsets(1.0, 24.0)).max()
    assert fast < 0.6 * slow
    np.testing.assert_array_equal(offsets(1.0, 0.0), offsets(1.0, 3.0))


def test_where_no_speed_is_told_the_wheel_is_disturbed_as_of_a_standing_car() -> None:
    steering = []
    for info in ({}, {"speed_mps": None}, {"speed_mps": 0.0}):
        noise = SteeringNoise(Straight(), 1.0, 0.05, np.random.default_rng(0))
        steering.append([noise.act(BLANK, info).steering for _ in range(200)])  # type: ignore[arg-type]
    assert steering[0] == steering[1] == steering[2]


def test_a_disturbed_wheel_is_within_its_stops_and_the_pedals_stay() -> None:
    noise = SteeringNoise(Straight(), 100.0, 0.05, np.random.default_rng(0))
    actions = [noise.act(BLANK, {"speed_mps": 5.0}) for _ in range(50)]  # type: ignore[typeddict-item]
    assert {abs(action.steering) for action in actions} >= {1.0}
    assert all(-1 <= a.steering <= 1 and (a.throttle, a.brake) == (0.4, 0.2) for a in actions)


def test_a_mixture_lets_the_expert_drive_its_share_in_stretches_of_ten() -> None:
    mixture = Mixture(Straight(), 0.3, np.random.default_rng(0), expert_first=False)
    env: Any = None
    mixture.reset(env)
    expert = Action(-0.5, 1.0, 0.0)
    steering = [mixture.act(BLANK, {"expert_action": expert}) for _ in range(5000)]  # type: ignore[typeddict-item]
    by_expert = np.array([action.steering == -0.5 for action in steering])
    assert mixture.decisions == 5000 and mixture.by_expert == by_expert.sum()
    assert mixture.expert_share == by_expert.mean() == pytest.approx(0.3, abs=0.06)
    changes = int(np.abs(np.diff(by_expert.astype(int))).sum())
    # Drawn anew at one decision of ten, and then another in 2 x 0.3 x 0.7 of the cases.
    assert changes == pytest.approx(5000 * 0.1 * 0.42, rel=0.2)
    # A driver that steers alone gets the expert's pedals.
    assert all((action.throttle, action.brake) == (1.0, 0.0) for action in steering)
    own = Mixture(Straight(), 0.0, np.random.default_rng(0), expert_first=False, pedals=True)
    own.reset(env)
    assert own.act(BLANK, {"expert_action": expert}) == Action(0.1, 0.4, 0.2)  # type: ignore[typeddict-item]
    assert own.expert_share == 0


def test_three_metres_a_second_too_slow_are_nearly_full_throttle_and_too_fast_is_braked_beyond_a_margin() -> None:
    def pedals(speed: float, steering: float = 0.0, limit: float = math.inf) -> tuple[float, float]:
        return SpeedController(10.0).pedals(speed, 0.0, steering, limit)

    assert pedals(9.0) == pytest.approx((0.35, 0)) and pedals(7.0) == (1, 0)
    assert pedals(10.0) == (0, 0) and pedals(10.6) == (0, 0)
    assert pedals(11.7) == pytest.approx((0, 0.08)) and pedals(100.0) == (0, 1)
    # Half as fast at full steering, whichever way; and never faster than a limit.
    assert pedals(4.0, 1.0) == pytest.approx((0.35, 0)) == pedals(4.0, -3.0)
    assert pedals(6.5, 0.5) == pytest.approx((0.35, 0)) and pedals(2.0, 0.0, 3.0) == pytest.approx((0.35, 0))


def test_what_is_missing_for_long_is_made_up_for_as_far_as_the_throttle_goes() -> None:
    controller = SpeedController(10.0)
    assert controller.pedals(9.0, 0.0)[0] == pytest.approx(0.35)
    # 0.1 per metre per second and second, of at most 0.2 s between two decisions.
    controller.pedals(9.0, 0.1)
    assert controller.pedals(9.0, 0.1)[0] == pytest.approx(0.35 + 0.01)
    controller.pedals(9.0, 5.0)
    assert controller.pedals(9.0, 4.0)[0] == pytest.approx(0.35 + 0.01 + 0.02)
    for _ in range(5):
        controller.pedals(0.0, 9.0)
    assert controller.pedals(9.0, 9.0)[0] == pytest.approx(0.38), "full throttle adds nothing up"
    controller.reset()
    assert controller.pedals(9.0, 9.0)[0] == pytest.approx(0.35)
