"""Who takes part in a closed loop: the world that is driven, the driver, an expert that rides along."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action

Frame = NDArray[np.uint8]
Saliency = Callable[[Frame], NDArray[np.float32]]


class Driver(Protocol):
    """Who decides: a policy, or an expert that drives itself."""

    def reset(self) -> None:
        """Forget the episode before."""

    def step(self, frame: Frame, t_s: float, speed_mps: float | None = None) -> Action:
        """Decide on one frame, taken ``t_s`` seconds after the episode began."""

    def neurons(self) -> Mapping[str, NDArray[np.float32]]:
        """Named neuron states of the last decision; empty where there are none."""


class Observer(Protocol):
    """An expert that rides along: it sees every frame and says what it would have done."""

    def observe(self, frame: Frame) -> Action:
        """The expert's action for ``frame``."""


class World(Protocol):
    """What is driven: a Gymnasium environment whose ``info`` tells time, speed and progress."""

    action_space: Any
    """Discrete: one of a few choices; Box(2): steering and throttle, each -1 .. 1, negative throttle brakes."""

    def reset(self, *, seed: int | None = None) -> tuple[Frame, dict[str, Any]]:
        """Start the track of ``seed``."""

    def step(self, action: Any, /) -> tuple[Frame, Any, bool, bool, dict[str, Any]]:
        """Carry out one decision."""
