"""The options of ``nacdrive train``; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.common.runs import usable_cores
from nacdrive.training.config import FitConfig

TASKS = ("carracing", "udacity")
USUAL_DATA = {"carracing": Path("recordings/carracing-expert"), "udacity": Path("recordings/udacity-geometric")}
FREE_TO_CHANGE = (
    "epochs", "dagger", "learning_rate", "patience", "valid_batch", "checkpoint_steps", "clip", "out", "resume",
    "overwrite", "device", "workers",
)  # fmt: skip
"""Options that a resumed training may have changed; with the others it would be another training."""


@dataclass(frozen=True)
class TrainConfig(FitConfig):
    """Train a policy on recordings, and let it practise under its teacher's eyes (DAgger)."""

    task: str = "carracing"
    """What is learnt."""
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
    expert: str = "ppo"
    """Who labels in DAgger: ppo, geometric, or the path of an exported PPO policy; for udacity always geometric."""
    max_frames: int = 1000
    """Simulated frames (50 a second) after which an episode of DAgger ends; 1000 is the official limit."""
    workers: int = 0
    """Environments driven in parallel in DAgger, each in a process of its own; 0 means one per core."""
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
        if self.task not in TASKS:
            raise unknown_name("task", self.task, TASKS)
        if not self.data:
            object.__setattr__(self, "data", (USUAL_DATA[self.task],))
        if self.task == "udacity" and self.expert == "ppo":
            object.__setattr__(self, "expert", "geometric")
        for name in ("window", "dagger_episodes", "dagger_epochs"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name.replace('_', '-')} is {getattr(self, name)}: it must be at least 1.")
        if self.dagger < 0 or self.workers < 0:
            raise UserError("--dagger and --workers must not be negative.")
        if not 0 <= self.beta <= 1:
            raise UserError(f"--beta is {self.beta}: it must lie in 0 .. 1.")

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.out or Path("runs") / f"{self.task}-{self.model}"

    @property
    def file_name(self) -> str:
        """Name of the model file, such as ``nac_steady.pt``."""
        return f"{self.model.replace('-', '_')}.pt"

    @property
    def parallel(self) -> int:
        """Environments that run at the same time."""
        return max(1, min(self.workers or usable_cores(), self.dagger_episodes))
