"""The speed controller on a simple car: it gets there, stays there, brakes downhill, and slows down in bends."""

from __future__ import annotations

import pytest

from nacdrive.drivers.speed_control import SpeedController

STEP_S = 0.02


def drive(controller: SpeedController, seconds: float, speed: float = 0.0, slope: float = 0.0, steering: float = 0.0):
    """Speeds of a car of the Udacity car's power, drag and brakes; ``slope`` is an acceleration in m/s2."""
    speeds = []
    for step in range(int(seconds / STEP_S)):
        throttle, brake = controller.pedals(speed, step * STEP_S, steering)
        assert 0 <= throttle <= 1 and 0 <= brake <= 1 and not (throttle and brake)
        speed = max(0.0, speed + (5.9 * throttle - min(9.0, 200 * brake) - 0.1 * speed + slope) * STEP_S)
        speeds.append(speed)
    return speeds


@pytest.mark.parametrize("target", [4.0, 9.0, 13.0])
def test_it_gets_there_without_overshooting_and_stays(target: float) -> None:
    speeds = drive(SpeedController(target), 30)
    assert max(speeds) < target * 1.06 + 0.1
    assert speeds[-1] == pytest.approx(target, abs=0.1)


@pytest.mark.parametrize("slope", [-2.0, 2.5])
def test_it_holds_uphill_and_brakes_downhill(slope: float) -> None:
    speeds = drive(SpeedController(9.0), 40, slope=slope)
    assert speeds[-1] == pytest.approx(9.0, abs=1.0)


def test_too_fast_is_braked() -> None:
    _, brake = SpeedController(5.0).pedals(13.0, 0.0)
    assert brake > 0.3
    assert drive(SpeedController(5.0), 2, speed=13.0)[-1] < 7


def test_it_does_not_wind_up_while_the_car_is_held() -> None:
    controller = SpeedController(9.0)
    for step in range(1000):
        controller.pedals(0.0, step * STEP_S)
    assert max(drive(controller, 20)) < 10


def test_bends_are_taken_slower() -> None:
    assert drive(SpeedController(10.0, bend=0.5), 40, steering=-1.0)[-1] == pytest.approx(5.0, abs=0.2)


def test_time_that_stands_still_or_jumps_is_harmless() -> None:
    controller = SpeedController(9.0)
    for t_s in (5.0, 5.0, 3.0, 1000.0):
        throttle, brake = controller.pedals(8.9, t_s)
        assert 0 <= throttle < 0.2 and brake == 0
