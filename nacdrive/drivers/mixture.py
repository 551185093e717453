"""The mixture policy of DAgger (Ross, Gordon & Bagnell, 2011): the learner drives, at times the expert does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nacdrive.common.action import Action
from nacdrive.drivers.base import Driver, DriverLike, DriverWrapper
from nacdrive.envs.base import DrivingEnv, Frame, Info

SWITCH = 0.1
"""Probability, at every decision, that it is drawn anew who drives."""


class Mixture(DriverWrapper):
    """Lets the expert that rides along drive for a share ``beta`` of the time, in stretches of 10 decisions on average.

    A driver that steers alone gets the expert's pedals; one with ``pedals`` keeps its own. The driver is asked at every
    decision, so that it keeps its memory. ``expert_first``: whether the expert drives first; None draws that too.
    """

    def __init__(
        self,
        driver: Driver | DriverLike,
        beta: float,
        rng: np.random.Generator,
        *,
        expert_first: bool | None = None,
        pedals: bool = False,
    ) -> None:
        super().__init__(driver)
        self.pedals = pedals
        self.beta, self.rng, self._expert_first = beta, rng, expert_first
        self.decisions = self.by_expert = 0

    def reset(self, env: DrivingEnv) -> None:
        super().reset(env)
        self.decisions = self.by_expert = 0
        drawn = self._expert_first is None
        self._expert_drives = bool(self.rng.random() < self.beta) if drawn else bool(self._expert_first)

    def act(self, frame: Frame, info: Info) -> Action:
        own, expert = self.driver.act(frame, info), info["expert_action"]
        if self.rng.random() < SWITCH:
            self._expert_drives = bool(self.rng.random() < self.beta)
        self.decisions += 1
        self.by_expert += self._expert_drives
        if self._expert_drives:
            return expert
        alone = own.choice is None and not self.pedals
        return replace(own, throttle=expert.throttle, brake=expert.brake) if alone else own

    @property
    def expert_share(self) -> float:
        """Share of the decisions so far that the expert drove."""
        return self.by_expert / max(1, self.decisions)
