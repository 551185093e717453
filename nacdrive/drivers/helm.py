"""A person at a page in place of the policy, in a simulator that waits for nobody: what keys, pause and reset do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from gymnasium import spaces

from nacdrive.common.action import Action
from nacdrive.drivers.human import ControlState, HumanControl
from nacdrive.drivers.keyboard import Keyboard
from nacdrive.drivers.old_safety_stop import checked
from nacdrive.drivers.speed_control import SpeedController

STAND = Action(0.0, 0.0, 1.0)
"""Of a drive that is paused: the simulator's time goes on, so the car is braked."""
STEERED = spaces.Box(-1.0, 1.0, (2,), np.float32)
PEDALS = {"up", "down"}


@dataclass(frozen=True)
class ByPerson(Action):
    """What a person does in the policy's stead."""

    policy: Action | None = None
    """What the policy would have done."""


class Helm:
    """Does what ``control`` is told, decision by decision; without one the policy's action stands.

    Args:
        control: What people at browsers want.
        speed: Gives throttle and brake in place of the policy's own; None leaves those.
        forget: Called for a reset: the car of a simulator stays where it is, only the policy can start over.
        say: Told of events, in a line each.
    """

    def __init__(
        self,
        control: HumanControl | None,
        speed: SpeedController | None,
        forget: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._control, self._speed, self._forget, self._say = control, speed, forget, say
        self._keyboard: Keyboard | None = None

    def begin(self) -> None:
        """Forget the drive before."""
        self._keyboard = None
        if self._speed is not None:
            self._speed.reset()

    def orders(self) -> ControlState:
        """What holds for the next decision; resets are carried out."""
        if self._control is None:
            return ControlState()
        while (orders := self._control.poll(wait=False)).reset:
            self._forget()
        for event in orders.events:
            self._say(event)
        return orders

    def action(self, own: Action, orders: ControlState, t_s: float, speed_mps: float) -> Action:
        """What drives at ``t_s`` seconds where the policy would do ``own``.

        A person steers; the pedals are the speed controller's while neither of the keys for them is held.

        Raises:
            PolicyFailureError: if a person drives and ``own`` is not finite, for the safety stop has the last word.
        """
        if orders.keys is None or orders.paused:
            self._keyboard = None
        elif self._keyboard is None:
            self._keyboard = Keyboard(STEERED)
        if orders.paused:
            return STAND
        keyed = self._keyboard.action(orders.keys or (), t_s) if self._keyboard is not None else None
        if self._speed is not None:
            steering = own.steering if keyed is None else keyed.steering
            throttle, brake = self._speed.pedals(speed_mps, t_s, steering)
            own = replace(own, throttle=throttle, brake=brake)
        if keyed is None:
            return own
        pedals = keyed if PEDALS & (orders.keys or set()) else own
        return ByPerson(keyed.steering, pedals.throttle, pedals.brake, policy=checked(own))
