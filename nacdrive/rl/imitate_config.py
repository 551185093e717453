"""Options of ``nacdrive expert imitate``; imports nothing heavy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Interval

from nacdrive.common.errors import UserError
from nacdrive.common.options import Count, Result, Share, Tracks
from nacdrive.drivers.options import ExpertOption, LearningCamera, PupilOptions, WheelOption
from nacdrive.envs.start import LAP_RULES, LapRule
from nacdrive.envs.world import EpisodeOptions, RepeatOption
from nacdrive.rl.memory_config import AgentTraining
from nacdrive.training.config import PrecisionOption

Channels = Annotated[int, Interval(ge=1, le=1024)]
FREE_TO_CHANGE = ("rounds", "last_steps", "eval_every", "eval_episodes")
"""Options that a resumed run may have changed: it becomes longer or shorter, and its learning rate falls to fit."""


class ImitateConfig(
    AgentTraining,
    PrecisionOption,
    ExpertOption,
    PupilOptions,
    WheelOption,
    LearningCamera,
    Tracks,
    RepeatOption,
    EpisodeOptions,
    defaults={
        "expert": "racing-line",
        "steering_noise": 0.4,
        "episodes": 24,
        "sequence_length": 8,
        "learning_rate": (1e-3, 2e-5),
        "ema_decay": 0.998,
        "repeat": 2,
        "max_frames": 1000,
        "rule": LAP_RULES[0],
        "precision": "bfloat16",
        "eval_every": 2,
        "eval_episodes": 30,
    },
):
    """Teach an agent that looks what a driver that knows the track does there: continuous actions, by DAgger.

    --episodes are of each round, every one on a new track; the wheel is disturbed in every second one.
    """

    if TYPE_CHECKING:
        # Never None, as of other verbs.
        expert: str
        repeat: int
        max_frames: int
        rule: LapRule

    rounds: Count = 8
    """Rounds: drive, label, learn. In the first one the expert drives."""
    steps: Count = 500
    """Minibatches after each round."""
    last_steps: int = 800
    """Minibatches after the last round, on top."""
    bad_starts: Share = 0.0
    """Share of the drives that begin badly: the car is first driven off the road and stands, so that the way back is
    learnt."""
    frames: Count = 4
    """Frames that the agent sees at once, one for each of its last decisions."""
    channels: tuple[Channels, Channels, Channels] = (32, 64, 64)
    """Of its three convolutions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.learning_rate) <= 0:
            raise UserError("--learning-rate is 0: give numbers above 0.")

    @property
    def all_steps(self) -> int:
        return self.rounds * self.steps + self.last_steps

    def lr_at(self, step: int) -> float:
        """Learning rate of the minibatch of that number, from 0."""
        share = min(step / max(self.all_steps - 1, 1), 1.0)
        return (
            self.learning_rate[1]
            + (self.learning_rate[0] - self.learning_rate[1]) * (1 + math.cos(math.pi * share)) / 2
        )


class ExpertImitateConfig(ImitateConfig, Result):
    """Teach an agent that looks what a driver that knows the track does there: continuous actions, by DAgger."""

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / f"imitate-seed{self.seed}"
