"""What a car does when no sound decision comes: hold the course for a moment, straighten the wheel, brake.

It counts seconds, not decisions, so it is the same for every simulator and pace.
"""

from __future__ import annotations

from nacdrive.common.action import Action

HOLD_S = 0.3
"""The last steering is held for so long: a car in a bend must not be let go at once."""
STRAIGHTEN_S = 0.4
"""The wheel is straightened over this time."""


class EmergencyStop:
    """Knows when decisions fail and what to do until they are sound again. All times are the caller's, in seconds."""

    def __init__(self, now_s: float = 0.0, limit_s: float = 0.3) -> None:
        self.limit_s = limit_s
        self.restart(now_s)

    def restart(self, now_s: float) -> None:
        """Forget all: somebody new is driven, and the first decision is awaited from now on."""
        self.reason: str | None = None
        """Why it drives; None while it does not."""
        self.began_s = now_s
        self._steering, self._sound_s = 0.0, now_s

    def sound(self, action: Action, now_s: float) -> bool:
        """Note a sound decision; True if it ends an emergency."""
        recovered = self.reason is not None
        self.reason = None
        self._steering, self._sound_s = action.steering, now_s
        return recovered

    def fail(self, reason: str, now_s: float, held_s: float = 0.0) -> bool:
        """Note that there is no sound decision; True if an emergency begins or has another reason than before.

        ``held_s``: for how long the last action has been held already.
        """
        news = reason != self.reason
        if self.reason is None:
            self.began_s = now_s - min(held_s, HOLD_S)
        self.reason = reason
        return news

    def overdue(self, now_s: float) -> bool:
        """Whether the last sound decision is longer ago than is allowed."""
        return now_s - self._sound_s > self.limit_s

    def action(self, now_s: float) -> Action:
        since = now_s - self.began_s - HOLD_S
        if since <= 0:
            return Action(self._steering, 0.0, 0.0)
        return Action(self._steering * max(0.0, 1 - since / STRAIGHTEN_S), 0.0, 1.0)
