"""Options of ``nacdrive expert imitate``; imports nothing heavy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from nacdrive.common.errors import UserError
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.lap_rules import LAP_RULES, LapRule
from nacdrive.rl.memory_config import MemoryConfig

FREE_TO_CHANGE = ("rounds", "last_steps", "eval_every", "eval_episodes")
"""Options that a resumed run may have changed: it becomes longer or shorter, and its learning rate falls to fit."""


@dataclass(frozen=True)
class ImitateConfig(MemoryConfig):
    """Teach an agent that looks what a driver that knows the track does there: continuous actions, by DAgger."""

    teacher: str = "racing-line"
    """Who gives the labels: a driver of CarRacing with continuous actions, or module:MyDriver."""
    seed: int = 0
    """Seed of the weights, the minibatches and the tracks."""
    rounds: int = 8
    """Rounds: drive, label, learn. In the first one the teacher drives."""
    episodes: int = 24
    """Tracks of each round, every one a new one."""
    steps: int = 500
    """Minibatches after each round."""
    last_steps: int = 800
    """Minibatches after the last round, on top."""
    batch_size: int = 256
    """Decisions in a minibatch."""
    sequence_length: int = 8
    """With a memory: most decisions of a training sequence; few, for neighbours are alike."""
    lr: tuple[float, float] = (1e-3, 2e-5)
    """Learning rate at the first and at the last minibatch; falls along half a cosine."""
    ema_decay: float = 0.998
    """Per minibatch, how much of the averaged weights is kept; the averaged weights drive and are kept."""
    beta: float = 0.5
    """Share of the second round that the teacher drives; halved with each further round."""
    steering_noise: float = 0.4
    """Strength of what disturbs the wheel, in every second episode; 0 for none."""
    disturbance: Annotated[CameraNoise, tyro.conf.arg(name="")] = field(default_factory=CameraNoise)
    """What is wrong with the agent's camera; the teacher knows the track all the same."""
    frames: int = 4
    """Frames that the agent sees at once, one for each of its last decisions."""
    instruments: bool = True
    """Whether it sees the instruments: speed, turning of the wheels, steering, yaw rate."""
    channels: tuple[int, int, int] = (32, 64, 64)
    """Of its three convolutions."""
    repeat: int = 2
    """Frames of the simulator for which an action is held."""
    max_frames: int = 1000
    """Simulated frames after which a lap ends; 1000 is the official limit."""
    rule: LapRule = LAP_RULES[0]
    """When a lap is finished."""
    precision: str = "bfloat16"
    """Of the minibatches' arithmetic: bfloat16, or float32 for processors without it."""
    eval_every: int = 2
    """Rounds between two evaluations on unseen tracks, on the fast renderer."""
    eval_episodes: int = 30
    """Tracks of each of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (
            "rounds",
            "episodes",
            "steps",
            "batch_size",
            "frames",
            "repeat",
            "max_frames",
            "eval_every",
            "eval_episodes",
        ):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} is {getattr(self, name)}: give a number of at least 1.")
        if self.last_steps < 0:
            raise UserError(f"--last-steps is {self.last_steps}: it must not be negative.")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"--seed is {self.seed}: it must lie in 0 .. {2**31 - 1}.")
        for name in ("beta", "ema_decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"--{name.replace('_', '-')} is {getattr(self, name):g}: it must lie in 0 .. 1.")
        if not all(1 <= number <= 1024 for number in self.channels):
            raise UserError(f"--channels are {' '.join(map(str, self.channels))}: give numbers from 1 to 1024.")
        if not (math.isfinite(self.steering_noise) and self.steering_noise >= 0):
            raise UserError(f"--steering-noise is {self.steering_noise:g}: give a finite number that is not negative.")
        if not all(math.isfinite(rate) and rate > 0 for rate in self.lr):
            raise UserError(f"--lr is {self.lr[0]:g} {self.lr[1]:g}: give finite numbers above 0.")
        if self.precision not in ("bfloat16", "float32"):
            raise UserError(f"--precision is {self.precision}: give bfloat16 or float32.")

    @property
    def all_steps(self) -> int:
        """Minibatches in all."""
        return self.rounds * self.steps + self.last_steps

    def lr_at(self, step: int) -> float:
        """Learning rate of the minibatch of that number, from 0."""
        share = min(step / max(self.all_steps - 1, 1), 1.0)
        return self.lr[1] + (self.lr[0] - self.lr[1]) * (1 + math.cos(math.pi * share)) / 2


@dataclass(frozen=True)
class ExpertImitateConfig(ImitateConfig):
    """Teach an agent that looks what a driver that knows the track does there: continuous actions, by DAgger."""

    out: Path | None = None
    """Folder of the run; runs/imitate-seedN unless given."""
    resume: bool = False
    """Continue the run in the folder after its last whole round."""
    overwrite: bool = False
    """Delete what the folder holds and start anew."""

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.out or Path("runs") / f"imitate-seed{self.seed}"

    @property
    def settings(self) -> ImitateConfig:
        """What the training depends on."""
        return ImitateConfig(**{name: getattr(self, name) for name in ImitateConfig.__dataclass_fields__})
