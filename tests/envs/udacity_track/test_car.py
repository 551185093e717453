from __future__ import annotations

import numpy as np
import pytest

from nacdrive.common.units import MPH_PER_MPS
from nacdrive.envs.udacity_track.car import STEP_S, Car
from nacdrive.envs.udacity_track.track import TRACKS, load_track

STRAIGHT = 40.0
"""Metres along the lake track: the middle of its longest straight."""


@pytest.fixture(scope="module")
def car() -> Car:
    return Car(load_track("lake"))


def placed(car: Car, speed: float = 0.0) -> Car:
    point, heading = load_track("lake").at(STRAIGHT)
    car.place(point, heading, speed)
    return car


def test_stands_still_on_its_springs(car: Car) -> None:
    start = placed(car).position
    for _ in range(100):
        car.step(0, 0)
    assert np.abs(car.position - start).max() < 0.06 and car.speed < 0.1 and car.upright


def test_reaches_thirty_miles_an_hour_and_no_more(car: Car) -> None:
    placed(car)
    speeds = []
    for _ in range(250):
        car.step(0, 1)
        speeds.append(car.speed * MPH_PER_MPS)
    # The recordings of the real simulator say 30.19 at full throttle.
    assert speeds[-1] == pytest.approx(30.19, abs=0.1) and max(speeds) < 30.5
    # 4 x 500 Nm on wheels of 0.335 and 0.37 m push 1000 kg with 5.7 m/s^2, which grow from 0 over the first second.
    assert 2.6 < speeds[49] / MPH_PER_MPS < 2.9
    assert 4.5 < (speeds[99] - speeds[49]) / MPH_PER_MPS < 5.7


def test_a_faster_car_is_the_same_one_below_thirty_miles_an_hour() -> None:
    usual, faster = placed(Car(load_track("lake"))), placed(Car(load_track("lake"), 40 / MPH_PER_MPS))
    speeds = []
    for _ in range(250):
        usual.step(0, 1)
        faster.step(0, 1)
        speeds.append(faster.speed * MPH_PER_MPS)
        if speeds[-1] < 29.5:
            assert faster.speed == usual.speed
    assert 40 <= max(speeds) < 40.5


def test_brakes_to_a_stop_then_reverses(car: Car) -> None:
    placed(car, speed=13.0)
    start, steps = car.position, 0
    while car.speed > 2.2:
        car.step(0, -1)
        steps += 1
    distance = float(np.linalg.norm(car.position - start))
    assert 0.8 < steps * STEP_S < 1.6 and 6 < distance < 10
    for _ in range(250):
        car.step(0, -1)
    assert car.body.get_linear_velocity().dot(car.forward) < -1


def test_brakes_stay_on_when_released_while_crossing_five_miles_an_hour(car: Car) -> None:
    placed(car, speed=5.5 / MPH_PER_MPS)
    while car.speed * MPH_PER_MPS > 5:
        car.step(0, -0.2)
    for _ in range(100):
        car.step(0, 1)
    assert car.speed < 0.3
    car.step(0, -0.1)  # the pedal below 5 mph lets go of them
    for _ in range(50):
        car.step(0, 1)
    assert car.speed > 2


@pytest.mark.parametrize("steering", [-1.0, -0.2, 0.2, 0.5])
def test_turns_on_the_circle_of_its_wheels(car: Car, steering: float) -> None:
    placed(car, speed=4.0)
    headings = []
    for _ in range(60):
        car.step(steering, 0.25)
        headings.append(car.heading)
    rate = (np.unwrap(headings)[-1] - np.unwrap(headings)[20]) / (39 * STEP_S)
    radius = 2.87 / np.tan(np.deg2rad(25 * abs(steering)))
    assert np.sign(rate) == -np.sign(steering)
    assert car.speed / abs(rate) == pytest.approx(radius, rel=0.25)


def test_does_not_turn_over_at_full_lock_and_full_speed(car: Car) -> None:
    placed(car, speed=13.4)
    for k in range(300):
        car.step(1.0 if (k // 25) % 2 else -1.0, 1)
        assert car.upright and abs(car.path.get_r()) < 30


def test_same_commands_same_way(car: Car) -> None:
    ways = []
    for _ in range(2):
        placed(car, speed=3.0)
        for k in range(100):
            car.step(float(np.sin(k / 9)), 0.7)
        ways.append((*car.position, car.heading, car.speed))
    assert ways[0] == ways[1]


@pytest.mark.parametrize("name", TRACKS)
def test_tracks_are_closed_smooth_and_drivable(name: str) -> None:
    road = load_track(name)
    assert 1000 < road.length < 1600
    np.testing.assert_allclose(np.linalg.norm(np.diff(road.line[:, :2], axis=0), axis=1), road.spacing, rtol=0.01)
    np.testing.assert_allclose(road.at(road.length)[0], road.line[0], atol=1e-6)
    # The innermost edge of every bend has room, and no slope is steeper than one in eight.
    assert 1 / np.abs(road.curvature).max() > road.half_width + 2
    assert np.abs(np.diff(road.line[:, 2])).max() / road.spacing < 0.125
    turned = road.curvature.sum() * road.spacing
    assert turned == pytest.approx(2 * np.pi, abs=0.05)  # once around, counter-clockwise
