"""What happens when the one who drives fails: hold the course for a moment, straighten, brake until the car stands."""

from __future__ import annotations

import math

import numpy as np

from nacdrive.base.control import Action
from nacdrive.sims.carracing import ACTIONS, to_action

NOTHING, RIGHT, LEFT, BRAKE = (ACTIONS.index(name) for name in ("nothing", "right", "left", "brake"))
HOLD_DECISIONS = 2
"""Decisions for which the last steering is held: a car in a bend must not be let go at once."""
STANDING_MPS = 0.5
"""Slower than this the car stands."""
MOST_DECISIONS = 40
"""The stop is over after so many decisions, whatever the speed says."""


class PolicyFailureError(Exception):
    """A decision that must not reach the car."""


# torch raises RuntimeError (out of memory included); arrays of a wrong shape give ValueError or IndexError.
# Ctrl-C, a mistake of the user's and a bug of the loop itself are not among them.
POLICY_FAILURES = (PolicyFailureError, RuntimeError, ValueError, ArithmeticError, IndexError)


def checked(action: Action) -> Action:
    """``action`` itself if every number of it is finite.

    Raises:
        PolicyFailureError: if one is not.
    """
    numbers = {"steering": action.steering, "throttle": action.throttle, "brake": action.brake}
    bad = [name for name, value in numbers.items() if not math.isfinite(value)]
    if action.logits is not None and not np.isfinite(action.logits).all():
        bad.append("the scores of its actions")
    if bad:
        raise PolicyFailureError(f"the policy gave a number that is not finite for {', '.join(bad)}")
    return action


class SafetyStop:
    """Takes over from a driver that failed."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.finished = False
        self._last = NOTHING
        self._decisions = 0

    def remember(self, action: Action) -> Action:
        """Note the last sound action, to hold its course."""
        self._last = action.choice if action.choice in (RIGHT, LEFT) else NOTHING
        return action

    def begin(self, error: BaseException) -> None:
        """Start the stop; ``error`` says why."""
        kind = "" if isinstance(error, PolicyFailureError) else f"{type(error).__name__}: "
        self.reason = f"{kind}{' '.join(str(error).split())[:300]}"

    def action(self, speed_mps: float | None) -> Action:
        """Next action of the stop; ``finished`` turns true with the last one."""
        self._decisions += 1
        if self._decisions <= HOLD_DECISIONS:
            return to_action(self._last)
        standing = speed_mps is not None and speed_mps < STANDING_MPS
        self.finished = standing or self._decisions >= MOST_DECISIONS
        return to_action(BRAKE)
