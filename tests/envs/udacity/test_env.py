"""The environment and emulated simulators: driven, left and come back, paused, doubled, in every culture."""

from __future__ import annotations

import math
import socket
import time
from threading import Event, Thread

import gymnasium
import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.common.units import MPS_PER_MPH
from nacdrive.datasets.images import decode_image
from nacdrive.drivers.speed_control import SpeedControl, SpeedController
from nacdrive.drivers.tick import Tick
from nacdrive.envs.udacity import DriveInterruptedError, UdacityEnv, connections
from nacdrive.extras.simulator.number_format import NUMBER_FORMATS
from tests.helpers.udacity_loop import FunctionDriver, Loop, drive
from tests.helpers.udacity_simulators import PICTURE, Simulator, jpeg, until
from tests.helpers.udacity_ways import end_thread


def test_a_simulator_is_driven_by_what_it_reports(driven, simulator) -> None:
    seen = []

    def decide(frame, t_s, speed_mps) -> Action:
        seen.append((frame, t_s, speed_mps))
        return Action(-0.5, 0.25, 0.0)

    car = Simulator(driven(decide).env.port)
    car.picture = jpeg(detailed=True)
    car.speed_mph = 10.0
    with car:
        assert car.drives(20)
        assert car.commands[-1] == (-0.5, 0.25)
        frame, _, speed = seen[-1]
    assert np.array_equal(frame, decode_image(car.picture)) and speed == pytest.approx(4.4704)
    times = [t_s for _, t_s, _ in seen]
    assert times == sorted(times) and times[0] < 0.5
    assert car.client.connections == 1 and car.client.lost == 0


def test_one_picture_is_under_way_at_a_time(driven, simulator) -> None:
    server = driven()
    car = simulator(server)
    assert car.drives(20)
    # The second opening report was dropped, and ever since a command was answered by one report.
    assert server.env.dropped == 1
    assert car.client.sent - car.client.steers <= 2


def test_more_in_flight_answers_both_opening_reports(driven, simulator) -> None:
    server = driven(in_flight=2)
    car = simulator(server)
    assert car.drives(20) and server.env.dropped == 0


