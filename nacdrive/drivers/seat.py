"""Who decides: the driver, the safety stop once the driver has failed, or a person who has taken over."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from gymnasium import spaces

from nacdrive.common.action import Action
from nacdrive.drivers.commands import chooses
from nacdrive.drivers.keyboard import Keyboard
from nacdrive.drivers.old_safety_stop import POLICY_FAILURES, SafetyStop, checked
from nacdrive.drivers.roles import Driver, Frame


@dataclass(frozen=True)
class Decision:
    """What was decided on one frame."""

    action: Action
    """What drives."""
    person: bool
    """Whether a person decided it."""
    policy: Action | None
    """What the driver would have done, where a person drives in its stead."""
    took_ms: float
    """Wall-clock time that the driver took, in milliseconds."""
    events: tuple[str, ...]
    """What there is to say of it."""


class Seat:
    """The driver's seat of one episode; without a ``driver`` only a person sits there."""

    def __init__(self, driver: Driver | None, space: spaces.Space[Any]) -> None:
        self.driver = driver
        self.stop = SafetyStop(chooses(space))
        self._space = space
        self._keyboard: Keyboard | None = None

    def decide(self, frame: Frame, t_s: float, speed_mps: float | None, keys: Collection[str] | None) -> Decision:
        """Decide on ``frame``; ``keys`` are those of a person at the wheel, None where there is none.

        The driver is asked in either case: it must not lose the thread, and people want to see what it would do.
        """
        began = time.perf_counter()
        own, events = self._ask(frame, t_s, speed_mps)
        took_ms = (time.perf_counter() - began) * 1e3
        if keys is not None or self.driver is None:
            self._keyboard = self._keyboard or Keyboard(self._space)
            return Decision(self._keyboard.action(keys or (), t_s), True, own, took_ms, events)
        self._keyboard = None
        return Decision(own if own is not None else self.stop.action(speed_mps), False, None, took_ms, events)

    def _ask(self, frame: Frame, t_s: float, speed_mps: float | None) -> tuple[Action | None, tuple[str, ...]]:
        """The driver's decision, None once it has failed."""
        if self.driver is None or self.stop.reason is not None:
            return None, ()
        try:
            return self.stop.remember(checked(self.driver.step(frame, t_s, speed_mps))), ()
        except POLICY_FAILURES as error:
            self.stop.begin(error)
            return None, (f"safety stop: {self.stop.reason}",)
