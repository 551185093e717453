"""The emergency stop by explicit times."""

from __future__ import annotations

import pytest

from nacdrive.common.action import FULL_BRAKE, Action
from nacdrive.common.emergency_stop import HOLD_S, STRAIGHTEN_S, EmergencyStop


def test_steering_is_held_then_straightened_then_the_car_is_braked() -> None:
    stop = EmergencyStop(0.0)
    stop.sound(Action(-0.8, 0.5, 0.0), 1.0)
    assert not stop.overdue(1.29) and stop.overdue(1.31)
    assert stop.fail("no decision", 2.0)
    assert stop.action(2.0 + HOLD_S) == Action(-0.8, 0.0, 0.0)
    half = stop.action(2.0 + HOLD_S + STRAIGHTEN_S / 2)
    assert (half.steering, half.throttle, half.brake) == (pytest.approx(-0.4), 0.0, 1.0)
    assert stop.action(10.0) == Action(0.0, 0.0, 1.0)


def test_one_emergency_has_one_beginning_and_ends_with_a_sound_decision() -> None:
    stop = EmergencyStop(0.0)
    assert stop.fail("a", 1.0) and not stop.fail("a", 1.2) and stop.fail("b", 1.3)
    # The clock of the emergency runs from its beginning, whatever else goes wrong meanwhile.
    assert stop.action(1.0 + HOLD_S + STRAIGHTEN_S) == Action(0.0, 0.0, 1.0)
    assert stop.sound(Action(0.1, 0.0, 0.0), 2.0) and stop.reason is None
    assert not stop.sound(Action(0.1, 0.0, 0.0), 2.1)


def test_a_new_drive_holds_no_old_steering() -> None:
    stop = EmergencyStop(0.0)
    stop.sound(Action(1.0, 0.0, 0.0), 0.0)
    stop.restart(5.0)
    stop.fail("no picture", 5.0)
    assert stop.action(5.0).steering == 0.0 and not stop.overdue(5.2)


def test_its_times_are_those_that_the_pages_name() -> None:
    stop = EmergencyStop()
    assert (HOLD_S, STRAIGHTEN_S, stop.limit_s, stop.began_s) == (0.3, 0.4, 0.3, 0.0)
    assert Action(0.0, 0.0, 1.0) == FULL_BRAKE and stop.reason is None


def test_the_limits_themselves_are_still_allowed() -> None:
    stop = EmergencyStop(0.0, limit_s=0.5)
    assert not stop.overdue(0.5) and stop.overdue(0.5 + 1e-9)
    stop.sound(Action(0.6, 1.0, 0.0), 0.0)
    stop.fail("no picture", 0.0)
    # Up to the last instant of holding the car rolls on.
    assert stop.action(HOLD_S) == Action(0.6, 0.0, 0.0) and stop.action(HOLD_S + 1e-9).brake == 1.0


def test_whoever_is_driven_anew_has_no_reason_to_stop() -> None:
    stop = EmergencyStop(1.0)
    stop.fail("no picture", 2.0)
    stop.restart(5.0)
    assert stop.reason is None and stop.began_s == 5.0 and not stop.overdue(5.3) and stop.overdue(5.31)
    assert not stop.sound(Action(0.0, 0.0, 0.0), 5.1), "nothing had failed"
