"""At the wheel of one car at a time: a report in, an action out, always; the safety stop where no sound one comes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.drivers.speed_control import SpeedController
from nacdrive.envs.udacity.safety import Safety
from nacdrive.envs.udacity.telemetry import BadTelemetryError, Report

Frame = NDArray[np.uint8]
Decide = Callable[[Frame, float, float], Action]


@dataclass(frozen=True)
class Decision:
    """One picture and what it was answered with."""

    drive: int
    """Number of the drive, from 0; a new one begins with every simulator that connects and after manual driving."""
    step: int
    """Decision within the drive, from 0."""
    t_s: float
    """When the picture came, in seconds since the drive began."""
    frame: Frame
    """uint8 [160, 320, 3], RGB."""
    speed_mps: float
    """Speed that was reported with it."""
    action: Action
    """What is sent: the decision with the speed controller's pedals, or the safety stop's."""
    decision_ms: float
    """Wall-clock time that the decision took."""
    safety: str | None
    """Why the safety stop drives; None while it does not."""


class Wheel:
    """Decides on reports, one at a time, and never fails.

    Args:
        decide: Picture, seconds since the drive began and speed in m/s give an action. Whatever it raises is a reason
            for the safety stop, and so are a number that is not finite and an answer that comes too late.
        begin: Called before the first decision of each drive.
        speed: Gives throttle and brake in place of the action's own; None leaves those.
        lock: Held during a decision.
        compute: Runs what takes its time.
        say: Told of safety stops: a kind and a sentence.
    """

    def __init__(
        self,
        decide: Decide,
        begin: Callable[[], None],
        speed: SpeedController | None,
        lock: AbstractContextManager[Any],
        compute: Callable[..., Any],
        say: Callable[[str, str], None],
    ) -> None:
        self.safety = Safety(time.monotonic())
        self._decide, self._begin, self._speed = decide, begin, speed
        self._lock, self._compute, self._say = lock, compute, say
        self._drive, self._step, self._began_s = -1, 0, 0.0
        self._driver: object = None

    def drive(self, report: Report, driven: object) -> tuple[Action, Decision | None]:
        """The action for a report, and what there is to show of it; another ``driven`` than before is a new drive."""
        arrived = time.monotonic()
        try:
            with self._lock:
                if driven is not self._driver:
                    self._new_drive(driven)
                t_s = time.monotonic() - self._began_s
                frame, action, took_ms = self._compute(self._think, report, t_s)
        except BadTelemetryError as error:
            return self.fail(str(error)), None
        now = time.monotonic()
        failure = self._failure(action, now - arrived)
        if failure is not None:
            action = self.fail(failure)
        elif self.safety.sound(action, now):
            self._say("recovered", "Sound decisions again: the policy drives.")
        if failure is None and self._speed is not None:
            throttle, brake = self._speed.pedals(report.speed_mps, t_s, action.steering)
            action = replace(action, throttle=throttle, brake=brake)
        self._step += 1
        shown = Decision(self._drive, self._step - 1, t_s, frame, report.speed_mps, action, took_ms, self.safety.reason)
        return action, shown

    def _think(self, report: Report, t_s: float) -> tuple[Frame, Action | Exception, float]:
        frame = report.frame()
        began = time.perf_counter()
        decided: Action | Exception
        try:
            decided = self._decide(frame, t_s, report.speed_mps)
        except Exception as error:
            decided = error
        return frame, decided, (time.perf_counter() - began) * 1e3

    def _failure(self, decided: Action | Exception, took_s: float) -> str | None:
        """Why a decision must not reach the car."""
        if isinstance(decided, Exception):
            return f"the policy failed ({type(decided).__name__}: {str(decided)[:200]})"
        if not isinstance(decided, Action):
            return f"the policy gave no action but {type(decided).__name__}"
        if not all(math.isfinite(value) for value in (decided.steering, decided.throttle, decided.brake)):
            return "the policy gave a number that is not finite"
        if took_s > self.safety.limit_s:
            return f"the policy took {took_s:.2f} s"
        return None

    def _new_drive(self, driven: object) -> None:
        self._driver = driven
        self._drive += 1
        self._step = 0
        self._begin()
        if self._speed is not None:
            self._speed.reset()
        self._began_s = time.monotonic()
        self.safety.restart(self._began_s)

    def let_go(self) -> None:
        """Somebody else drives from now on; the next report begins a new drive."""
        self._driver = None
        self.safety.restart(time.monotonic())

    def drives(self, driven: object) -> bool:
        """Whether it is this car that is driven."""
        return driven is self._driver

    def fail(self, reason: str) -> Action:
        """Begin the safety stop, or go on with it; its present action."""
        if self.safety.fail(reason, time.monotonic()):
            self._say("safety", f"Safety stop: {reason}.")
        return self.emergency()

    def emergency(self) -> Action:
        """What the safety stop does at present."""
        return self.safety.action(time.monotonic())
