"""A drive that begins with the brake on."""

from __future__ import annotations

from nacdrive.common.action import Action
from nacdrive.drivers.base import Driver, DriverLike, DriverWrapper
from nacdrive.drivers.discrete import nearest_action
from nacdrive.envs.base import DrivingEnv, Frame, Info

BRAKE = Action(0.0, 0.0, 1.0)


class StandingStart(DriverWrapper):
    """Brakes for the first ``decisions`` of an episode. The driver is asked all the same: one with a memory comes to
    know what it looks like to stand, which it never would where it drives away at once.
    """

    def __init__(self, driver: Driver | DriverLike, decisions: int) -> None:
        super().__init__(driver)
        self.decisions = decisions

    def reset(self, env: DrivingEnv) -> None:
        super().reset(env)
        self._env, self._left = env, self.decisions

    def act(self, frame: Frame, info: Info) -> Action:
        own = super().act(frame, info)
        self._left -= 1
        return own if self._left < 0 else nearest_action(self._env, BRAKE)
