"""What was done once, done again."""

from __future__ import annotations

from collections.abc import Sequence

from nacdrive.common.action import Action
from nacdrive.drivers.base import Driver, DriverState, Needs
from nacdrive.envs.base import DrivingEnv, Frame, Info


class Rerun(Driver):
    """Drives given actions, and stops the episode after the last."""

    name = "rerun"

    def __init__(self, actions: Sequence[Action]) -> None:
        self.actions = actions
        self._step = 0

    @property
    def needs(self) -> Needs:
        return Needs(continuous=all(action.choice is None for action in self.actions), any_pace=True)

    def reset(self, env: DrivingEnv) -> None:
        self._step = 0

    def act(self, frame: Frame, info: Info) -> Action:
        self._step += 1
        return self.actions[self._step - 1]

    def state(self) -> DriverState:
        return DriverState(finished=self._step >= len(self.actions))
