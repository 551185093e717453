"""A person's keys as actions: of CarRacing's five one at a time, or a wheel and a pedal that follow the keys."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gymnasium import spaces

from nacdrive.common.action import Action
from nacdrive.drivers.commands import chooses
from nacdrive.envs.carracing.env import ACTIONS, to_action

RATE = 3.0
"""Full deflections per second of wheel and pedal: Unity's default for keys, so that of the Udacity simulator."""
LONGEST_STEP_S = 0.2


class Keyboard:
    """Keeps wheel and pedal of one episode; a key moves them, letting go moves them back."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.choosing = chooses(space)
        self._steering = self._pedal = 0.0
        self._t_s: float | None = None

    def action(self, keys: Collection[str], t_s: float) -> Action:
        """What ``keys`` mean at ``t_s`` seconds. Of CarRacing's actions the first that is wanted counts: the wheel,
        then the brake, then gas."""
        side = ("right" in keys) - ("left" in keys)
        push = ("up" in keys) - ("down" in keys)
        if self.choosing:
            name = {1: "right", -1: "left"}.get(side) or {1: "gas", -1: "brake"}.get(push) or "nothing"
            return to_action(ACTIONS.index(name))
        step = RATE * min(LONGEST_STEP_S, t_s - self._t_s if self._t_s is not None else 0.0)
        self._t_s = t_s
        self._steering, self._pedal = follow(self._steering, side, step), follow(self._pedal, push, step)
        return Action(self._steering, max(0.0, self._pedal), max(0.0, -self._pedal))


def follow(value: float, target: int, step: float) -> float:
    """``value`` moved towards ``target`` by ``step``; from the far side it starts at the middle."""
    if value * target < 0:
        value = 0.0
    return min(value + step, target) if target > value else max(value - step, target)
