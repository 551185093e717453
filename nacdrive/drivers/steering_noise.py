"""A disturbed steering wheel, so that recovering from errors can be recorded and learnt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nacdrive.common.action import Action
from nacdrive.drivers.base import Driver, DriverLike, DriverWrapper
from nacdrive.envs.base import Frame, Info

EVERY_S = 3.0
"""Mean time between two kicks."""
TURN_RAD = 0.35
"""Largest turn of the car by a kick at strength 1, without the last of its decisions."""
JITTER = 0.04
"""Standard deviation of what trembles between the kicks, in steering units."""
WHEELBASE_M = 2.87
"""Of the Udacity simulator's car."""


class SteeringNoise(DriverWrapper):
    """Now and then the wheel is held wrong for a moment; between such kicks it trembles.

    A kick turns the car by up to 0.44 rad times the strength, whatever the speed; where none is told, as if the car
    hardly moved. Decisions are ``step_s`` apart. The driver must steer continuously. An ``rng`` that others draw from
    too is drawn from in the order of the decisions.
    """

    def __init__(self, driver: Driver | DriverLike, strength: float, step_s: float, rng: np.random.Generator) -> None:
        super().__init__(driver)
        self.strength, self.step_s, self.rng = strength, step_s, rng
        self._steps_left, self._kick, self._jitter = 0, 0.0, 0.0

    def act(self, frame: Frame, info: Info) -> Action:
        action = self.driver.act(frame, info)
        steering = float(np.clip(action.steering + self.offset(float(info.get("speed_mps") or 0.0)), -1, 1))
        return replace(action, steering=steering)

    def offset(self, speed_mps: float) -> float:
        """What is added to the steering now; drawn anew at every call."""
        rng = self.rng
        self._jitter = 0.8 * self._jitter + 0.6 * JITTER * float(rng.normal())
        if self._steps_left > 0:
            self._steps_left -= 1
        elif rng.random() < self.step_s / EVERY_S:
            self._steps_left = int(rng.integers(4, 10))
            turn = float(rng.uniform(-TURN_RAD, TURN_RAD))
            # Yaw rate of a bicycle: v / wheelbase * tan(steering * 25 degrees), nearly linear here.
            reach = max(speed_mps, 3.0) * self._steps_left * self.step_s * 0.436
            self._kick = float(np.clip(turn * WHEELBASE_M / reach, -0.8, 0.8))
        else:
            self._kick = 0.0
        return self.strength * (self._kick + self._jitter)
