"""A drive in which somebody else has the wheel for a while."""

from __future__ import annotations

from nacdrive.common.action import Action
from nacdrive.drivers.base import Driver, DriverLike, DriverWrapper
from nacdrive.drivers.discrete import nearest_action
from nacdrive.envs.base import DrivingEnv, Frame, Info


class Override(DriverWrapper):
    """Each of ``actions`` until its time, in seconds of the episode, in the place of what the driver decides; None, and
    after the last one, is what it decides itself. It is asked all the same: one with a memory comes to know how it got
    where it is, and what it looks like to stand.
    """

    def __init__(self, driver: Driver | DriverLike, *actions: tuple[float, Action | None]) -> None:
        super().__init__(driver)
        self.actions = actions

    def reset(self, env: DrivingEnv) -> None:
        super().reset(env)
        self._env = env

    def act(self, frame: Frame, info: Info) -> Action:
        own = super().act(frame, info)
        action = next((action for until_s, action in self.actions if info["t_s"] < until_s), None)
        return own if action is None else nearest_action(self._env, action)
