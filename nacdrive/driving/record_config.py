"""The options of ``nacdrive record``; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nacdrive.base.errors import UserError, unknown_name
from nacdrive.base.runs import usable_cores
from nacdrive.sims.seeds import PUPIL_RECORDING, PUPIL_TEST

ENVIRONMENTS = ("carracing",)
OFFICIAL_FRAMES = 1000


@dataclass(frozen=True)
class RecordConfig:
    """Let an expert drive unseen tracks and keep its episodes."""

    env: str = "carracing"
    """What is driven."""
    expert: str = "ppo"
    """Who drives: ppo (the one in agents/), geometric, or the path of an exported PPO policy."""
    episodes: int = 20
    """How many episodes the recording shall hold in the end."""
    out: Path = Path("recordings/carracing-expert")
    """Folder of the recording."""
    seed: int = PUPIL_RECORDING.start
    """Seed of the first track; the following tracks have the following seeds."""
    workers: int = 0
    """Environments driven in parallel, each in a process of its own; 0 means one per core."""
    every_frame: bool = False
    """Record all 50 frames a second instead of one per decision of the expert."""
    min_return: float | None = None
    """Keep only episodes with at least this return; others are dropped, said so, and replaced by further tracks."""
    max_frames: int = OFFICIAL_FRAMES
    """Simulated frames (50 a second) after which an episode ends; 1000 is the official limit."""
    resume: bool = False
    """Go on with the recording in --out until it holds --episodes."""
    overwrite: bool = False
    """Delete the recording in --out first."""

    def __post_init__(self) -> None:
        if self.env not in ENVIRONMENTS:
            raise unknown_name("environment", self.env, ENVIRONMENTS)
        for name in ("episodes", "max_frames"):
            if getattr(self, name) < 1:
                flag = name.replace("_", "-")
                raise UserError(f"--{flag} is {getattr(self, name)}: it must be at least 1.")
        if self.workers < 0:
            raise UserError(f"--workers is {self.workers}: give 0 (one per core) or more.")
        if self.seed < 0:
            raise UserError(f"--seed is {self.seed}: it must not be negative.")
        if self.seed < PUPIL_TEST.stop and self.seed + self.episodes > PUPIL_TEST.start:
            raise UserError(
                f"seeds {self.seed} to {self.seed + self.episodes - 1} reach into those that policies are judged on "
                f"(from {PUPIL_TEST.start}): begin elsewhere, such as at --seed {PUPIL_RECORDING.start}."
            )

    @property
    def parallel(self) -> int:
        """Environments that run at the same time."""
        return min(self.workers or usable_cores(), self.episodes)
