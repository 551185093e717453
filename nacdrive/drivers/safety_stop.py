"""What happens when the one who drives fails: hold the course for a moment, straighten, brake until the car stands."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from nacdrive.common.action import Action
from nacdrive.common.emergency_stop import EmergencyStop
from nacdrive.common.errors import UnfitFrameError, UserError
from nacdrive.drivers.base import Driver, DriverLike, DriverState, DriverWrapper, PolicyFailureError
from nacdrive.drivers.discrete import nearest_action
from nacdrive.envs.base import DrivingEnv, Frame, Info

STANDING_MPS = 0.5
"""Slower than this the car stands."""
LONGEST_STOP_S = 3.2
"""The stop is over after this time, whatever the speed says."""


def checked(action: Action, choices: int = 0) -> Action:
    """``action`` if it can be carried out, else ``PolicyFailureError``; one of ``choices`` unless those are 0."""
    if not isinstance(action, Action):
        raise PolicyFailureError(f"the driver gave no Action but {type(action).__name__}")
    numbers = {"steering": action.steering, "throttle": action.throttle, "brake": action.brake}
    bad = [name for name, value in numbers.items() if not math.isfinite(value)]
    if action.logits is not None and not np.isfinite(action.logits).all():
        bad.append("the scores of its actions")
    if bad:
        raise PolicyFailureError(f"the policy gave a number that is not finite for {', '.join(bad)}")
    if choices and (action.choice is None or not 0 <= action.choice < choices):
        raise PolicyFailureError(f"the driver chose action {action.choice}, and there are 0 to {choices - 1}")
    return action


class SafetyStop(DriverWrapper):
    """Takes over from a driver that fails: an exception, a number that is not finite, an unknown choice.

    In a simulator that waits for decisions the stop ends the episode; where time passes by itself the driver is asked
    with every frame, and drives again once it is sound. A user's mistake (``UserError``) and Ctrl-C are no failures.
    """

    def __init__(self, driver: Driver | DriverLike) -> None:
        super().__init__(driver)
        self._stop = EmergencyStop()
        self._state = DriverState()

    def reset(self, env: DrivingEnv) -> None:
        self._env, self._state = env, DriverState()
        self._stop.restart(0.0)
        super().reset(env)

    def act(self, frame: Frame, info: Info) -> Action:
        t_s = float(info["t_s"])
        events: tuple[str, ...] = ()
        if self._stop.reason is None or self._env.realtime:
            try:
                action = checked(self.driver.act(frame, info), len(self._env.actions))
            except Exception as error:
                if isinstance(error, UserError) and not isinstance(error, PolicyFailureError | UnfitFrameError):
                    raise
                events = self._fail(error, t_s)
            else:
                self._state = self.driver.state()
                # Of a discrete action the steering is held only where it does nothing but steer.
                pedals = self._env.actions and (action.throttle or action.brake)
                if self._stop.sound(replace(action, steering=0.0) if pedals else action, t_s):
                    resumed = "sound decisions again: the policy drives"
                    self._state = replace(self._state, events=(resumed, *self._state.events))
                return action
        speed_mps = info.get("speed_mps")
        action = self._stop.action(t_s)
        # While the course is held, a car that stands has only just been started.
        is_standing = speed_mps is not None and speed_mps < STANDING_MPS and action.brake > 0
        finished = not self._env.realtime and (is_standing or t_s - self._stop.began_s >= LONGEST_STOP_S)
        self._state = DriverState(failure=self._stop.reason, finished=finished, events=events)
        if self._env.actions and action.brake:
            # One discrete action at a time: braking comes before straightening.
            action = replace(action, steering=0.0)
        return nearest_action(self._env, action)

    def state(self) -> DriverState:
        return self._state

    def _fail(self, error: Exception, t_s: float) -> tuple[str, ...]:
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        is_new = self._stop.fail(f"{kind}{' '.join(str(error).split())[:300]}", t_s)
        return (f"safety stop: {self._stop.reason}",) * is_new
