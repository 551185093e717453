"""Options of ``nacdrive expert train``, and how they change while it runs; imports nothing heavy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from nacdrive.common.errors import UserError
from nacdrive.envs.registry import EnvSpec, env_spec
from nacdrive.rl.memory_config import MemoryConfig


@dataclass(frozen=True)
class Shaping:
    """What training adds to the environment's reward; rewards in the environment's own units."""

    grass: float = 0.8
    """Taken off per frame when all wheels are on grass, in proportion below that."""
    missed_tile: float = 5.0
    """Taken off for each tile left behind without a visit: one missed tile costs the end of the lap."""
    speed: float = 0.0
    """Taken off per frame and unit of speed above ``speed_limit``: the value of speed is over-estimated."""
    speed_limit: float = 62.0
    """Units per second."""
    patience: int = 25
    """Decisions without a new tile that end the episode."""


@dataclass(frozen=True)
class PpoConfig(MemoryConfig):
    """Train a PPO expert; resumable, evaluated on the official environment at intervals."""

    env: str = "carracing"
    """What to drive: carracing, udacity-track, gym:ID, or module:make_env for an environment of your own."""
    actions: Literal["discrete", "continuous"] = "discrete"
    """carracing: the five actions, or steering and pedal; other environments say themselves what they take."""
    timesteps: int = 2_400_000
    """Decisions in all; a decision is held for --repeat frames."""
    minutes: float | None = None
    """End after so many minutes of training, over all resumptions, if --timesteps are not reached before; what is
    scheduled goes by --timesteps. The evaluation at the end comes on top."""
    seed: int = 0
    """Seed of the weights, the sampling and the tracks."""
    n_envs: int = 16
    """Environments that are driven side by side."""
    workers: int = 2
    """Processes that drive them; changes the speed alone."""
    device: str = "cpu"
    """Where the network learns: cpu or cuda."""
    repeat: int | None = None
    """Frames of the simulator for which an action is held; if not given, as the environment has it (carracing: 4)."""
    reward_scale: float = 1.0
    """Factor on the rewards of environments other than carracing, whose own is 0.01."""
    n_steps: int = 256
    """Decisions of each environment between two updates."""
    batch_size: int = 256
    """Decisions in a minibatch."""
    n_epochs: int = 5
    """Passes over the decisions of an update."""
    gamma: float = 0.99
    """Discount of the reward per decision."""
    gae_lambda: float = 0.95
    """Of generalised advantage estimation (Schulman et al., 2016)."""
    clip_range: float = 0.2
    """Clipping of the probability ratio."""
    target_kl: float = 0.04
    """An update ends early beyond this divergence from the policy that drove."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Gradients are clipped to this norm."""
    lr: tuple[float, float] = (3e-4, 6e-6)
    """Learning rate at the start and at the end; linear."""
    ent_coef: tuple[float, float] = (0.01, 0.001)
    """Weight of the entropy at the start and at the end; linear."""
    ema_decay: float = 0.95
    """Per update, how much of the averaged weights is kept; the averaged weights are what is evaluated and shipped."""
    early: Annotated[Shaping, tyro.conf.Suppress] = field(default_factory=Shaping)
    """Shaping of the reward in the first part of the training."""
    late: Annotated[Shaping, tyro.conf.Suppress] = field(default_factory=lambda: Shaping(speed=0.02, patience=40))
    """Shaping of the reward in the last part."""
    late_from: float = 0.45
    """Share of the training after which the last part begins."""
    eval_every: int = 204_800
    """Decisions between two evaluations on unseen tracks, of carracing in the official environment."""
    eval_episodes: int = 10
    """Tracks of each of them."""
    checkpoint_every_s: float = 120.0
    """Seconds between two checkpoints; the first update writes one in any case."""

    def __post_init__(self) -> None:
        super().__post_init__()
        spec = self.spec
        if spec.realtime:
            raise UserError(f"nobody can train on {spec.name}, whose episodes begin when it wants: give another --env.")
        object.__setattr__(self, "env", spec.name)
        object.__setattr__(self, "repeat", self.repeat if self.repeat is not None else spec.repeat)
        if spec.frames_per_second is None and self.repeat != spec.repeat:
            raise UserError(f"--repeat is not for {spec.name}, which has no frames of its own: leave it out.")
        if not spec.agent_actions and self.actions != "discrete":
            raise UserError(f"--actions is for carracing; {spec.name} says itself what it takes: leave it out.")
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise UserError(f"--minutes is {self.minutes:g}: give a finite number above 0.")
        if not (math.isfinite(self.reward_scale) and self.reward_scale > 0):
            raise UserError(f"--reward-scale is {self.reward_scale:g}: give a finite number above 0.")
        for name in ("timesteps", "n_envs", "workers", "repeat", "n_steps", "batch_size", "n_epochs", "eval_every",
                     "eval_episodes"):  # fmt: skip
            if getattr(self, name) < 1:
                raise UserError(f"{_flag(name)} is {getattr(self, name)}: give a number of at least 1.")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"--seed is {self.seed}: it must lie in 0 .. {2**31 - 1}.")
        for name in ("gamma", "gae_lambda", "ema_decay", "late_from"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{_flag(name)} is {getattr(self, name):g}: it must lie in 0 .. 1.")
        for name in ("clip_range", "target_kl", "vf_coef", "max_grad_norm", "lr", "ent_coef", "checkpoint_every_s"):
            value = getattr(self, name)
            given = value if isinstance(value, tuple) else (value,)
            if not all(math.isfinite(number) and number >= 0 for number in given):
                shown = " ".join(f"{number:g}" for number in given)
                raise UserError(f"{_flag(name)} is {shown}: give finite numbers that are not negative.")

    @property
    def spec(self) -> EnvSpec:
        """What there is to know of the environment.

        Raises:
            UserError: if there is none of that name.
        """
        return env_spec(self.env)

    @property
    def shaped(self) -> bool:
        """Whether it learns on the shaped episodes that ``rl`` has for its environment."""
        return self.spec.shaped_training

    def shaping(self, done: float) -> Shaping:
        """The reward's shaping when the share ``done`` of the training lies behind."""
        return self.late if done >= self.late_from else self.early

    def entropy_at(self, done: float) -> float:
        """Weight of the entropy when the share ``done`` of the training lies behind."""
        return self.ent_coef[0] + (self.ent_coef[1] - self.ent_coef[0]) * min(done, 1.0)

    def lr_at(self, remaining: float) -> float:
        """Learning rate when the share ``remaining`` of the training lies ahead (stable-baselines3's convention)."""
        return self.lr[1] + (self.lr[0] - self.lr[1]) * max(remaining, 0.0)


@dataclass(frozen=True)
class ExpertTrainConfig(PpoConfig):
    """Train a PPO expert; resumable, evaluated on the official environment at intervals."""

    out: Path | None = None
    """Folder of the run; runs/expert-seedN unless given."""
    resume: bool = False
    """Continue the run in the folder from its last checkpoint, exactly."""
    overwrite: bool = False
    """Delete what the folder holds and start anew."""
    ray: str | None = None
    """Address of a Ray cluster on which the --workers drive; local starts one on this machine."""

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.out or Path("runs") / f"expert-seed{self.seed}"

    @property
    def settings(self) -> PpoConfig:
        """What the training depends on."""
        return PpoConfig(**{name: getattr(self, name) for name in PpoConfig.__dataclass_fields__})


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
