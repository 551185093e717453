"""What happens when the one who drives fails: hold the course for a moment, straighten, brake until the car stands."""

from __future__ import annotations

import math

import numpy as np

from nacdrive.common.action import Action
from nacdrive.envs.carracing.env import ACTIONS, to_action

NOTHING, RIGHT, LEFT, BRAKE = (ACTIONS.index(name) for name in ("nothing", "right", "left", "brake"))
HOLD_DECISIONS = 2
"""Decisions for which the last steering is held: a car in a bend must not be let go at once."""
STRAIGHTEN_DECISIONS = 4
"""Decisions over which a wheel that can be turned by degrees is then straightened."""
STANDING_MPS = 0.5
"""Slower than this the car stands."""
MOST_DECISIONS = {"choosing": 40, "steering": 150}
"""The stop is over after so many decisions, whatever the speed says; a world with a wheel may take 50 a second."""


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

    def __init__(self, choosing: bool = True) -> None:
        """``choosing``: whether the world takes one of CarRacing's actions rather than steering and throttle."""
        self.reason: str | None = None
        self.finished = False
        self.choosing = choosing
        self._last = to_action(NOTHING) if choosing else Action(0.0, 0.0, 0.0)
        self._decisions = 0

    def remember(self, action: Action) -> Action:
        """Note the last sound action, to hold its course."""
        if self.choosing:
            self._last = to_action(action.choice if action.choice in (RIGHT, LEFT) else NOTHING)
        else:
            self._last = Action(action.steering, 0.0, 0.0)
        return action

    def begin(self, error: BaseException) -> None:
        """Start the stop; ``error`` says why."""
        kind = "" if isinstance(error, PolicyFailureError) else f"{type(error).__name__}: "
        self.reason = f"{kind}{' '.join(str(error).split())[:300]}"

    def action(self, speed_mps: float | None) -> Action:
        """Next action of the stop; ``finished`` turns true with the last one."""
        self._decisions += 1
        if self._decisions <= HOLD_DECISIONS:
            return self._last
        standing = speed_mps is not None and speed_mps < STANDING_MPS
        self.finished = standing or self._decisions >= MOST_DECISIONS["choosing" if self.choosing else "steering"]
        if self.choosing:
            return to_action(BRAKE)
        share = max(0.0, 1 - (self._decisions - HOLD_DECISIONS) / STRAIGHTEN_DECISIONS)
        return Action(self._last.steering * share, 0.0, 1.0)
