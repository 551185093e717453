"""Options of ``nacdrive expert train`` and ``imitate``, and how they change while it runs; imports nothing heavy."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from annotated_types import Interval

from nacdrive.common.errors import UserError, quoted
from nacdrive.common.options import (
    Count,
    Device,
    MinutesOption,
    NotNegative,
    Positive,
    Result,
    SeedOption,
    Share,
    Tracks,
    Workers,
    flag,
)
from nacdrive.drivers.options import ExpertOption, LearningCamera, PupilOptions, WheelOption
from nacdrive.envs.camera_noise import check_rate
from nacdrive.envs.registry import CARRACING
from nacdrive.envs.start import LAP_RULES, LapRule
from nacdrive.envs.world import EnvOption, EpisodeOptions, RepeatOption
from nacdrive.models.presets import FormOption, driving_form
from nacdrive.training.config import BatchOption, EpochsOption, PrecisionOption

if TYPE_CHECKING:
    from nacdrive.models.agents.memory import MemorySpec

NO_MEMORY = "none"
MAX_FRAMES = 1000
"""Of an episode of CarRacing."""
Channels = Annotated[int, Interval(ge=1, le=1024)]


class AgentTraining(FormOption, BatchOption, SeedOption, defaults={"batch_size": 256}):
    """How it is learnt."""

    model: str = NO_MEMORY
    """What the agent remembers with: a sequence layer that streams (lstm, gru, cfc, ltc-ncp, nac-steady, nac-exact,
    s4, mha, ..., or module:MyLayer); none has the last frames alone."""
    memory_window: Annotated[int, Interval(ge=2, le=10**6)] = 16
    """Decisions, the present one included, that the memory holds."""
    memory_width: Count = 64
    """Width of the memory."""
    memory_heads: Count = 4
    """Heads of a memory that is an attention."""
    memory_options: str = "{}"
    """Options of the layer itself as JSON, such as '{"topk": 8}'."""
    sequence_length: Count = 32
    """With a memory: most decisions of a training sequence."""
    learning_rate: tuple[NotNegative, NotNegative] = (3e-4, 6e-6)
    """Learning rate at the start and at the end; falls linearly, of imitate along half a cosine."""
    ema_decay: Share = 0.95
    """Per update (of imitate per minibatch), how much of the averaged weights is kept; the averaged weights are what is
    evaluated and shipped, and of imitate what drives."""
    eval_every: Count = 204_800
    """Decisions (of imitate rounds) between two evaluations on unseen tracks, of train on carracing in the official
    environment, of imitate on the fast renderer."""
    eval_episodes: Count = 10
    """Tracks of each of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        of_memory = ("paper_form", "sequence_length", *(name for name in vars(self) if name.startswith("memory_")))
        for name in of_memory if self.model == NO_MEMORY else ():
            if getattr(self, name) != getattr(type(self), name):
                raise UserError(f"{flag(name)} is for a memory: give --model, such as nac-steady.")
        _ = self.layer_options

    def check_memory(self, most: int) -> None:
        """``UserError`` if it is longer than a drive of ``most`` decisions."""
        window = self.memory_window
        if self.model != NO_MEMORY and window > max(most, AgentTraining.memory_window):
            raise UserError(f"--memory-window is {window}, and a drive has at most {most} decisions: give no more.")

    @property
    def layer_options(self) -> dict[str, Any]:
        with quoted("--memory-options is no JSON (", "): give such as '{\"topk\": 8}'.", json.JSONDecodeError):
            options = json.loads(self.memory_options)
        if not isinstance(options, dict):
            raise UserError("--memory-options is no JSON object: give such as '{\"topk\": 8}'.")
        return options

    def memory_spec(self, gap_s: float) -> MemorySpec | None:
        """The memory of an agent whose decisions are usually ``gap_s`` apart; None for none."""
        if self.model == NO_MEMORY:
            return None
        # Imported here: they bring torch along.
        from nacdrive.layers import check_name
        from nacdrive.models.agents.memory import MemorySpec

        check_name(self.model)
        sizes = (self.memory_window, self.memory_width, self.memory_heads)
        form = driving_form(self.model, paper=self.paper_form)
        return MemorySpec(form.layer, *sizes, gap_s, {**form.options, **self.layer_options})


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
    AgentTraining, EnvOption, RepeatOption, EpochsOption, MinutesOption, Device, Workers,
    defaults={"epochs": 5, "workers": 2},
):  # fmt: skip
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
        if self.batch_size < 2 or self.n_steps * self.n_envs < 2:
            raise UserError("PPO compares decisions: give 2 or more as --batch-size and as --n-steps times --n-envs.")
        if self.shaped:
            self.check_memory(math.ceil(MAX_FRAMES / (self.repeat or 1)))

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


class ImitateConfig(
    AgentTraining, PrecisionOption, ExpertOption, PupilOptions, WheelOption, LearningCamera, Tracks, RepeatOption,
    EpisodeOptions,
    defaults={
        "expert": "racing-line", "steering_noise": 0.4, "episodes": 24, "sequence_length": 8,
        "learning_rate": (1e-3, 2e-5), "ema_decay": 0.998, "repeat": 2, "max_frames": 1000, "rule": LAP_RULES[0],
        "precision": "bfloat16", "eval_every": 2, "eval_episodes": 30,
    },
):  # fmt: skip
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
    frames: Count = 4
    """Frames that the agent sees at once, one for each of its last decisions."""
    channels: tuple[Channels, Channels, Channels] = (32, 64, 64)
    """Of its three convolutions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.learning_rate) <= 0:
            raise UserError("--learning-rate is 0: give numbers above 0.")
        check_rate(self.disturbance, CARRACING.name, CARRACING.frames_per_second)
        self.check_memory(self.most_decisions)

    @property
    def most_decisions(self) -> int:
        """Of a drive; a camera with a rate of its own may ask for one at every frame."""
        return math.ceil(self.max_frames / (self.repeat if self.disturbance.rate is None else 1))

    @property
    def all_steps(self) -> int:
        return self.rounds * self.steps + self.last_steps

    def lr_at(self, step: int) -> float:
        """Learning rate of the minibatch of that number, from 0."""
        first, last = self.learning_rate
        return last + (first - last) * (1 + math.cos(math.pi * min(step / max(self.all_steps - 1, 1), 1.0))) / 2


class ExpertImitateConfig(ImitateConfig, Result):
    """Teach an agent that looks what a driver that knows the track does there: continuous actions, by DAgger."""

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / f"imitate-seed{self.seed}"
