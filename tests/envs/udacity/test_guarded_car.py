"""A car that is braked by the guardian: what it is sent, and when the braking is over."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from nacdrive.envs.udacity.engines import apply_mask
from nacdrive.envs.udacity.guardian import Car

Pair = tuple[Car, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    its, simulator = socket.socketpair()
    simulator.setblocking(False)
    car = Car(its)
    yield car, simulator
    its.close()
    simulator.close()


def commands(simulator: socket.socket) -> list[tuple[str, str]]:
    """Steering and throttle of all that has come, frame by frame."""
    try:
        data = simulator.recv(1 << 16)
    except BlockingIOError:
        return []
    pairs = []
    while data:
        first, size = struct.unpack("!BB", data[:2])
        assert first == 0x81 and size < 126
        values = json.loads(data[2 : 2 + size][2:])[1]
        pairs.append((values["steering_angle"], values["throttle"]))
        data = data[2 + size :]
    return pairs


def tell(simulator: socket.socket, speed: str) -> None:
    text = f'42["telemetry",{{"steering_angle":"0","throttle":"0","speed":"{speed}"}}]'.encode()
    mask = os.urandom(4)
    simulator.send(struct.pack("!BB", 0x81, 0x80 | len(text)) + mask + apply_mask(text, mask))


def test_it_holds_the_course_for_a_moment_brakes_straight_and_lets_go_when_slow(pair: Pair) -> None:
    car, simulator = pair
    car.speed_mph, car.steering = 20.0, "0,25"
    assert not car.brake(10.0, alone=True) and commands(simulator) == [("0,25", "-1")]
    tell(simulator, "12.0000")
    assert not car.brake(10.2, alone=True) and commands(simulator) == [("0,25", "-1")]
    tell(simulator, "9.0000")
    assert not car.brake(10.5, alone=True) and commands(simulator) == [("0", "-1")]
    # Slow: released first, and over with the next report that says so.
    tell(simulator, "5.0000")
    assert not car.brake(10.6, alone=True) and commands(simulator) == [("0", "0")]
    tell(simulator, "4.9000")
    assert car.brake(10.7, alone=True)
    assert not car.give_back(), "the connection was read: nobody else can go on with it"


def test_a_command_that_is_not_answered_is_sent_again_and_after_two_seconds_it_lets_go(pair: Pair) -> None:
    car, simulator = pair
    car.speed_mph = 20.0
    car.brake(0.0, alone=True)
    commands(simulator)
    for now_s, sent in ((0.25, []), (0.35, [("0", "-1")]), (0.6, []), (0.7, [("0", "-1")]), (2.1, [("0", "0")])):
        assert not car.brake(now_s, alone=True)
        assert [throttle for _, throttle in commands(simulator)] == [throttle for _, throttle in sent]


def test_while_another_may_read_it_is_left_to_him_until_the_car_may_be_slow(pair: Pair) -> None:
    car, simulator = pair
    # From 20 to 5 miles an hour in half a second at best.
    car.speed_mph = 20.0
    assert not car.brake(0.0, alone=False) and commands(simulator) == [("0", "-1")]
    tell(simulator, "3.0000")
    assert not car.brake(0.45, alone=False) and car.speed_mph == 20 and car.give_back()
    car.brake(1.0, alone=False)
    assert not car.brake(1.6, alone=False) and car.speed_mph == 3 and not car.give_back()


def test_a_connection_that_has_ended_says_so(pair: Pair) -> None:
    car, simulator = pair
    simulator.close()
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        car.brake(0.0, alone=True)


def test_its_command_is_whole_whatever_separates_decimals(pair: Pair) -> None:
    car, simulator = pair
    car.speed_mph, car.steering = 20.0, "0\u066b25"
    assert not car.brake(10.0, alone=True) and commands(simulator) == [("0\u066b25", "-1")]
