"""Options of ``nacdrive expert train``, and how they change while it runs; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from nacdrive.common.errors import UserError
from nacdrive.common.options import Count, Device, MinutesOption, NotNegative, Positive, Result, Share, Workers
from nacdrive.envs.world import EnvOption, RepeatOption
from nacdrive.rl.memory_config import AgentTraining
from nacdrive.training.config import EpochsOption


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


class PpoConfig(
    AgentTraining,
    EnvOption,
    RepeatOption,
    EpochsOption,
    MinutesOption,
    Device,
    Workers,
    defaults={"epochs": 5, "workers": 2},
):
    """Train a PPO expert; resumable, evaluated on the official environment at intervals."""

    actions: Literal["discrete", "continuous"] = "discrete"
    """carracing: the five actions, or steering and pedal; other environments say themselves what they take."""
    timesteps: Count = 2_400_000
    """Decisions in all; a decision is held for --repeat frames."""
    n_envs: Count = 16
    """Environments that are driven side by side."""
    reward_scale: Positive = 1.0
    """Factor on the rewards of environments other than carracing, whose own is 0.01."""
    n_steps: Count = 256
    """Decisions of each environment between two updates."""
    gamma: Share = 0.99
    """Discount of the reward per decision."""
    gae_lambda: Share = 0.95
    """Of generalised advantage estimation (Schulman et al., 2016)."""
    clip_range: NotNegative = 0.2
    """Clipping of the probability ratio."""
    target_kl: NotNegative = 0.04
    """An update ends early beyond this divergence from the policy that drove."""
    vf_coef: NotNegative = 0.5
    """Weight of the value loss."""
    max_grad_norm: NotNegative = 0.5
    """Gradients are clipped to this norm."""
    ent_coef: tuple[NotNegative, NotNegative] = (0.01, 0.001)
    """Weight of the entropy at the start and at the end; linear."""
    early: Annotated[Shaping, tyro.conf.Suppress] = field(default_factory=Shaping)
    """Shaping of the reward in the first part of the training."""
    late: Annotated[Shaping, tyro.conf.Suppress] = field(default_factory=lambda: Shaping(speed=0.02, patience=40))
    """Shaping of the reward in the last part."""
    late_from: Share = 0.45
    """Share of the training after which the last part begins."""
    checkpoint_every_s: NotNegative = 120.0
    """Seconds between two checkpoints; the first update writes one in any case."""

    def __post_init__(self) -> None:
        spec = self.spec
        if spec.realtime:
            raise UserError(f"nobody can train on {spec.name}, whose episodes begin when it wants: give another --env.")
        super().__post_init__()
        object.__setattr__(self, "repeat", self.repeat if self.repeat is not None else spec.repeat)
        if spec.frames_per_second is None and self.repeat != spec.repeat:
            raise UserError(f"--repeat is not for {spec.name}, which has no frames of its own: leave it out.")
        if not spec.agent_actions and self.actions != "discrete":
            raise UserError(f"--actions is for carracing; {spec.name} says itself what it takes: leave it out.")

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
        return self.learning_rate[1] + (self.learning_rate[0] - self.learning_rate[1]) * max(remaining, 0.0)


class ExpertTrainConfig(PpoConfig, Result):
    """Train a PPO expert; resumable, evaluated on the official environment at intervals."""

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / f"expert-seed{self.seed}"
