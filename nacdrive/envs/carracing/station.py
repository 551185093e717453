"""How far along the road a car of CarRacing is: metres along the middle line, counted on from step to step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

REACH = 20
"""Tiles to each side of the last one among which the nearest is looked for: some 70 m, ten times what a car goes
between two decisions, and less than lies between two stretches of road that pass each other."""


class Station:
    """Follows a car along a closed line.

    Args:
        line: [N, 2] places in metres, in the order in which they are driven; the last is joined to the first.
    """

    def __init__(self, line: NDArray[np.float64]) -> None:
        self._line = line
        self._along = np.roll(line, -1, axis=0) - line
        self._lengths = np.hypot(*self._along.T)
        self._starts = np.concatenate(([0.0], np.cumsum(self._lengths)))
        self._index: int | None = None
        self._place = self._driven = 0.0

    @property
    def length_m(self) -> float:
        return float(self._starts[-1])

    def follow(self, x: float, y: float) -> float:
        """The car is at (``x``, ``y``): metres along the line since the first call; the first looks everywhere."""
        count = len(self._line)
        near = np.arange(count) if self._index is None else (self._index + np.arange(-REACH, REACH + 1)) % count
        away = np.array((x, y)) - self._line[near]
        # The nearest point of each piece of the line, not its nearest corner: else the count would go in steps.
        share = (away * self._along[near]).sum(axis=1) / self._lengths[near] ** 2
        share = np.clip(share, 0.0, 1.0)
        apart = ((away - share[:, None] * self._along[near]) ** 2).sum(axis=1)
        best = int(apart.argmin())
        first, self._index = self._index is None, int(near[best])
        place = float(self._starts[self._index] + share[best] * self._lengths[self._index])
        if not first:
            half = self.length_m / 2
            self._driven += (place - self._place + half) % self.length_m - half
        self._place = place
        return self._driven
