"""Drivers of CarRacing for the tests of the arena: they need no network, so that their processes start quickly."""

from __future__ import annotations

import time
from typing import Any

from nacdrive.common.action import Action


class Straight:
    """Full gas, straight ahead."""

    name = "straight"

    def reset(self, env: Any) -> None:
        self.env = env

    def act(self, frame: Any, info: Any) -> Action:
        return self.env.action_of(3)  # type: ignore[no-any-return]


class Slow(Straight):
    """The same, after some thought."""

    def act(self, frame: Any, info: Any) -> Action:
        time.sleep(0.02)
        return super().act(frame, info)


class Broken(Straight):
    """Cannot even begin."""

    def reset(self, env: Any) -> None:
        raise ValueError("no such road")


class Steers(Straight):
    """Gives steering where one of five actions is asked for."""

    def act(self, frame: Any, info: Any) -> Action:
        return Action(0.3, 1.0, 0.0)
