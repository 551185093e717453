"""The speed controller on a simple car: it gets there, stays there, brakes downhill, and slows down in bends."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from nacdrive.common.action import Action
from nacdrive.drivers.speed_control import SpeedControl, SpeedController, at_speed
from nacdrive.envs.base import DrivingEnv, Frame, Info

STEP_S = 0.02
FRAME = np.zeros((4, 4, 3), np.uint8)


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


def test_throttle_is_proportional_to_what_is_missing_and_grows_by_a_tenth_per_metre() -> None:
    controller = SpeedController(10.0)
    # 0.35 per m/s that is missing, at first alone.
    assert controller.pedals(9.0, 1.0) == (pytest.approx(0.35), 0.0)
    # Then 0.1 per m/s and second; what is added up counts from the next decision on.
    assert controller.pedals(9.0, 1.1) == (pytest.approx(0.35), 0.0)
    assert controller.pedals(9.0, 1.2) == (pytest.approx(0.36), 0.0)
    assert controller.pedals(9.0, 1.2) == (pytest.approx(0.37), 0.0), "no time, nothing added"
    # A pause counts as 0.2 s, a clock that runs back as none.
    assert controller.pedals(9.0, 60.0)[0] == pytest.approx(0.37)
    assert controller.pedals(9.0, 50.0)[0] == pytest.approx(0.39)
    assert controller.pedals(9.0, 50.0)[0] == pytest.approx(0.39)
    controller.reset()
    assert controller.pedals(9.0, 99.0)[0] == pytest.approx(0.35), "a new drive begins with nothing"
    assert controller.pedals(9.0, 99.0)[0] == pytest.approx(0.35)


@pytest.mark.parametrize(
    ("speed", "throttle", "brake"),
    [(0.0, 1.0, 0.0), (10.0, 0.0, 0.0), (10.69, 0.0, 0.0), (11.7, 0.0, 0.08), (12.7, 0.0, 0.16), (30.0, 0.0, 1.0)],
)
def test_a_small_excess_is_left_to_coasting_and_a_larger_one_braked_by_degrees(speed, throttle, brake) -> None:
    assert SpeedController(10.0).pedals(speed, 0.0) == (pytest.approx(throttle), pytest.approx(brake, abs=1e-9))


def test_the_target_of_the_moment_is_the_bends_or_the_limit() -> None:
    # Half of it at full steering by default; steering beyond the end of its range is full steering.
    for steering, missing in ((0.0, 2.0), (-0.1, 1.5), (0.1, 1.5), (1.0, -3.0), (-3.0, -3.0)):
        throttle, brake = SpeedController(10.0).pedals(8.0, 0.0, steering)
        assert throttle == pytest.approx(max(0.0, 0.35 * missing)) and (brake > 0) == (missing < 0)
    assert SpeedController(10.0, bend=0.0).pedals(8.0, 0.0, 1.0)[0] == pytest.approx(0.7)
    assert SpeedController(10.0).pedals(8.0, 0.0, limit_mps=9.0)[0] == pytest.approx(0.35)
    assert SpeedController(10.0).pedals(8.0, 0.0, limit_mps=11.0)[0] == pytest.approx(0.7)


@given(
    speeds=st.lists(st.floats(0, 30), min_size=1, max_size=60),
    gaps=st.lists(st.floats(0, 3), min_size=60, max_size=60),
    steering=st.floats(-1, 1),
)
def test_what_is_added_up_never_leaves_the_range_of_the_pedal(speeds, gaps, steering) -> None:
    controller, t_s = SpeedController(9.0), 0.0
    for speed, gap in zip(speeds, gaps, strict=False):
        t_s += gap
        controller.pedals(speed, t_s, steering)
        assert 0.0 <= controller._integral < 1.0


class Straight:
    name = "straight"

    def reset(self, env: DrivingEnv) -> None:
        pass

    def act(self, frame: Frame, info: Info) -> Action:
        return Action(0.0, 0.5, 0.5)


class RealTime(DrivingEnv):
    name, step_s, realtime = "real time", 0.1, True
    action_space = spaces.Box(-1, 1, (2,), np.float32)


def test_a_speed_is_given_in_miles_per_hour_or_not_at_all() -> None:
    driver = Straight()
    assert at_speed(driver, None) is driver
    controlled = at_speed(driver, 25.0)
    assert isinstance(controlled, SpeedControl) and controlled.controller.target_mps == pytest.approx(11.176)


def test_four_metres_are_driven_between_two_decisions_and_no_more() -> None:
    driver = SpeedControl(Straight(), SpeedController(100.0))
    driver.reset(RealTime())
    assert driver._speed_limit(0.0) == pytest.approx(4000.0), "a new drive knows no gap yet"
    limits = [driver._speed_limit(0.5 * (k + 1)) for k in range(60)]
    # The mean of the gaps moves by a fifth at a time: 0.1 s after the first decision, and 0.5 s in the end.
    assert limits[:2] == pytest.approx([4.0 / 0.1, 4.0 / 0.18]) and limits[-1] == pytest.approx(8.0, rel=1e-4)
    # However long a pause is, it counts as 5 s.
    assert driver._speed_limit(1000.0) == pytest.approx(4.0 / (0.8 * 0.5 + 0.2 * 5.0), rel=1e-4)
    driver.reset(RealTime())
    # Amid a drive, whose time goes on, as little.
    assert driver._speed_limit(1000.5) == pytest.approx(4000.0)
    assert driver._speed_limit(1001.0) == pytest.approx(40.0)


def test_an_unknown_speed_counts_as_standing() -> None:
    driver = SpeedControl(Straight(), SpeedController(2.0))
    driver.reset(RealTime())
    for unknown in ({}, {"speed_mps": None}):
        info: Info = {"t_s": 0.0, **unknown}  # type: ignore[typeddict-item]
        assert driver.act(FRAME, info).throttle == pytest.approx(0.7)
