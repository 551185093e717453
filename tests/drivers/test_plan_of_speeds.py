"""How fast the tyres allow a line to be driven, worked out on lines that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nacdrive.drivers.pure_pursuit import ContinuousPursuit, DiscretePursuit
from nacdrive.drivers.racing_line import RacingLineParameters, below_bound, cautious, speed_plan, with_margin

USUAL = RacingLineParameters()


def circle(radius: float, count: int = 400) -> np.ndarray:
    angle = 2 * np.pi * np.arange(count) / count
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def test_a_circle_is_driven_at_the_speed_that_its_grip_allows() -> None:
    limits, curvature, along = speed_plan(circle(20), USUAL)
    assert limits == pytest.approx(math.sqrt(214 * 20), rel=1e-3) and curvature == pytest.approx(1 / 20, rel=1e-3)
    assert len(along) == 401 and along[0] == 0 and along[-1] == pytest.approx(2 * math.pi * 20, rel=1e-3)
    right = speed_plan(circle(20)[::-1], USUAL)[1]
    assert right == pytest.approx(-1 / 20, rel=1e-3), "positive to the left"
    assert speed_plan(circle(1000), USUAL)[0] == pytest.approx(USUAL.top_speed)


def test_before_a_bend_a_car_brakes_and_behind_it_gains_speed_more_slowly() -> None:
    # Two straights of 400 and half circles of 20 around them.
    straight = np.arange(0.0, 400.0, 2.0)
    turn = np.arange(0, np.pi, 0.1)
    line = np.concatenate([
        np.stack([straight, np.full_like(straight, -20)], 1),
        np.stack([400 + 20 * np.sin(turn), -20 * np.cos(turn)], 1),
        np.stack([400 - straight, np.full_like(straight, 20)], 1),
        np.stack([-20 * np.sin(turn), 20 * np.cos(turn)], 1),
    ])  # fmt: skip
    limits, _, along = speed_plan(line, USUAL)
    slow = math.sqrt(214 * 20)
    assert limits.min() == pytest.approx(slow, rel=0.02) and limits.max() <= USUAL.top_speed
    squares = np.diff(limits[:200] ** 2) / (2 * np.diff(along[:200]))
    # On the straight: 40.5 to gain, 170 to lose, and in between the highest speed.
    assert squares.max() == pytest.approx(40.5, rel=0.02) and squares.min() == pytest.approx(-170, rel=0.02)
    gaining, losing = (squares > 1).sum(), (squares < -1).sum()
    assert gaining > 3 * losing > 0


def test_the_drivers_are_as_they_were_tuned() -> None:
    assert RacingLineParameters(1.87, 0.00468, 214, 40.5, 170, 112, 4.25, 0.1325, 0.0541, 0.0607, 1.006, 0.119) == USUAL
    assert cautious().parameters == RacingLineParameters(grip=80, drive=30, braking=70, top_speed=45)
    assert below_bound().parameters == RacingLineParameters(top_speed=96)
    assert with_margin().parameters == RacingLineParameters(grip=171, braking=136, top_speed=100)
    assert DiscretePursuit() == DiscretePursuit(9.3, 0.335, 0.167, 0.087, 0.71, 395, 104, 3.9)
    assert ContinuousPursuit() == ContinuousPursuit(3.5, 0.45, 7, 5, 13.4, 1, 0.12)
