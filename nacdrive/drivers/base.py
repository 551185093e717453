"""Who decides. A policy, an expert, pure pursuit, a person are Drivers; wrappers change what another one does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.envs.base import DrivingEnv, Frame, Info

Saliency = Callable[[Frame], NDArray[np.float32]]
"""[height, width, 3] -> where a policy looks, [height, width] in 0 .. 1."""


class PolicyFailureError(UserError):
    """A decision that must not reach the car: a safety stop takes over, where there is one."""


class Driver(Protocol):
    """All that the loop asks of whoever decides; a user's own driver needs nothing else."""

    name: str
    """For people, such as ``nac_steady``."""

    def reset(self, env: DrivingEnv) -> None:
        """Forget the episode before; ``env`` has just been reset."""

    def act(self, frame: Frame, info: Info) -> Action:
        """Decide on one frame."""


class DriverWrapper:
    """Changes what another driver does; what it does not change it hands on."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.name = driver.name

    def reset(self, env: DrivingEnv) -> None:
        """Forget the episode before."""
        self.driver.reset(env)

    def act(self, frame: Frame, info: Info) -> Action:
        """Decide on one frame."""
        return self.driver.act(frame, info)

    def before_decision(self) -> None:
        """Called before every decision; may raise ``RestartEpisode``."""
        before = getattr(self.driver, "before_decision", None)
        if before is not None:
            before()

    @property
    def finished(self) -> bool:
        """Whether the episode shall end, such as after a safety stop."""
        return bool(getattr(self.driver, "finished", False))

    @property
    def failure(self) -> str | None:
        """Why a safety stop drives; None while it does not."""
        reason: str | None = getattr(self.driver, "failure", None)
        return reason

    @property
    def held(self) -> bool:
        """Whether the driver's decision before was repeated: it was not asked for this frame."""
        return bool(getattr(self.driver, "held", False))

    def take_events(self) -> tuple[str, ...]:
        """What there is to say since the last decision; said once."""
        take = getattr(self.driver, "take_events", None)
        return take() if take is not None else ()


class FollowExpert:
    """Does what the expert that rides along would do: for recordings, under wrappers that disturb it."""

    def __init__(self, name: str = "expert") -> None:
        self.name = name

    def reset(self, env: DrivingEnv) -> None:
        """Nothing to forget."""

    def act(self, frame: Frame, info: Info) -> Action:
        """The expert's action of this frame.

        Raises:
            RuntimeError: if no expert rides along.
        """
        if "expert_action" not in info:
            raise RuntimeError("no expert rides along: give rollout(expert=...)")
        return info["expert_action"]
