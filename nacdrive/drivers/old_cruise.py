"""A policy at the wheel, a controller on the pedals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.drivers.roles import Driver, Frame
from nacdrive.drivers.speed_control import SpeedController


class SpeedControl:
    """Lets ``driver`` steer and ``speed`` hold the speed, as the bridge does with the Udacity simulator."""

    def __init__(self, driver: Driver, speed: SpeedController) -> None:
        self._driver, self._speed = driver, speed

    def reset(self) -> None:
        """Forget the drive before."""
        self._driver.reset()
        self._speed.reset()

    def step(self, frame: Frame, t_s: float, speed_mps: float | None = None) -> Action:
        """Decide on one frame; a speed that is unknown counts as 0."""
        action = self._driver.step(frame, t_s, speed_mps)
        throttle, brake = self._speed.pedals(speed_mps or 0.0, t_s, action.steering)
        return replace(action, throttle=throttle, brake=brake)

    def neurons(self) -> Mapping[str, NDArray[np.float32]]:
        """The driver's."""
        return self._driver.neurons()
