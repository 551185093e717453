"""Settings of the PPO training, and how they change while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.rl.training_env import Shaping

ENVIRONMENTS = {"carracing": "CarRacing-v3"}


@dataclass(frozen=True)
class PpoConfig:
    """One training run; the defaults are the recipe that made ``agents/carracing/ppo``."""

    env: str = "carracing"
    actions: Literal["discrete", "continuous"] = "discrete"
    timesteps: int = 2_400_000
    """Decisions in all; a decision is held for ``repeat`` frames."""
    seed: int = 0
    n_envs: int = 16
    workers: int = 2
    device: str = "cpu"
    repeat: int = 4
    n_steps: int = 256
    batch_size: int = 256
    epochs: int = 5
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    target_kl: float = 0.04
    value_weight: float = 0.5
    gradient_norm: float = 0.5
    lr: tuple[float, float] = (3e-4, 6e-6)
    """Learning rate at the start and at the end; linear."""
    entropy: tuple[float, float] = (0.01, 0.001)
    """Weight of the entropy at the start and at the end; linear."""
    average: float = 0.95
    """Per update, how much of the averaged weights is kept; the averaged weights are what is evaluated and shipped."""
    early: Shaping = field(default_factory=Shaping)
    late: Shaping = field(default_factory=lambda: Shaping(speed=0.02, patience=40))
    late_from: float = 0.45
    """Share of the training after which ``late`` replaces ``early``."""
    eval_every: int = 204_800
    """Decisions between two evaluations on the official environment."""
    eval_episodes: int = 10
    checkpoint_every_s: float = 120.0

    def __post_init__(self) -> None:
        if self.env not in ENVIRONMENTS:
            raise unknown_name("environment", self.env, ENVIRONMENTS)
        for name in (
            "timesteps",
            "n_envs",
            "workers",
            "repeat",
            "n_steps",
            "batch_size",
            "epochs",
            "eval_every",
            "eval_episodes",
        ):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} is {getattr(self, name)}: give a number of at least 1.")

    def shaping(self, done: float) -> Shaping:
        """The reward's shaping when the share ``done`` of the training lies behind."""
        return self.late if done >= self.late_from else self.early

    def entropy_at(self, done: float) -> float:
        """Weight of the entropy when the share ``done`` of the training lies behind."""
        return self.entropy[0] + (self.entropy[1] - self.entropy[0]) * min(done, 1.0)

    def lr_at(self, remaining: float) -> float:
        """Learning rate when the share ``remaining`` of the training lies ahead (stable-baselines3's convention)."""
        return self.lr[1] + (self.lr[0] - self.lr[1]) * max(remaining, 0.0)
