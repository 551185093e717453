"""A person at the arrow keys: sees where the car was a while ago, looks ahead along the road, taps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nacdrive.envs.carracing.tyres import WHEELBASE
from nacdrive.envs.udacity_track.car import FULL_LOCK
from nacdrive.envs.udacity_track.car import WHEELBASE as UDACITY_WHEELBASE


@dataclass(frozen=True)
class Habits:
    """How it drives one kind of car; metres, seconds."""

    wheelbase: float
    lock_rad: float
    """Angle of the front wheels at steering 1."""
    top_mps: float
    grip: float
    """Sideways acceleration that bends are taken with."""
    too_fast_mps: float
    """So far above the speed that a bend allows it brakes."""
    tap: float
    """Share of the wheel's way by which it is off before a key is pressed."""


CARRACING = Habits(WHEELBASE, lock_rad=1.0, top_mps=30.0, grip=130.0, too_fast_mps=4.0, tap=0.02)
UDACITY = Habits(UDACITY_WHEELBASE, math.radians(FULL_LOCK), top_mps=13.0, grip=5.0, too_fast_mps=2.0, tap=0.05)


class KeyDriver:
    """Which keys are held, decision by decision.

    Args:
        line: [N, 2] middle of the road in the direction of travel, closed.
        habits: Of the car.
        reaction_s: So old is what it reacts to.
    """

    def __init__(self, line: NDArray[np.float64], habits: Habits, reaction_s: float) -> None:
        self.line, self.habits, self.reaction_s = line, habits, reaction_s
        step = np.roll(line, -1, axis=0) - line
        heading = np.arctan2(step[:, 1], step[:, 0])
        turn = _wrap(np.roll(heading, -1) - heading)
        self.spacing = float(np.linalg.norm(step, axis=1).mean())
        smooth = np.convolve(np.r_[turn[-3:], turn, turn[:3]], np.ones(7) / 7, "valid")
        self.bend = np.abs(smooth) / self.spacing
        self._seen: list[NDArray[np.float64]] = []

    def keys(self, t_s: float, x_m: float, y_m: float, heading: float, mps: float, wheel: float) -> frozenset[str]:
        """What is held now; ``wheel`` is the steering of the last decision."""
        self._seen.append(np.array((t_s, x_m, y_m, heading, mps)))
        past = [one for one in self._seen if one[0] <= t_s - self.reaction_s + 1e-9]
        if len(past) < 2:
            return frozenset({"up"})
        before, last = past[-2:]
        # People drive by where the car will be when their hands move.
        _, x, y, heading, mps = last + (last - before) / (last[0] - before[0]) * (t_s - last[0])
        # A car that is put back stands from one moment to the next.
        mps = max(mps, 0.0)
        habits, count = self.habits, len(self.line)
        at = int(np.argmin(((self.line - (x, y)) ** 2).sum(axis=1)))
        ahead_x, ahead_y = self.line[(at + round((8.0 + 0.4 * mps) / self.spacing)) % count] - (x, y)
        bearing = float(_wrap(math.atan2(ahead_y, ahead_x) - heading))
        curvature = 2 * math.sin(bearing) / math.hypot(ahead_x, ahead_y)
        wanted = -math.atan(curvature * habits.wheelbase) / habits.lock_rad
        reach = np.arange(3 + round(1.2 * mps / self.spacing))
        limit = min(habits.top_mps, math.sqrt(habits.grip / max(float(self.bend[(at + reach) % count].max()), 1e-6)))
        held = {
            "right": wanted > max(wheel + habits.tap, 0.0),
            "left": wanted < min(wheel - habits.tap, 0.0),
            "up": mps < limit,
            "down": mps > limit + habits.too_fast_mps,
        }
        return frozenset(key for key, on in held.items() if on)


def _wrap(angle: NDArray[np.float64] | float) -> NDArray[np.float64]:
    return np.asarray((angle + math.pi) % (2 * math.pi) - math.pi)
