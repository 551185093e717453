"""The options of ``nacdrive record``; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.common.runs import usable_cores
from nacdrive.envs.seeds import POLICY_RECORDING, POLICY_TEST

ENVIRONMENTS = ("carracing", "udacity")
OFFICIAL_FRAMES = 1000
FRAMES_PER_SECOND = 50
"""Simulated frames a second, of CarRacing and of the built-in Udacity tracks alike."""
TRACKS = ("lake", "mountain")
USUAL = {
    "carracing": ("ppo", Path("recordings/carracing-expert")),
    "udacity": ("geometric", Path("recordings/udacity-geometric")),
}
"""Expert and folder of each environment."""
KEYBOARD = "keyboard"
"""A person at the page drives."""


@dataclass(frozen=True)
class LakeDrive:
    """What the drives of one recording have in common."""

    track: str
    """``lake`` or ``mountain``; ``both`` takes them in turn, by the seed."""
    seconds: float
    """Simulated seconds after which a drive ends."""
    noise: float = 1.0
    """Strength of the disturbances of the wheel, against which the teacher's label recovers; 0 for none."""
    sides: bool = True
    """Record the side cameras too."""
    beta: float = 1.0
    """Share of the time in which the teacher has the wheel, where a pupil drives too."""

    def track_of(self, seed: int) -> str:
        """The track of a drive."""
        return TRACKS[seed % len(TRACKS)] if self.track == "both" else self.track


@dataclass(frozen=True)
class RecordConfig:
    """Let an expert drive unseen tracks and keep its episodes."""

    env: Annotated[str, tyro.conf.arg(aliases=["--sim"])] = "carracing"
    """What is driven: carracing, or the built-in tracks of udacity."""
    expert: str = ""
    """Who drives: ppo (the one in agents/), geometric, the path of an exported PPO policy, or keyboard: a person at the
    page, in real time. If not given, ppo; udacity knows geometric and keyboard alone."""
    episodes: int = 20
    """How many episodes the recording shall hold in the end."""
    out: Path = Path()
    """Folder of the recording; recordings/carracing-expert or recordings/udacity-geometric if not given."""
    seed: int = POLICY_RECORDING.start
    """Seed of the first track; the following tracks have the following seeds."""
    workers: int = 0
    """Environments driven in parallel, each in a process of its own; 0 means one per core."""
    every_frame: bool = False
    """Record all 50 frames a second instead of one per decision of the expert."""
    min_return: float | None = None
    """Keep only episodes with at least this return; others are dropped, said so, and replaced by further tracks."""
    max_frames: int = OFFICIAL_FRAMES
    """Simulated frames (50 a second) after which an episode ends; 1000 is the official limit."""
    track: Literal["both", "lake", "mountain"] = "both"
    """Track of udacity; both takes them in turn."""
    noise: float = 1.0
    """udacity: strength of the disturbances of the wheel from which the driver recovers; 0 for none."""
    sides: bool = True
    """udacity: record the side cameras too."""
    log: Path | None = None
    """udacity: also write what the simulator itself would have written (driving_log.csv and IMG) to this folder."""
    watch: bool = False
    """Drive in this process alone and show it on the live page."""
    allow_control: bool = False
    """Let the page control the drive; --expert keyboard needs it, with --watch."""
    host: str = "127.0.0.1"
    """Address of that page."""
    port: int = 8090
    """Port of that page; 0 takes a free one."""
    resume: bool = False
    """Go on with the recording in --out until it holds --episodes."""
    overwrite: bool = False
    """Delete the recording in --out first."""

    def __post_init__(self) -> None:
        if self.env not in ENVIRONMENTS:
            raise unknown_name("environment", self.env, ENVIRONMENTS)
        expert, out = USUAL[self.env]
        object.__setattr__(self, "expert", self.expert or expert)
        out = out.with_name(f"{self.env}-keyboard") if self.by_hand else out
        object.__setattr__(self, "out", out if self.out == Path() else self.out)
        known = self.expert in ("geometric", KEYBOARD)
        if self.env == "udacity" and (not known or self.every_frame or self.min_return is not None):
            raise UserError(
                "--sim udacity knows no --expert but geometric and keyboard, no --every-frame and no --min-return."
            )
        if self.by_hand != self.allow_control or (self.by_hand and not self.watch):
            raise UserError("a person drives by the page: --expert keyboard, --watch and --allow-control go together.")
        if self.by_hand and (self.every_frame or self.log is not None):
            raise UserError("--expert keyboard knows no --every-frame and no --log.")
        if self.env != "udacity" and self.log is not None:
            raise UserError("--log is the layout of the Udacity simulator: give --sim udacity with it.")
        if not 0 <= self.noise <= 2:
            raise UserError(f"--noise is {self.noise:g}: it must lie in 0 .. 2.")
        for name in ("episodes", "max_frames"):
            if getattr(self, name) < 1:
                flag = name.replace("_", "-")
                raise UserError(f"--{flag} is {getattr(self, name)}: it must be at least 1.")
        if self.workers < 0:
            raise UserError(f"--workers is {self.workers}: give 0 (one per core) or more.")
        if self.seed < 0:
            raise UserError(f"--seed is {self.seed}: it must not be negative.")
        if self.seed < POLICY_TEST.stop and self.seed + self.episodes > POLICY_TEST.start:
            raise UserError(
                f"seeds {self.seed} to {self.seed + self.episodes - 1} reach into those that policies are judged on "
                f"(from {POLICY_TEST.start}): begin elsewhere, such as at --seed {POLICY_RECORDING.start}."
            )

    @property
    def by_hand(self) -> bool:
        """Whether a person drives."""
        return self.expert == KEYBOARD

    @property
    def parallel(self) -> int:
        """Environments that run at the same time."""
        return min(self.workers or usable_cores(), self.episodes)

    @property
    def lake(self) -> LakeDrive | None:
        """How the built-in tracks are driven, where they are."""
        if self.env != "udacity":
            return None
        return LakeDrive(self.track, self.max_frames / FRAMES_PER_SECOND, self.noise, self.sides)
