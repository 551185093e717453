"""A driver that looks at nothing: straight on with some gas. What a policy must beat that has learnt anything."""

from __future__ import annotations

from nacdrive.common.action import Action
from nacdrive.drivers.base import Driver
from nacdrive.drivers.discrete import nearest_action
from nacdrive.envs.base import DrivingEnv, Frame, Info


class Constant(Driver):
    """Gives one action all the time; of discrete actions the nearest one."""

    name = "constant"

    def __init__(self, steering: float = 0.0, throttle: float = 0.6, brake: float = 0.0) -> None:
        self.action = self.wanted = Action(steering, throttle, brake)

    def reset(self, env: DrivingEnv) -> None:
        self.action = nearest_action(env, self.wanted)

    def act(self, frame: Frame | None = None, info: Info | None = None) -> Action:
        return self.action
