"""From names and options to environments: what evaluating, recording and DAgger have in common."""

from __future__ import annotations

import hashlib
import inspect
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nacdrive.common.errors import UserError
from nacdrive.drivers import expert_file, load_driver
from nacdrive.drivers.base import Driver, Needs
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.camera_noise import CameraNoise, NoisyCamera
from nacdrive.envs.registry import EnvSpec

if TYPE_CHECKING:
    from nacdrive.drivers.exported import ExportedPolicy
    from nacdrive.models.policy import Policy


def make_env(spec: EnvSpec, options: Mapping[str, Any], noise: CameraNoise) -> DrivingEnv:
    """The environment, seen through a camera with ``noise``."""
    env = spec.make(options)
    return NoisyCamera(env, noise) if noise.active else env


def action_repeat(spec: EnvSpec, driver: Driver | None, asked: int | None = None) -> int:
    """Frames for which an action of ``driver`` is held: as it was trained, else ``asked``, else as it or the
    environment has it.

    In some environments all but drivers with ``fixed_pace`` take time as it comes.
    """
    needs = Needs() if driver is None else driver.needs
    own = needs.repeat if spec.drivers_pace or needs.fixed_pace else None
    if own and not needs.any_pace:
        return own
    return asked or own or spec.repeat


def check_repeat(spec: EnvSpec, driver: Driver, asked: int | None) -> None:
    """Refuse a pace that ``driver`` was not trained at.

    Raises:
        UserError: for such a one.
    """
    own = action_repeat(spec, driver, asked)
    if asked is not None and own != asked:
        raise UserError(
            f"--repeat is {asked}, and {driver.name} was trained to decide every {own} frames: leave it out."
        )


def step_options(spec: EnvSpec, repeat: int) -> dict[str, Any]:
    """The option that makes an action hold for ``repeat`` frames, where the environment has frames of its own."""
    return {"repeat": repeat} if spec.frames_per_second is not None else {}


def option_if_known(spec: EnvSpec, name: str) -> dict[str, Any]:
    """The option switched on, where the environment can be made with it."""
    return {name: True} if name in inspect.signature(spec.build).parameters else {}


def driver_options(spec: EnvSpec, driver: Driver | None) -> dict[str, Any]:
    """What ``driver`` needs of its environment: to steer by degrees, to see the instruments, to see colours."""
    needs = Needs() if driver is None else driver.needs
    needed = (name for name in ("continuous", "instruments", "colours") if getattr(needs, name))
    return {option: True for name in needed for option in option_if_known(spec, name)}


def usual_expert(spec: EnvSpec, policy: Policy | ExportedPolicy) -> str | None:
    """Who rides along with ``policy`` if nobody says otherwise: who labelled what it learnt, where that is an expert
    that the environment knows by name, or else the environment's usual one.
    """
    taught_by = (policy.meta.get("config") or {}).get("expert")
    return taught_by if taught_by in spec.experts else spec.expert


def recorded_fps(spec: EnvSpec, repeat: int, options: Mapping[str, Any] | None = None) -> float:
    """Decisions per simulated second; a whole number where it is one."""
    if spec.frames_per_second is not None:
        fps = spec.frames_per_second / repeat
    else:
        env = spec.make(options)
        fps = 1 / env.step_s
        env.close()
    return int(fps) if fps == int(fps) else fps


def action_names(spec: EnvSpec, options: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Names of the environment's discrete actions."""
    env = spec.make(options)
    env.close()
    return env.actions


def warn_of_pixels(policy: Policy | ExportedPolicy, renderer: str | None) -> None:
    """Say that ``policy`` sees other pictures than those it learnt from: recordings have the official pixels."""
    if renderer == "fast" and policy.meta.get("renderer") != "fast":
        warnings.warn(
            f"{policy.name} was not trained on the pictures of --renderer fast, which differ from the official ones by "
            "less than a level of 255 on average: leave --renderer out to see how well it drives.",
            stacklevel=2,
        )


def checksum(driver: str) -> str | None:
    """SHA-256 of what a driver is made of: the file of a trained one, the module of a user's own.

    None for those that are part of nacdrive, such as pure pursuit.
    """
    path = expert_file(driver)
    if not path.is_file() and ":" in driver:
        module = sys.modules.get(load_driver(driver).module)
        path = Path(getattr(module, "__file__", None) or "")
    return file_checksum(path) if path.is_file() else None


def file_checksum(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
