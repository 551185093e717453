"""What a driver decides at one instant, in nacdrive's own units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KEYBOARD = "keyboard"
"""A person, where a name of a driver or an expert stands."""


@dataclass(frozen=True)
class Action:
    """One decision of a driver.

    Conversions to and from a simulator's units live at that simulator's edge only.
    """

    steering: float
    """-1 full left .. 1 full right."""
    throttle: float
    """0 .. 1."""
    brake: float
    """0 .. 1."""
    choice: int | None = None
    """Index of the chosen action where the driver chooses among a few; None where it is continuous."""
    logits: NDArray[np.float32] | None = None
    """Scores of all choices, shape [choices]."""
    human: bool = False
    """Whether a person decided it."""
    policy: Action | None = None
    """What the driver would have done, where a person drives in its stead."""


FULL_BRAKE = Action(0.0, 0.0, 1.0)
