"""The safety stop by explicit times, the simulator's pedal, and who is driven."""

from __future__ import annotations

import pytest

from nacdrive.common.action import Action
from nacdrive.envs.udacity.connections import RELEASE, Car, Cars
from nacdrive.envs.udacity.safety import HOLD_S, STRAIGHTEN_S, Safety


def test_steering_is_held_then_straightened_then_the_car_is_braked() -> None:
    safety = Safety(0.0)
    safety.sound(Action(-0.8, 0.5, 0.0), 1.0)
    assert not safety.overdue(1.29) and safety.overdue(1.31)
    assert safety.fail("no decision", 2.0)
    assert safety.action(2.0 + HOLD_S) == Action(-0.8, 0.0, 0.0)
    half = safety.action(2.0 + HOLD_S + STRAIGHTEN_S / 2)
    assert (half.steering, half.throttle, half.brake) == (pytest.approx(-0.4), 0.0, 1.0)
    assert safety.action(10.0) == Action(0.0, 0.0, 1.0)


def test_one_emergency_has_one_beginning_and_ends_with_a_sound_decision() -> None:
    safety = Safety(0.0)
    assert safety.fail("a", 1.0) and not safety.fail("a", 1.2) and safety.fail("b", 1.3)
    # The clock of the emergency runs from its beginning, whatever else goes wrong meanwhile.
    assert safety.action(1.0 + HOLD_S + STRAIGHTEN_S) == Action(0.0, 0.0, 1.0)
    assert safety.sound(Action(0.1, 0.0, 0.0), 2.0) and safety.reason is None
    assert not safety.sound(Action(0.1, 0.0, 0.0), 2.1)


def test_a_new_drive_holds_no_old_steering() -> None:
    safety = Safety(0.0)
    safety.sound(Action(1.0, 0.0, 0.0), 0.0)
    safety.restart(5.0)
    safety.fail("no picture", 5.0)
    assert safety.action(5.0).steering == 0.0 and not safety.overdue(5.2)


def at(speed_mps: float, car: Car) -> Car:
    car.speed_mps = speed_mps
    return car


def test_braking_never_turns_into_reversing() -> None:
    car = at(10.0, Car("a", 0, True, 0.0))
    assert car.pedal(0.0, 0.6) == -0.6
    assert at(2.0, car).pedal(0.0, 0.6) == 0.0


def test_brakes_that_stay_on_below_5_mph_are_released_once() -> None:
    car = at(10.0, Car("a", 0, True, 0.0))
    car.pedal(0.0, 0.6)
    assert [at(2.0, car).pedal(0.5, 0.0) for _ in range(3)] == [RELEASE, 0.5, 0.5]
    # Above 5 mph the simulator lets go of them by itself.
    at(10.0, car).pedal(0.0, 0.6)
    car.pedal(0.2, 0.0)
    assert at(2.0, car).pedal(0.5, 0.0) == 0.5


def test_reports_beyond_those_in_flight_are_dropped_and_the_count_heals() -> None:
    car = Car("a", 0, True, 0.0)
    assert not car.take(1, 0.0), "the first of the two opening reports: its twin is to come"
    assert car.take(1, 0.0)
    assert not car.take(1, 0.0), "one is being decided on"
    car.done()
    car.asked()
    assert car.take(1, 0.0)
    car.done()
    # Two answers, of which one is lost: dropped until it is woken, then as before.
    car.asked()
    car.asked()
    assert not car.take(1, 1.0)
    car.woken(2.0)
    car.asked()
    assert car.take(1, 2.1)


def test_the_newest_simulator_is_driven_and_clients_only_without_one() -> None:
    cars = Cars()
    assert cars.driven() is None
    client = cars.of("client", False, 0.0)
    assert cars.driven() is client
    old, new = cars.of("old", True, 1.0), cars.of("new", True, 2.0)
    cars.of("late client", False, 3.0)
    assert cars.driven() is new and cars.of("old", True, 9.0) is old
    new.foreign = True
    assert cars.driven() is old
    assert cars.remove("old") is old and cars.remove("old") is None
