"""The safety stop decision by decision, against times and actions worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.base import PolicyFailureError
from nacdrive.drivers.safety_stop import SafetyStop, checked
from nacdrive.envs.base import DrivingEnv, Frame, Info

FRAME = np.zeros((4, 4, 3), np.uint8)


class Waiting(DrivingEnv):
    """A simulator that waits for decisions."""

    name, step_s = "waiting", 0.05
    action_space = spaces.Box(-1, 1, (2,), np.float32)


class RealTime(Waiting):
    realtime = True


class Keys(Waiting):
    """Five discrete actions, one of which steers and brakes."""

    actions = ("left", "gas", "brake", "brake to the left", "nothing")
    action_space = spaces.Discrete(5)

    def action_of(self, choice: int) -> Action:
        steering, throttle, brake = [(-1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 1), (0, 0, 0)][choice]
        return Action(steering, throttle, brake, choice)


class Told:
    """Does what the test says next."""

    name = "told"

    def __init__(self) -> None:
        self.answer: Callable[[], Any] = lambda: Action(0.0, 0.0, 0.0)
        self.asked = 0

    def reset(self, env: DrivingEnv) -> None:
        pass

    def act(self, frame: Frame, info: Info) -> Action:
        self.asked += 1
        return self.answer()  # type: ignore[no-any-return]


def failing(message: str = "broken") -> Callable[[], Any]:
    def fail() -> Action:
        raise RuntimeError(message)

    return fail


def stopping(env: DrivingEnv, held: Action) -> tuple[SafetyStop, Callable[..., Action]]:
    """A stop whose driver decided ``held`` at 1 s and fails from then on."""
    driver = Told()
    stop = SafetyStop(driver)
    stop.reset(env)

    def at(t_s: float, speed_mps: float | None = 9.0) -> Action:
        info: Info = {"t_s": t_s}
        if speed_mps is not None:
            info["speed_mps"] = speed_mps
        return stop.act(FRAME, info)

    driver.answer = lambda: held
    at(1.0)
    driver.answer = failing()
    return stop, at


@pytest.mark.parametrize(
    ("action", "choices", "said"),
    [
        ("left", 0, "the driver gave no Action but str"),
        (Action(np.nan, 0, 0), 0, "not finite for steering$"),
        (Action(0, np.inf, np.nan), 0, "not finite for throttle, brake$"),
        (Action(0, 0, 0, 1, np.array([0.0, np.nan], np.float32)), 2, "not finite for the scores of its actions$"),
        (Action(0, 0, 0), 5, "chose action None, and there are 0 to 4$"),
        (Action(0, 0, 0, -1), 5, "chose action -1, and there are 0 to 4$"),
        (Action(0, 0, 0, 5), 5, "chose action 5, and there are 0 to 4$"),
    ],
)
def test_what_cannot_be_carried_out_is_named(action: Any, choices: int, said: str) -> None:
    with pytest.raises(PolicyFailureError, match=said):
        checked(action, choices)


@pytest.mark.parametrize(("choice", "choices"), [(0, 5), (4, 5), (None, 0), (7, 0)])
def test_what_can_be_carried_out_is_left_as_it_is(choice: int | None, choices: int) -> None:
    action = Action(0.5, 0.1, 0.0, choice, np.zeros(5, np.float32))
    assert checked(action, choices) is action
    if not choices:
        assert checked(action) is action


def test_a_simulator_that_waits_is_braked_until_the_car_stands_and_its_driver_is_not_asked_again() -> None:
    stop, at = stopping(Waiting(), Action(-0.8, 0.5, 0.0))
    assert stop.state().failure is None and not stop.state().finished and stop.state().events == ()
    assert at(2.0) == Action(-0.8, 0.0, 0.0)
    assert stop.state().failure == "RuntimeError: broken" and stop.state().events == (
        "safety stop: RuntimeError: broken",
    )
    # While the course is held, a car that stands has only just been started.
    assert at(2.2, 0.0).brake == 0.0 and not stop.state().finished
    half = at(2.5)
    assert half.steering == pytest.approx(-0.4) and (half.throttle, half.brake) == (0.0, 1.0)
    at(3.0, 0.5)
    assert not stop.state().finished, "half a metre a second is not standing"
    at(3.1, 0.49)
    assert stop.state().finished and stop.driver.driver.asked == 2 and stop.state().events == ()  # type: ignore[attr-defined]


def test_the_stop_is_over_after_its_longest_time_whatever_the_speed_says() -> None:
    stop, at = stopping(Waiting(), Action(0.0, 0.0, 0.0))
    at(2.0, None)
    at(5.19, None)
    assert not stop.state().finished
    at(5.2, None)
    assert stop.state().finished
    stop.reset(Waiting())
    assert not stop.state().finished and stop.state().failure is None, "a new episode begins with nothing of it"


def test_where_time_passes_by_itself_the_driver_is_asked_again_and_drives_again() -> None:
    stop, at = stopping(RealTime(), Action(0.3, 0.2, 0.0))
    for t_s in (2.0, 2.1, 9.0):
        at(t_s, 0.0)
    assert not stop.state().finished and stop.state().failure is not None and stop.driver.driver.asked == 4  # type: ignore[attr-defined]
    stop.driver.driver.answer = failing("another\n  reason")  # type: ignore[attr-defined]
    at(9.1)
    assert stop.state().events == ("safety stop: RuntimeError: another reason",), "in one line"
    stop.driver.driver.answer = lambda: Action(0.1, 0.2, 0.0)  # type: ignore[attr-defined]
    assert at(9.2) == Action(0.1, 0.2, 0.0) and stop.state().failure is None
    assert stop.state().events == ("sound decisions again: the policy drives",)


def test_a_reason_is_cut_short_and_a_failure_of_the_policy_needs_no_kind_before_it() -> None:
    stop, at = stopping(RealTime(), Action(0.0, 0.0, 0.0))
    stop.driver.driver.answer = failing("x" * 400)  # type: ignore[attr-defined]
    at(2.0)
    assert stop.state().failure == "RuntimeError: " + "x" * 300
    stop.driver.driver.answer = lambda: Action(np.nan, 0.0, 0.0)  # type: ignore[attr-defined]
    at(2.1)
    assert stop.state().failure == "the policy gave a number that is not finite for steering"


def test_of_a_discrete_action_only_pure_steering_is_held_and_braking_comes_before_straightening() -> None:
    _, at = stopping(Keys(), Keys().action_of(0))
    assert at(2.0).choice == 0
    assert at(2.5).choice == 2, "not brake and left, though the wheel is not yet straight"
    for pressed in (1, 3):
        _, at = stopping(Keys(), Keys().action_of(pressed))
        assert at(2.0).choice == 4, "neither a pedal is held, nor the steering that came with it"
        assert at(2.5).choice == 2


def test_a_users_mistake_is_no_failure() -> None:
    stop, at = stopping(Waiting(), Action(0.0, 0.0, 0.0))

    def mistake() -> Action:
        raise UserError("wrong file")

    stop.driver.driver.answer = mistake  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="wrong file"):
        at(2.0)
    assert stop.state().failure is None
