"""What Python's callers drive: names and files as on the command line, policies, drivers, environments of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium

from nacdrive.common.errors import UserError
from nacdrive.common.optional import named_extras
from nacdrive.common.paths import find_model
from nacdrive.drivers import DRIVERS, SHIPPED
from nacdrive.drivers.base import Driver, DriverLike, as_driver
from nacdrive.drivers.exported import AnyPolicy
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.gym_env import adapt
from nacdrive.envs.registry import ENVIRONMENTS
from nacdrive.models.frame_policy import FramePolicy
from nacdrive.rollout.drive import LoadedDrive
from nacdrive.rollout.eval_config import EvalConfig

Who: TypeAlias = "str | Path | AnyPolicy | Driver | DriverLike"
"""A name or file that --model or --driver takes, a policy, or a driver of one's own."""
OF_WORLDS = {"disturbance", "laps", "max_frames", "renderer", "repeat", "road", "rule", "start", "track"}
"""Options that shape an environment, or its camera, while it is made."""
World: TypeAlias = str | gymnasium.Env[Any, Any]
"""What --env takes, or an environment, which stays open."""


def rollout(
    policy: Who = "nac_steady", env: World = "carracing", seed: int = 4_000_000, **options: Any
) -> Iterator[Tick]:
    """Drive the episode of ``seed``: the frozen ``Tick`` of each decision, after it was carried out.

    ``options`` are those of ``nacdrive eval``, such as ``expert="ppo"`` who rides along, ``track`` or ``renderer``;
    mistakes raise ``UserError``.
    """
    with named_extras():
        loaded, opened_env, config = load_drive(policy, env, options)
        with loaded.open(seed, track=config.spec.track_of(config.track, seed), env=opened_env) as opened:
            yield from opened


def load_drive(policy: Who, env: World, options: dict[str, Any]) -> tuple[LoadedDrive, DrivingEnv | None, EvalConfig]:
    """What ``nacdrive eval`` drives with these options, the environment where it is open already, the verb's config."""
    opened = None
    if twice := sorted({"driver", "model"} & options.keys()):
        raise UserError(f"{twice[0]}: who drives is the first argument: leave it out.")
    if isinstance(env, gymnasium.Env):
        made = type(env)
        known = f"gym:{env.spec.id}" if env.spec is not None else f"{made.__module__}:{made.__qualname__}"
        opened = adapt(env, getattr(env, "name", known))
        if env.spec is None and not isinstance(env, DrivingEnv):
            # So that a class in a notebook or a function is known by its name too.
            ENVIRONMENTS.register(known, lambda: opened)
        env = opened.name
        if ignored := sorted(OF_WORLDS & options.keys()):
            raise UserError(f"{ignored[0]}: the environment is made already: make it so, or give its name.")
    options = {"expert": "none", **options}
    if not isinstance(policy, (str, Path)):
        if isinstance(policy, type) or not all(callable(getattr(policy, part, None)) for part in ("reset", "act")):
            raise UserError(f"{policy!r} is no driver: give a policy, or what has reset(env) and act(frame, info).")
        driver = PolicyDriver(policy) if isinstance(policy, FramePolicy) else as_driver(policy)  # type: ignore[arg-type]
        config = EvalConfig(env=env, **options)
        # Named after its kind, as a driver that the command line makes: its pedals are its own.
        drive = config.driven(None)
        if not isinstance(driver, PolicyDriver):
            drive = replace(drive, driver=f"{type(policy).__module__}:{type(policy).__qualname__}")
        return LoadedDrive(drive, driver=driver), opened, config
    name = str(policy)
    if name in SHIPPED or name in DRIVERS or (":" in name and not Path(name).exists()):
        config = EvalConfig(env=env, driver=name, **options)
        return config.driven(None).load(), opened, config
    config = EvalConfig(env=env, model=name, **options)
    return config.driven(find_model(name, config.spec.task)).load(), opened, config
