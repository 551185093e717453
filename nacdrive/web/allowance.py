"""How much one browser may ask for: so many messages a second on average, a few more at once."""

from __future__ import annotations

import time

RATE = 20.0
"""Messages a second that one viewer may send on average; ghosts, laps and occlusion maps count fourfold."""
BURST = 40.0


class Allowance:
    """A token bucket: so many questions a second on average, a few more at once."""

    def __init__(self) -> None:
        self._left, self._filled = BURST, time.monotonic()

    def take(self, cost: float) -> bool:
        """Whether a question of that cost may be asked now."""
        now = time.monotonic()
        self._left = min(BURST, self._left + (now - self._filled) * RATE)
        self._filled = now
        if self._left < cost:
            return False
        self._left -= cost
        return True
