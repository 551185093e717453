"""Who decides. A policy, an expert, pure pursuit, a person are Drivers; wrappers change what another one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.envs.base import DrivingEnv, Frame, Info

Saliency = Callable[[Frame], NDArray[np.float32] | None]
"""[height, width, 3] -> where a policy looks, [height, width] in 0 .. 1."""
SAME_MPS = 0.05
"""Up to this difference two speeds of a drive and its ``Rerun`` are one."""


class PolicyFailureError(UserError):
    """A decision that must not reach the car: a safety stop takes over, where there is one."""


@dataclass(frozen=True)
class Needs:
    """What a driver needs of its environment, and the pace that it decides at."""

    continuous: bool = False
    """To steer by degrees instead of choosing."""
    instruments: bool = False
    """To see the rows of a frame that show instruments."""
    colours: bool = False
    pedals: bool = True
    """Whether it has the pedals too; one that steers alone gets those of a speed controller or of the expert."""
    repeat: int | None = None
    """Frames for which its actions are held, as it was trained or is meant to drive; None: any number."""
    any_pace: bool = False
    """Whether they may be held for another number than ``repeat`` too: it was not trained."""
    fixed_pace: bool = False
    """Whether ``repeat`` holds in environments too where other drivers take time as it comes."""
    between_frames: bool = False
    """Whether it is asked, with a black frame, where none has come for as long as its actions are usually held."""


@dataclass(frozen=True)
class DriverState:
    """What there is to say of the last decision beside the action."""

    held: bool = False
    """Whether the decision before was repeated: the driver was not asked for this frame."""
    failure: str | None = None
    """Why a safety stop drives; None while it does not."""
    finished: bool = False
    """Whether the episode shall end, such as after a safety stop."""
    events: tuple[str, ...] = ()
    """What has happened since the decision before."""


class Driver:
    """Who decides; all that the loop and the verbs ask of it. The defaults suit a driver without special needs."""

    name: str = ""

    @property
    def needs(self) -> Needs:
        """What it needs of its environment; a class may say ``needs = Needs(...)``."""
        return Needs()

    def reset(self, env: DrivingEnv) -> None:
        """Forget the episode before; ``env`` has just been reset."""

    def before_decision(self) -> None:
        """Called before every decision; may raise ``RestartEpisode``."""

    def act(self, frame: Frame, info: Info) -> Action:
        raise NotImplementedError

    def state(self) -> DriverState:
        """What there is to say of the last decision."""
        return DriverState()

    def vary(self, rng: np.random.Generator) -> dict[str, Any]:
        """Drive in another manner from the next ``reset`` on, as recordings want; returns what they shall say of it."""
        return {}


class DriverLike(Protocol):
    """The least that a driver of one's own has; it may have a ``name``."""

    def reset(self, env: DrivingEnv) -> Any:
        """As of ``Driver``."""

    def act(self, frame: Frame, info: Info) -> Action:
        """As of ``Driver``."""


class OwnDriver(Driver):
    """A user's driver that is no ``Driver``: what it does not declare has the usual value."""

    def __init__(self, driver: DriverLike) -> None:
        self.driver, self.name = driver, getattr(driver, "name", type(driver).__name__)
        self.reset, self.act = driver.reset, driver.act  # type: ignore[method-assign]

    @property
    def needs(self) -> Needs:
        declared = {field.name: getattr(self.driver, field.name, field.default) for field in fields(Needs)}
        return Needs(**declared)  # type: ignore[arg-type]


def as_driver(driver: Driver | DriverLike) -> Driver:
    """``driver`` itself, or a ``Driver`` around a user's own that has only ``reset`` and ``act``."""
    return driver if isinstance(driver, Driver) else OwnDriver(driver)


class DriverWrapper(Driver):
    """Changes what another driver does; what it does not change it hands on."""

    def __init__(self, driver: Driver | DriverLike) -> None:
        self.driver = as_driver(driver)
        self.name = self.driver.name

    @property
    def needs(self) -> Needs:
        return self.driver.needs

    def reset(self, env: DrivingEnv) -> None:
        self.driver.reset(env)

    def before_decision(self) -> None:
        self.driver.before_decision()

    def act(self, frame: Frame, info: Info) -> Action:
        return self.driver.act(frame, info)

    def state(self) -> DriverState:
        return self.driver.state()

    def vary(self, rng: np.random.Generator) -> dict[str, Any]:
        return self.driver.vary(rng)


class FollowExpert(Driver):
    """Does what the expert that rides along would do: for recordings, under wrappers that disturb it."""

    needs = Needs()

    def __init__(self, name: str = "expert", needs: Needs | None = None) -> None:
        self.name, self.needs = name, needs or Needs()

    def act(self, frame: Frame, info: Info) -> Action:
        if "expert_action" not in info:
            raise RuntimeError("no expert rides along: give rollout(expert=...)")
        return info["expert_action"]


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