@pytest.mark.parametrize("culture", sorted(NUMBER_FORMATS))
def test_every_culture_reads_what_it_is_told_and_is_read(lasting, simulator, culture: str) -> None:
    car = simulator(lasting, culture)
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
    # On a busy machine a decision may be late by itself.
    assert not [line for line in lines if "Safety stop" in line and "no decision for" not in line]


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
    began = time.monotonic()
    time.sleep(2.0)
    # The safety stop's first word at 0.3 s, then one a second, for as long as a busy machine makes of it.
    assert server.env.commands - sent <= 2 + (time.monotonic() - began)
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
    # Slow: a brake that holds would reverse it, so it is let go, and then let be.
    assert until(lambda: older.commands[-1] == (0.0, 0.0))
    time.sleep(0.2)
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
        (PICTURE[: len(PICTURE) // 2], "cannot be decoded"),
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
def test_a_failing_policy_is_replaced_until_it_is_sound(driven, simulator, fault, words: str) -> None:
    failing = Event()
    loop = driven(lambda *_: fault() if failing.is_set() else Action(0.4, 0.6, 0.0))
    car = simulator(loop)
    car.speed_mph = 20.0
    assert car.drives()
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


def test_info_tells_time_speed_and_the_jpeg_as_it_came(stack, simulator) -> None:
    env = stack.enter_context(UdacityEnv(port=0))
    car = stack.enter_context(Simulator(env.port))
    car.speed_mph = 10.0
    frame, info = env.reset()
    assert info["t_s"] == 0.0 and info["speed_mps"] == pytest.approx(4.4704) and info["jpeg"] == PICTURE
    assert env.observation_space.contains(frame)
    _, reward, terminated, truncated, after = env.step(np.array([-0.25, -0.5], np.float32))
    assert (reward, terminated, truncated) == (0.0, False, False) and after["t_s"] > 0
    assert any("has connected" in event for event in after["events"])
    assert until(lambda: car.commands[-1] == (-0.25, -0.5)), "a negative pedal brakes"
    env.step(Action(0.123456, 0.5, 0.0))
    assert until(lambda: car.commands[-1] == (0.123456, 0.5))
    assert env.metrics()["metres"] == pytest.approx(4.4704 * env.metrics()["seconds"])


def test_a_reset_amid_a_drive_begins_its_time_anew(stack) -> None:
    env = stack.enter_context(UdacityEnv(port=0))
    car = stack.enter_context(Simulator(env.port))
    env.reset()
    for _ in range(10):
        _, _, _, truncated, info = env.step(Action(0.1, 0.2, 0.0))
    assert info["t_s"] > 0.05 and not truncated
    _, info = env.reset()
    assert info["t_s"] == 0.0 and car.commands[-1] == (0.1, 0.2), "the car goes on as before"
    _, _, _, truncated, info = env.step(Action(0.1, 0.2, 0.0))
    assert 0 < info["t_s"] < 0.2 and not truncated and car.client.connections == 1


def test_a_step_without_a_reset_is_refused(stack) -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        stack.enter_context(UdacityEnv(port=0)).step(Action(0.0, 0.0, 0.0))


UNSOUND = [
    (Action(float("nan"), 0.0, 0.0), "not finite"),
    (Action(0.0, float("inf"), 0.0), "not finite"),
    (np.array([0.0, np.nan]), "not finite"),
    (np.array([0.0, 0.0, 0.0]), "no action but ndarray"),
    (3, "no action but int"),
    (None, "no action but NoneType"),
]


def test_an_unsound_action_is_never_sent(stack, lines) -> None:
    env = stack.enter_context(UdacityEnv(port=0, limit_s=60, on_event=lines.append))
    car = stack.enter_context(Simulator(env.port))
    car.speed_mph = 20.0
    env.reset()
    env.step(Action(0.4, 0.6, 0.0))
    for number, (action, words) in enumerate(UNSOUND, 1):
        lines.clear()
        # Each stop is told, however soon it follows the one before.
        env._server.log._last_s.clear()
        while car.commands[-1] != (0.0, -1.0):
            env.step(action)
        assert lines.told(words) and env.safety_stops == number
        assert {command for command in car.commands if command[1] > 0} == {(0.4, 0.6)}
        env.step(Action(0.4, 0.6, 0.0))
        assert until(lambda: car.commands[-1] == (0.4, 0.6)) and env.safety is None


def test_whoever_is_told_of_a_stop_is_told_of_its_end_however_soon_that_comes(stack, lines) -> None:
    env = stack.enter_context(UdacityEnv(port=0, limit_s=60, on_event=lines.append))
    stack.enter_context(Simulator(env.port))
    env.reset()
    begins_s = env._server.log._last_s

    def news(action: Action | None) -> list[str]:
        lines.clear()
        env.step(action)
        return [line.split(":")[0] for line in lines if line.startswith("S")]

    stop, end, sound = ["Safety stop"], ["Sound decisions again"], Action(0.4, 0.6, 0.0)
    assert (news(None), news(None), news(sound), news(sound)) == (stop, [], end, [])
    # A second after it has begun, which is less than one after it has ended.
    begins_s.pop("safety")
    assert (news(None), news(sound)) == (stop, end)
    # Within that second, however long this machine takes.
    begins_s["safety"] = math.inf
    assert (news(None), news(sound)) == ([], [])
    assert news(None) == []
    begins_s.pop("safety")
    assert (news(None), news(sound)) == (stop, end), "one that lasts is told as soon as it may be"


def test_a_slow_policy_drives_slowly_where_it_is_allowed_to_take_its_time(stack, simulator, lines) -> None:
    def think(*_: object) -> Action:
        time.sleep(0.5)
        return Action(0.4, 0.0, 0.0)

    driver = SpeedControl(FunctionDriver(think), SpeedController(30 * MPS_PER_MPH))
    env = UdacityEnv(port=0, limit_s=10, on_event=lines.append)
    car = simulator(stack.enter_context(Loop(env, driver)))
    car.speed_mph = 5.0
    assert car.drives(6) and car.commands[-1] == (0.4, 1.0) and env.safety_stops == 0
    # 4 m between two decisions are 18 mph, not the 30 that were asked for.
    car.speed_mph = 22.0
    assert until(lambda: car.commands[-1][1] < 0) and not lines.told("Safety")


def test_a_policy_that_is_too_slow_is_told_of_the_limit(stack, simulator, lines) -> None:
    loop = Loop(
        UdacityEnv(port=0, on_event=lines.append), FunctionDriver(lambda *_: time.sleep(0.5) or Action(0, 1, 0))
    )
    car = simulator(stack.enter_context(loop))
    assert until(lambda: len(car.commands) > 20)
    assert lines.told("no decision for 0.3 s") and all(throttle <= 0 for _, throttle in car.commands)


def test_a_car_that_nobody_asks_for_is_braked_and_its_newest_picture_is_the_first(stack, lines) -> None:
    env = stack.enter_context(UdacityEnv(port=0, on_event=lines.append))
    car = stack.enter_context(Simulator(env.port))
    car.speed_mph = 20.0
    assert until(lambda: car.commands and car.commands[-1] == (0.0, -1.0))
    assert not lines.told("Safety stop"), "nobody drives yet, so nobody has failed"
    car.speed_mph = 10.0
    time.sleep(0.2)
    _, info = env.reset()
    assert info["speed_mps"] == pytest.approx(4.4704) and env.safety is None
    env.step(Action(0.0, 0.3, 0.0))
    assert until(lambda: car.commands[-1] == (0.0, 0.3)) and not lines.told("Sound decisions")


def test_no_car_that_is_braked_is_left_before_it_is_slow(driven, simulator) -> None:
    server = driven(lambda *_: Action(0.0, 0.7, 0.0))
    older = simulator(server)
    older.speed_mph = 20.0
    assert older.drives()
    newer = simulator(server)
    assert newer.drives() and until(lambda: older.commands[-1] == (0.0, -1.0))
    leaving = Thread(target=server.env.close)
    leaving.start()
    time.sleep(0.3)
    older.speed_mph = 4.0
    leaving.join(120)
    assert until(lambda: older.commands[-1] == (0.0, 0.0)), "a brake that holds would reverse it"
    assert newer.commands[-1] == (0.0, 0.0)


def test_a_loop_that_ends_without_a_word_leaves_the_car_braked(stack, lines) -> None:
    env = stack.enter_context(UdacityEnv(port=0, on_event=lines.append))
    car = stack.enter_context(Simulator(env.port))
    car.speed_mph = 20.0
    env.reset()
    env.step(Action(0.4, 0.6, 0.0))
    assert until(lambda: car.commands[-1] == (0.0, -1.0)) and lines.told("still at work")


def test_what_waits_ends_at_once_when_interrupted_or_closed(stack) -> None:
    for ending in (UdacityEnv.interrupt, UdacityEnv.close):
        env = stack.enter_context(UdacityEnv(port=0))
        helper = Thread(target=lambda env=env, ending=ending: (time.sleep(0.3), ending(env)))
        helper.start()
        began = time.monotonic()
        with pytest.raises(DriveInterruptedError):
            env.reset()
        assert time.monotonic() - began < 120
        helper.join()


def test_a_waiting_step_is_truncated_when_interrupted(stack) -> None:
    env = stack.enter_context(UdacityEnv(port=0))
    car = stack.enter_context(Simulator(env.port))
    env.reset()
    car.paused.set()
    helper = Thread(target=lambda: (time.sleep(0.3), env.interrupt()))
    helper.start()
    _, _, _, truncated, info = env.step(Action(0.0, 0.0, 0.0))
    assert truncated and info["ended"] == "interrupted"
    helper.join()
    with pytest.raises(DriveInterruptedError):
        env.reset()


def test_a_second_simulator_ends_the_drive_of_the_first(driven, simulator) -> None:
    loop = driven()
    older = simulator(loop)
    assert older.drives()
    newer = simulator(loop)
    assert newer.drives() and loop.endings == ["another simulator has connected"]


def test_the_status_says_what_there_is_to_wait_for(stack) -> None:
    env = stack.enter_context(UdacityEnv(port=0))
    assert env.status.startswith(f"Waiting for the simulator on port {env.port}")
    car = stack.enter_context(Simulator(env.port))
    env.reset()
    assert env.status == ""
    car.manual = True
    while not env.step(Action(0.0, 0.0, 0.0))[3]:
        pass
    assert env.status.startswith("A person drives")


def test_threads_that_have_ended_are_started_again_and_named(driven, simulator, lines) -> None:
    loop = driven()
    assert simulator(loop).drives()
    end_thread("nacdrive-udacity")
    assert until(lambda: lines.told("nacdrive-udacity-watch has ended") and lines.told("nacdrive-udacity has ended"))
    assert simulator(loop).drives(), "a newcomer is let in"
    assert until(lambda: any("has ended" in event for event in loop.events)), "on the page too"


def test_the_last_decision_before_a_simulator_goes_is_not_late(stack) -> None:
    env = stack.enter_context(UdacityEnv(port=0))
    ticks: list[Tick] = []
    stack.enter_context(Loop(env, FunctionDriver(lambda *_: Action(0.0, 0.1, 0.0)), [ticks.append]))
    with Simulator(env.port) as car:
        assert car.drives()
    assert until(lambda: ticks and ticks[-1].done)
    assert ticks[-1].budget_ms is None and not ticks[-1].is_late and ticks[0].budget_ms


def test_a_late_decision_does_not_end_the_commands_of_the_stop(driven, monkeypatch: pytest.MonkeyPatch) -> None:
    # A simulator that seems silent is pinged; here the stop itself has to go on.
    monkeypatch.setattr(connections, "SILENCE_S", 1000.0)
    patient: list[bool] = []

    def decide(*_: object) -> Action:
        goal = car.client.steers + 40
        patient.append(until(lambda: car.client.steers > goal or len(patient) >= 5))
        return Action(0.0, 0.5, 0.0)

    loop = driven(decide)
    car = Simulator(loop.env.port)
    with car:
        assert until(lambda: len(patient) >= 5, 600) and all(patient), patient
