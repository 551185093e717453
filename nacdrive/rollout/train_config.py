"""The options of ``nacdrive train``; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from annotated_types import Interval

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.common.options import Count, Device, Result, Share, Workers
from nacdrive.drivers.options import CameraOptions, ExpertOption, check_expert
from nacdrive.envs.registry import EnvSpec
from nacdrive.envs.world import EpisodeOptions, LearningRoads, check_world, drivable, env_of_task
from nacdrive.rollout.record_config import OFFICIAL_FRAMES, labelled_by
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
class TrainConfig(
    FitConfig,
    LearningRoads,
    EpisodeOptions,
    ExpertOption,
    CameraOptions,
    Device,
    Result,
    Workers,
    defaults={"max_frames": OFFICIAL_FRAMES},
):
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
    window: Count = 4
    """Frames that a decision may depend on; 1 is the paper's form."""
    instruments: bool = True
    """Let the policy see the rows with speed, wheel and gyro (carracing)."""
    dagger: int = 0
    """Rounds of DAgger: drive with the policy, label with the expert, add, continue."""
    dagger_episodes: Annotated[int, Interval(ge=1, le=SEEDS_PER_ROUND)] = 12
    """Episodes driven in each round."""
    dagger_epochs: Count = 8
    """Most epochs after a round that is not the last; first and last, --epochs."""
    beta: Share = 0.5
    """Share of the first round in which the expert has the wheel; halved with each further round."""

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
        if spec is not None:
            check_world(spec, self, but=("data",))
        if self.disturbance.active and not self.dagger:
            raise UserError("the camera's disturbances are of the drives of DAgger: give --dagger a number of rounds.")
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
        return self.processes(self.dagger_episodes)
