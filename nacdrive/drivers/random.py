"""A driver that draws what it does: what any policy must beat that has learnt to look."""

from __future__ import annotations

import numpy as np

from nacdrive.common.action import Action
from nacdrive.drivers.base import Driver
from nacdrive.envs.base import DrivingEnv, Frame, Info


class Random(Driver):
    """Every action is drawn alike, by the episode's seed: a choice where there are choices, else wheel and pedal."""

    name = "random"

    def reset(self, env: DrivingEnv) -> None:
        self.env = env
        # Not the environment's own stream, whose first numbers are its day and its start.
        self.rng = np.random.default_rng([env.np_random_seed or 0, 1])

    def act(self, frame: Frame, info: Info) -> Action:
        if self.env.actions:
            return self.env.action_of(int(self.rng.integers(len(self.env.actions))))
        steering, pedal = (float(x) for x in self.rng.uniform(-1, 1, 2))
        return Action(steering, max(0.0, pedal), max(0.0, -pedal))
