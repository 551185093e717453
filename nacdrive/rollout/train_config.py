"""The options of ``nacdrive train``; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.common.runs import usable_cores
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.lap_rules import LapRule
from nacdrive.envs.registry import EnvSpec
from nacdrive.envs.udacity_track.options import RoadOptions
from nacdrive.rollout.record_config import (
    LARGEST_COUNT,
    check_expert,
    check_roads,
    check_workers_and_seed,
    drivable,
    env_of_task,
    labelled_by,
)
from nacdrive.tasks.registry import TASKS, task_of
from nacdrive.training.config import FitConfig

AUTO = "auto"
"""The task that recordings belong to by their source."""
SEEDS_PER_ROUND = 1000
"""Tracks that a round of DAgger can drive."""
FREE_TO_CHANGE = (
    "epochs", "dagger", "learning_rate", "patience", "valid_batch", "checkpoint_steps", "clip", "out", "resume",
    "overwrite", "device", "workers", "ray",
)  # fmt: skip
"""Options that a resumed training may have changed; with the others it would be another training."""


@dataclass(frozen=True)
class TrainConfig(FitConfig):
    """Train a policy on recordings, and let it drive while the expert labels (DAgger)."""

    task: str = "carracing"
    """What is learnt: carracing, udacity, imitation (of whoever drove in any environment), auto (what the recordings
    are of), or a task of your own as my_module:MyTask."""
    env: str | None = None
    """What is driven in DAgger; the environment of the task if not given."""
    model: str = "nac-steady"
    """Sequence layer, such as nac-steady, nac-exact, nac-euler, lstm, or dense for none at all."""
    data: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="DIR [DIR ...]")] = ()
    """Folders of recordings; for udacity also of the simulator's own logs (driving_log.csv). If not given, what
    nacdrive record makes: recordings/carracing-expert or recordings/udacity-geometric."""
    window: int = 4
    """Frames that a decision may depend on; 1 is the paper's form."""
    instruments: bool = True
    """Let the policy see the rows with speed, wheel and gyro (carracing)."""
    dagger: int = 0
    """Rounds of DAgger: drive with the policy, label with the expert, add, continue."""
    dagger_episodes: int = 12
    """Episodes driven in each round."""
    dagger_epochs: int = 8
    """Most epochs after a round that is not the last; first and last, --epochs."""
    beta: float = 0.5
    """Share of the first round in which the expert has the wheel; halved with each further round."""
    expert: str | None = None
    """Who labels in DAgger: ppo, continuous, geometric, the path of an exported PPO policy, or module:MyExpert. If not
    given, who labelled the recordings, where that is an expert known by name, or the environment's usual one."""
    max_frames: int = 1000
    """Simulated frames (50 a second) after which an episode of DAgger ends; 1000 is the official limit."""
    track: str | None = None
    """udacity-track: what is driven in DAgger: lake, mountain, both (if not given, in turn), random or random:SEED."""
    roads: int | None = None
    """udacity-track: of random roads in DAgger, so many different ones in turn, the same as of nacdrive record --roads;
    each episode has its own if not given."""
    road: Annotated[RoadOptions, tyro.conf.arg(name="")] = field(default_factory=RoadOptions)
    """How random roads are, and what is wrong with a road."""
    rule: LapRule | None = None
    """carracing: when a lap is finished in DAgger: as in Gymnasium 1.4 (if not given), or with 95 % of all tiles."""
    disturbance: Annotated[CameraNoise, tyro.conf.arg(name="")] = field(default_factory=CameraNoise)
    """What is wrong with the policy's camera in every second drive of DAgger; the expert sees the true frames."""
    workers: int = 0
    """Environments driven in parallel in DAgger, each in a process of its own; 0 means one per core."""
    ray: str | None = None
    """Address of a Ray cluster that drives in DAgger; local starts one on this machine."""
    device: str = "cpu"
    """cpu or cuda."""
    out: Path | None = None
    """Folder of the run; runs/TASK-MODEL if not given."""
    resume: bool = False
    """Go on with the run in --out."""
    overwrite: bool = False
    """Delete the run in --out first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task == AUTO:
            if not self.data:
                raise UserError("--task auto follows from the recordings: name some with --data.")
            object.__setattr__(self, "task", task_of(self.data))
        if self.task not in TASKS and ":" not in self.task:
            raise unknown_name("task", self.task, TASKS.names())
        spec = self.env_spec
        if spec is None and self.dagger:
            raise UserError(f"no environment is known for the task '{self.task}': name one with --env.")
        if spec is None and not self.data:
            raise UserError(f"the task '{self.task}' has no usual recordings: name some with --data.")
        if spec is not None:
            object.__setattr__(self, "data", self.data or (spec.recording_folder,))
            object.__setattr__(self, "expert", self.expert or labelled_by(self.data, spec) or spec.expert)
        for name in ("window", "dagger_episodes", "dagger_epochs", "max_frames"):
            if not 1 <= getattr(self, name) <= LARGEST_COUNT:
                flag = name.replace("_", "-")
                raise UserError(f"--{flag} is {getattr(self, name)}: it must be at least 1, and at most 10^9.")
        if not 0 <= self.dagger <= LARGEST_COUNT:
            raise UserError(f"--dagger is {self.dagger}: it must not be negative.")
        if self.dagger_episodes > SEEDS_PER_ROUND:
            raise UserError(
                f"--dagger-episodes is {self.dagger_episodes}: a round has {SEEDS_PER_ROUND} tracks at most."
            )
        if spec is not None:
            spec.refuse({"track": self.track, "roads": self.roads, "rule": self.rule, **self.road.given}, "train")
            spec.tracks_of(self.track)
        if self.disturbance.active and not self.dagger:
            raise UserError("the camera's disturbances are of the drives of DAgger: give --dagger a number of rounds.")
        self.road.check(self.track)
        check_roads(self.track, self.roads)
        if not 0 <= self.beta <= 1:
            raise UserError(f"--beta is {self.beta}: it must lie in 0 .. 1.")
        check_workers_and_seed(self.workers, self.seed)
        if self.dagger and spec is not None:
            check_expert(spec, self.expert)
            if self.expert is None:
                raise UserError(f"nobody is known to label drives of {spec.name}: give --expert module:MyExpert.")

    @property
    def env_spec(self) -> EnvSpec | None:
        """What there is to know of the environment of DAgger; None where neither --env nor the task tells."""
        return drivable(self.env) if self.env is not None else env_of_task(self.task)

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.out or Path("runs") / "-".join(name.rpartition(":")[2] for name in (self.task, self.model))

    @property
    def file_name(self) -> str:
        """Name of the model file, such as ``nac_steady.pt``."""
        return f"{self.model.rpartition(':')[2].replace('-', '_')}.pt"

    @property
    def parallel(self) -> int:
        """Environments that run at the same time."""
        return max(1, min(self.workers or usable_cores(), self.dagger_episodes))
