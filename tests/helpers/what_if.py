"""A small policy on short CarRacing drives, to be asked what would be if; loads in the process that answers."""

from __future__ import annotations

from functools import cache

import torch

from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.registry import env_spec
from nacdrive.extras.what_if.process import WhatIfSource
from nacdrive.extras.what_if.what_if import Simulation, WhatIf
from nacdrive.models import Policy
from nacdrive.models.config import PolicyConfig
from nacdrive.rollout.rollout import Probes, rollout

SEED = 4_000_000
FRAMES = 160
ACTIONS = ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.8))


def small_policy() -> Policy:
    torch.manual_seed(3)
    return Policy.new(PolicyConfig("carracing", "nac-steady", ACTIONS, window=4, d_model=16, num_heads=4), "small")


def make_env(seed: int = SEED) -> DrivingEnv:
    return env_spec("carracing").make({"max_frames": FRAMES, "repeat": 4, "renderer": "fast"})


def load() -> WhatIf:
    torch.set_num_threads(1)
    return WhatIf(small_policy(), Simulation(make_env))


def load_without_world() -> WhatIf:
    return WhatIf(small_policy())


SOURCE = WhatIfSource(load, window=4, ghost=True)


@cache
def drive() -> tuple[Tick, ...]:
    """The policy's drive from start to end, with its neurons."""
    torch.set_num_threads(1)
    driver = PolicyDriver(small_policy())
    return tuple(rollout(make_env(), driver, SEED, probes=Probes(driver.neurons, 1)))
