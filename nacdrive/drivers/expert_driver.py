"""An expert in the driver's seat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.drivers.roles import Frame, Observer, World


class ExpertDriver:
    """Lets an expert that usually rides along drive itself; each of its decisions is held for ``hold`` steps."""

    def __init__(self, begin: Callable[[Any], Observer], world: World, hold: int = 1) -> None:
        self._begin, self._world, self._hold = begin, world, hold

    def reset(self) -> None:
        """Begin the episode whose track now stands."""
        self._observer = self._begin(self._world)
        self._count = 0

    def step(self, frame: Frame, t_s: float, speed_mps: float | None = None) -> Action:
        """What the expert does."""
        if self._count % self._hold == 0:
            self._action = self._observer.observe(frame)
        self._count += 1
        return self._action

    def neurons(self) -> Mapping[str, NDArray[np.float32]]:
        """None: an expert shows no neurons."""
        return {}
