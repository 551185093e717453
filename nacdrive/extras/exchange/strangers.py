"""What others' data sets mean in nacdrive's units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAMES = {
    "steering": ("steering", "steer", "steering_angle", "steering_wheel"),
    "throttle": ("throttle", "gas", "gas_pedal", "accelerator"),
    "brake": ("brake", "brake_pedal", "braking"),
}
"""What others call the three numbers of an action, in small letters."""


@dataclass(frozen=True)
class ActionColumns:
    """Which number of an action is which; None where there is none."""

    steering: int
    """-1 full left .. 1 full right."""
    throttle: int | None
    """0 .. 1."""
    brake: int | None
    """0 .. 1."""

    @classmethod
    def of(cls, names: Sequence[str]) -> ActionColumns | None:
        """The columns of an action whose numbers have these names; None if none of them steers or one is unknown."""
        found: dict[str, int] = {}
        for index, name in enumerate(names):
            ours = next((ours for ours, known in NAMES.items() if name.lower() in known), None)
            if ours is None or ours in found:
                return None
            found[ours] = index
        return cls(found["steering"], found.get("throttle"), found.get("brake")) if "steering" in found else None

    def split(self, rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Steering, throttle and brake [frames] of [frames, width] (or [frames]) actions; 0 where there is none.

        Raises:
            ValueError: if the rows are too short.
        """
        rows = rows.reshape(len(rows), -1)
        wanted = [index for index in (self.steering, self.throttle, self.brake) if index is not None]
        if rows.shape[1] != len(wanted):
            raise ValueError(f"has actions of {rows.shape[1]} numbers instead of {len(wanted)}")
        zero = np.zeros(len(rows), np.float32)
        pedals = [zero if index is None else rows[:, index] for index in (self.throttle, self.brake)]
        return rows[:, self.steering], pedals[0], pedals[1]


def check_range(steering: NDArray[Any], throttle: NDArray[Any], brake: NDArray[Any]) -> None:
    """Refuse actions in other units.

    Raises:
        ValueError: if steering is not in -1 .. 1, or a pedal not in 0 .. 1.
    """
    for name, values, low in (("steering", steering, -1), ("throttle", throttle, 0), ("brake", brake, 0)):
        # Written so that NaN is refused too.
        if not ((values >= low) & (values <= 1)).all():
            raise ValueError(
                f"has a {name} from {float(np.min(values)):g} to {float(np.max(values)):g}, and {low} .. 1 is asked for"
            )


def clock(t_s: NDArray[Any], fps: float) -> NDArray[np.float64]:
    """Strictly increasing times in seconds: those given, or where they stand still or run back, even ones."""
    times = np.asarray(t_s, dtype=np.float64)
    if np.isfinite(times).all() and (np.diff(times) > 0).all():
        return times
    return np.arange(len(times), dtype=np.float64) / fps
