"""The simulator's pedal, the reports under way, and who is driven."""

from __future__ import annotations

from nacdrive.common.action import Action
from nacdrive.envs.udacity.connections import ANSWER_S, RELEASE, SILENCE_S, Connections, SimulatorConnection


def connection() -> SimulatorConnection:
    return SimulatorConnection("a", 0, True, 0.0)


def at(speed_mps: float, one: SimulatorConnection) -> SimulatorConnection:
    one.speed_mps = speed_mps
    return one


def test_braking_never_turns_into_reversing() -> None:
    one = at(10.0, connection())
    assert one.pedal(0.0, 0.6) == -0.6
    assert at(2.0, one).pedal(0.0, 0.6) == 0.0


def test_the_stronger_of_throttle_and_brake_counts() -> None:
    one = at(10.0, connection())
    assert one.pedal(0.2, 0.6) == -0.6 and one.pedal(0.6, 0.2) == 0.6


def test_brakes_that_stay_on_below_5_mph_are_released_once() -> None:
    one = at(10.0, connection())
    one.pedal(0.0, 0.6)
    assert [at(2.0, one).pedal(0.5, 0.0) for _ in range(3)] == [RELEASE, 0.5, 0.5]
    # Above 5 mph the simulator lets go of them by itself.
    at(10.0, one).pedal(0.0, 0.6)
    one.pedal(0.2, 0.0)
    assert at(2.0, one).pedal(0.5, 0.0) == 0.5


def test_reports_beyond_those_in_flight_are_dropped_and_the_count_heals() -> None:
    one = connection()
    assert not one.begin(1, 0.0), "the first of the two opening reports: its twin is to come"
    assert one.begin(1, 0.0)
    assert not one.begin(1, 0.0), "one is being decided on"
    one.end()
    one.sent(0.0)
    assert one.begin(1, 0.0)
    one.end()
    # Two answers, of which one is lost: dropped until it is pinged.
    one.sent(0.0)
    one.sent(0.0)
    assert not one.begin(1, 1.0)
    one.ping(2.0)
    one.sent(2.0)
    assert one.begin(1, 2.1)


def test_a_silent_one_is_pinged_and_ever_more_rarely() -> None:
    one = connection()
    assert not one.silent(SILENCE_S) and one.silent(SILENCE_S + 0.1)
    for _ in range(5):
        one.ping(10.0)
    assert not one.silent(10.0 + SILENCE_S + 0.1)
    one.begin(1, 20.0)
    assert one.silent(20.0 + SILENCE_S + 0.1)


def test_a_report_that_nobody_answers_is_noticed() -> None:
    one = connection()
    one.begin(1, 1.0)
    assert not one.unanswered(1.0 + ANSWER_S / 2) and one.unanswered(1.0 + 2 * ANSWER_S)
    one.sent(1.2)
    assert not one.unanswered(9.0), "it is its turn to report"


def test_a_culture_that_is_not_known_yet_is_sent_whole_numbers() -> None:
    one = connection()
    assert one.command(Action(0.0, 0.0, 1.0)) == {"steering_angle": "0", "throttle": "0"}
    one.separator = ","
    assert one.command(Action(0.5, 0.25, 0.0)) == {"steering_angle": "0,500000", "throttle": "0,250000"}


def test_the_newest_simulator_that_reports_is_driven_and_clients_only_without_one() -> None:
    connections = Connections()
    assert connections.driven() is None and connections.expected() is None
    client = connections.of("client", False, 0.0)
    assert connections.driven() is None
    client.separator = "."
    assert connections.driven() is client
    old, new = connections.of("old", True, 1.0), connections.of("new", True, 2.0)
    assert connections.driven() is client and connections.expected() is new
    old.separator = "."
    assert connections.driven() is old, "the newer one has not reported yet"
    new.separator = "."
    connections.of("late client", False, 3.0).separator = "."
    assert connections.driven() is new and connections.of("old", True, 9.0) is old and connections.expected() is None
    new.foreign = True
    assert connections.driven() is old
    assert connections.remove("old") is old and connections.remove("old") is None
