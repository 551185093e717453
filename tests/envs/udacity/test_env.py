"""The environment and emulated simulators: driven, left and come back, paused, doubled, in every culture."""

from __future__ import annotations

import socket
import time
from threading import Event, Thread

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.datasets.images import decode_image
from nacdrive.drivers.speed_control import SpeedControl, SpeedController
from nacdrive.envs.udacity import UdacityEnv
from nacdrive.envs.udacity.number_format import NUMBER_FORMATS
from tests.helpers.udacity_loop import FunctionDriver, Loop, drive
from tests.helpers.udacity_simulators import PICTURE, Simulator, jpeg, until


def test_a_simulator_is_driven_by_what_it_reports(driven, simulator) -> None:
    seen = []

    def decide(frame, t_s, speed_mps) -> Action:
        seen.append((frame, t_s, speed_mps))
        return Action(-0.5, 0.25, 0.0)

    car = simulator(driven(decide))
    car.speed_mph = 10.0
    assert car.drives()
    assert car.commands[-1] == (-0.5, 0.25)
    frame, _, speed = seen[-1]
    assert np.array_equal(frame, decode_image(PICTURE)) and speed == pytest.approx(4.4704)
    times = [t_s for _, t_s, _ in seen]
    assert times == sorted(times) and times[0] < 0.5
    assert car.client.connections == 1 and car.client.lost == 0


def test_one_picture_is_under_way_at_a_time(driven, simulator) -> None:
    server = driven()
    car = simulator(server)
    assert car.drives()
    # The second opening report was dropped, and ever since a command was answered by one report.
    assert server.env.dropped == 1
    assert car.client.sent - car.client.steers <= 2


def test_more_in_flight_answers_both_opening_reports(driven, simulator) -> None:
    server = driven(in_flight=2)
    car = simulator(server)
    assert car.drives() and server.env.dropped == 0


@pytest.mark.parametrize("culture", sorted(NUMBER_FORMATS))
def test_every_culture_reads_what_it_is_told_and_is_read(driven, simulator, culture: str) -> None:
    car = simulator(driven(), culture)
    car.speed_mph = 1234.5
    assert car.drives(2)
    # steer_by_speed: 12.345, clamped on the wire.
    assert car.commands[-1] == (1.0, 0.2)
    car.speed_mph = -25.125
    assert until(lambda: car.commands[-1] == (-0.25125, 0.2))
    assert car.client.lost == 0


def test_manual_driving_is_answered_and_the_policy_takes_over_again(driven, simulator, lines) -> None:
    loop = driven()
    car = simulator(loop)
    assert car.drives()
    car.manual = True
    assert until(lambda: lines.told("A person drives"))
    reports = car.client.sent
    assert until(lambda: car.client.sent > reports + 10), "the loop goes on while a person drives"
    car.manual = False
    assert car.drives() and loop.endings == ["a person drives in the simulator"], "the policy starts afresh"
    assert not lines.told("Safety stop")


def test_a_simulator_that_lost_its_loop_is_woken(driven, simulator) -> None:
    server = driven()
    car = simulator(server)
    assert car.drives()
    # As when an exception in the simulator swallows the command: nothing is reported, the connection stays.
    car.paused.set()
    time.sleep(0.1)
    while car.client._events.qsize():
        car.client._events.get()
    time.sleep(0.4)
    car.paused.clear()
    assert car.drives() and car.client.connections == 1


def test_a_pause_does_not_pile_up_commands(driven, simulator) -> None:
    server = driven()
    car = simulator(server)
    assert car.drives()
    sent = server.env.commands
    car.paused.set()
    time.sleep(2.0)
    # The safety stop's first word at 0.3 s, then one a second.
    assert server.env.commands - sent <= 4
    car.paused.clear()
    assert car.drives()


def test_the_newer_of_two_simulators_is_driven_and_the_older_braked(driven, simulator, lines) -> None:
    server = driven(lambda *_: Action(0.0, 0.7, 0.0))
    older = simulator(server)
    older.speed_mph = 20.0
    assert older.drives() and older.commands[-1] == (0.0, 0.7)
    newer = simulator(server)
    assert newer.drives() and newer.commands[-1] == (0.0, 0.7)
    assert lines.told("the newer is driven")
    assert until(lambda: older.commands[-1] == (0.0, -1.0))
    older.speed_mph = 4.0
    sent = older.client.steers
    time.sleep(0.2)
    # Slow: braking would reverse it; it is let be.
    assert older.client.steers - sent <= 2
    newer.__exit__()
    assert until(lambda: older.commands[-1] == (0.0, 0.7)), "the older is driven again"


def test_a_scene_that_was_left_stays_silent_and_harmless(driven, simulator) -> None:
    server = driven()
    zombie = simulator(server)
    assert zombie.drives()
    # Leaving the scene stops Unity's main loop for it, but its connection stays and answers PINGs.
    zombie.paused.set()
    car = simulator(server)
    assert car.drives(50) and car.client.connections == 1
    assert zombie.client.connected


