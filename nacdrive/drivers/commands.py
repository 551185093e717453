"""From an ``Action`` to what a world's ``step`` takes: one of a few choices, or steering and throttle."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from nacdrive.common.action import Action


def chooses(space: spaces.Space[Any]) -> bool:
    """Whether a world takes one of a few choices (CarRacing) rather than steering and throttle (the lake track).

    Raises:
        TypeError: if it takes neither.
    """
    if isinstance(space, spaces.Discrete):
        return True
    if isinstance(space, spaces.Box) and space.shape == (2,):
        return False
    raise TypeError(f"a world is driven by one of a few choices, or by steering and throttle; this one takes {space}")


def command(space: spaces.Space[Any], action: Action) -> Any:
    """What ``world.step`` takes: the choice itself, or float32 [steering, throttle - brake], each -1 .. 1.

    Raises:
        TypeError: if the world takes a choice and the driver gave none.
    """
    if not chooses(space):
        wanted = np.array([action.steering, action.throttle - action.brake], dtype=np.float32)
        return np.clip(wanted, -1.0, 1.0)
    if action.choice is None:
        raise TypeError("this world takes one of a few actions, and the driver gave none")
    return action.choice