def test_a_simulator_reconnects_and_is_driven_again(driven, simulator, lines) -> None:
    loop = driven()
    car = simulator(loop)
    assert car.drives()
    car.client._link.abort()
    assert until(lambda: car.client.connections == 2) and car.drives()
    assert loop.endings == ["the simulator has gone"] and until(lambda: lines.told("The simulator has gone"))


def test_a_server_that_comes_back_is_found(stack) -> None:
    with drive(UdacityEnv(port=0), lambda *_: Action(0.1, 0.2, 0.0)) as first:
        car = stack.enter_context(Simulator(first.env.port))
        assert car.drives()
    with drive(UdacityEnv(port=first.env.port), lambda *_: Action(0.3, 0.2, 0.0)):
        assert until(lambda: car.commands[-1][0] == 0.3)


def test_the_car_is_braked_and_then_released_at_the_end(driven, simulator) -> None:
    loop = driven(lambda *_: Action(0.0, 0.5, 0.0))
    car = simulator(loop)
    car.speed_mph = 20.0
    assert car.drives()
    commands = len(car.commands)

    slowing = Event()

    def slow() -> None:
        assert until(lambda: (0.0, -1.0) in car.commands[commands:])
        car.speed_mph = 3.0
        slowing.set()

    helper = Thread(target=slow)
    helper.start()
    loop.env.close()
    helper.join()
    # Below 5 mph a negative throttle reverses; the simulator keeps its last command for ever.
    assert slowing.is_set() and until(lambda: car.commands[-1] == (0.0, 0.0))


def test_the_speed_controller_gives_the_pedals(stack, simulator) -> None:
    driver = SpeedControl(FunctionDriver(lambda *_: Action(0.0, 0.0, 0.0)), SpeedController(9.0))
    car = simulator(stack.enter_context(Loop(UdacityEnv(port=0), driver)))
    assert car.drives() and car.commands[-1] == (0.0, 1.0)
    car.speed_mph = 29.0
    assert until(lambda: car.commands[-1][1] < 0)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (b"no picture", "cannot be decoded"),
        (jpeg(64, 64), "64 x 64"),
        (PICTURE[:5000], "cannot be decoded"),
    ],
)
def test_a_lost_camera_stops_the_car_until_it_is_back(driven, simulator, lines, wrong: bytes, words: str) -> None:
    car = simulator(driven(lambda *_: Action(0.4, 0.6, 0.0)))
    car.speed_mph = 20.0
    assert car.drives() and car.commands[-1] == (0.4, 0.6)
    car.picture = wrong
    assert until(lambda: car.commands[-1] == (0.4, 0.0)), "the steering is held"
    assert until(lambda: car.commands[-1] == (0.0, -1.0)), "then straightened, and braked"
    assert lines.told(words)
    car.picture = PICTURE
    assert until(lambda: car.commands[-1] == (0.4, 0.6)) and lines.told("Sound decisions again")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda: Action(float("nan"), 0.0, 0.0), "not finite"),
        (lambda: 1 / 0, "ZeroDivisionError"),
        (lambda: None, "no Action"),
        (lambda: time.sleep(0.4) or Action(0.9, 0.9, 0.0), "still at work"),
    ],
)
def test_a_failing_policy_is_replaced_until_it_is_sound(driven, simulator, lines, fault, words: str) -> None:
    failing = Event()
    loop = driven(lambda *_: fault() if failing.is_set() else Action(0.4, 0.6, 0.0))
    car = simulator(loop)
    car.speed_mph = 20.0
    assert car.drives() and not lines.told("Safety")
    failing.set()
    assert until(lambda: car.commands[-1] == (0.0, -1.0))
    assert until(lambda: any(words in event for event in loop.events)) and all(
        steering <= 0.4 for steering, _ in car.commands
    )
    failing.clear()
    assert until(lambda: car.commands[-1] == (0.4, 0.6))


def test_another_udacity_simulator_is_refused_in_one_line(driven, lines) -> None:
    server = driven()
    other = Simulator(server.env.port)
    other.client._report = lambda: other.client._send('42["telemetry",{"steering_angle":0.5,"speed":3.1,"cte":"0.7"}]')
    with other:
        assert until(lambda: lines.told("Term 2"))
        time.sleep(1.3)
        assert server.env.commands == 0 and sum("Term 2" in line for line in lines) == 1
        # Nor does it keep the right one from being driven.
        with Simulator(server.env.port) as car:
            assert car.drives()


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UserError, match="in use"):
        UdacityEnv(port=taken.getsockname()[1])


def test_an_unknown_engine_is_one_sentence() -> None:
    with pytest.raises(UserError, match="eventlet"):
        UdacityEnv(engine="eventlot")
