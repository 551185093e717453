"""The options of ``nacdrive bench``; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from nacdrive.common.errors import UserError
from nacdrive.common.options import LARGEST
from nacdrive.common.runs import usable_cores

BudgetName = Literal["smoke", "cpu", "full"]
FOLDS: dict[BudgetName, int] = {"smoke": 1, "cpu": 1, "full": 5}
"""Folds where none are asked for; what else a budget means says each task's ``sizes``."""
Several = tyro.conf.arg(metavar="NAME [NAME ...]")


@dataclass(frozen=True)
class TableConfig:
    """Train and test models x tasks x folds, and print the paper's table."""

    tasks: Annotated[tuple[str, ...], Several] = ()
    """emnist, par, carracing, udacity, pronostia, xjtu-sy, hust; all of these if not given. Also my_module:MyTask."""
    models: Annotated[tuple[str, ...], Several] = ()
    """Sequence layers; all of nacdrive's if not given. Also my_module:MyLayer."""
    folds: int = 0
    """Trainings per task and model; 0: one under smoke and cpu, five under full."""
    seeds: int = 1
    """Trainings per fold, each from other random weights; the table shows how far they differ."""
    references: bool = True
    """Rows of what is no model beside the models: constants, the clock alone."""
    protocol: Literal["sequence", "paper", "challenge"] = "sequence"
    """sequence: real sequences, split by person, bearing or episode. paper: as the paper and its scripts. challenge:
    pronostia as the IEEE PHM 2012 challenge posed it."""
    budget: BudgetName = "smoke"
    """smoke: minutes for everything, its numbers mean nothing; cpu: minutes per training; full: as the paper."""
    data: Path = Path("data")
    """Folder with a folder of data per task: mnist, par, carracing, udacity, pronostia, xjtu-sy, hust."""
    epochs: int = 0
    """Most epochs; 0: as the budget says."""
    most: int = 0
    """About how many sequences to learn from; 0: as the budget says."""
    drive: int = 0
    """Tracks that a trained policy of carracing or udacity drives; 0: as the budget says."""
    seed: int = 0
    """Seeds splits, weights and batches."""
    device: str = "cpu"
    """cpu or cuda."""
    workers: int = 0
    """Cells at a time, each in a process of its own; 0: one per core."""
    ray: str = ""
    """Address of a Ray cluster to run on instead, or local for one on this machine."""
    out: Path | None = None
    """Folder of the result; runs/bench-PROTOCOL-BUDGET if not given."""
    resume: bool = False
    """Keep the cells that --out holds, compute those that are missing or failed."""
    overwrite: bool = False
    """Delete the result in --out first."""

    def __post_init__(self) -> None:
        for name in ("folds", "epochs", "most", "drive", "seed", "workers"):
            if not 0 <= getattr(self, name) <= LARGEST:
                raise UserError(f"--{name} is {getattr(self, name)}: it must be at least 0 and at most {LARGEST}.")
        if not 1 <= self.seeds <= 100:
            raise UserError(f"--seeds is {self.seeds}: it must be at least 1 and at most 100.")

    @property
    def folder(self) -> Path:
        """Folder of the result."""
        return self.out or Path("runs") / f"bench-{self.protocol}-{self.budget}"

    @property
    def fold_count(self) -> int:
        """Folds that are wanted."""
        return self.folds or FOLDS[self.budget]

    @property
    def parallel(self) -> int:
        """Cells at a time."""
        return self.workers or (1 if self.device.startswith("cuda") else usable_cores())


@dataclass(frozen=True)
class PlanConfig(TableConfig):
    """Say what a table would cost: cells, core-hours and memory, from what such cells have cost; computes nothing."""

    costs: tuple[Path, ...] = ()
    """Folders or files of earlier results; those in --out count too. A smoke run of minutes measures every layer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("resume", "overwrite", "ray"):
            if getattr(self, name):
                raise UserError(f"--{name} means nothing to 'bench plan', which only counts: leave it out.")


@dataclass(frozen=True)
class RunConfig(TableConfig):
    """Compute a part of a table, and go on with it at the next call; the table so far is written each time."""

    hours: float = 1.0
    """End after so many hours; cells under way go on from their checkpoints at the next call."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.hours <= 10_000:
            raise UserError(f"--hours is {self.hours:g}: give a number above 0, and at most 10000.")
        if not self.overwrite:
            object.__setattr__(self, "resume", True)


@dataclass(frozen=True)
class ReportConfig:
    """Compare the layers of one or many runs: paired differences with intervals, ranks, cost against quality."""

    results: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of 'bench table' or 'bench run', or their results.jsonl, of any machines: merged cell by cell."""
    out: Path = Path("runs/bench-report")
    """Folder of report.md, .csv, .tex, .html and the figures."""
    overwrite: bool = False
    """Replace the report that is there."""

    def __post_init__(self) -> None:
        if not self.results:
            raise UserError("name the results to compare, such as runs/bench-sequence-cpu.")


@dataclass(frozen=True)
class RobustnessConfig:
    """Test trained cells on what they were not trained for: steps dropped, gaps jittered, time hidden; trains nothing.

    The same command goes on where it was stopped, and adds what the runs have got in the meantime.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders of 'bench table' or 'bench run', with the models in their 'cells'."""
    models: Annotated[tuple[str, ...], Several] = ()
    """Sequence layers; all that the runs hold if not given."""
    most_tests: int = 0
    """Test sequences of each model, evenly thinned; 0: all."""
    seed: int = 0
    """Seeds what is dropped and how gaps are changed: the same for all layers."""
    workers: int = 0
    """Models at a time, each in a process of its own; 0: one per core."""
    out: Path = Path("runs/bench-robustness")
    """Folder of robustness.jsonl, .md, .csv and a figure per task."""
    overwrite: bool = False
    """Delete the result in --out first."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise UserError("name the runs whose models are to be tested, such as runs/bench-sequence-cpu.")
        for name in ("most_tests", "seed", "workers"):
            if not 0 <= getattr(self, name) <= LARGEST:
                flag = name.replace("_", "-")
                raise UserError(f"--{flag} is {getattr(self, name)}: it must be at least 0 and at most {LARGEST}.")

    @property
    def parallel(self) -> int:
        """Models at a time."""
        return self.workers or usable_cores()


@dataclass(frozen=True)
class RuntimeConfig:
    """Time and peak memory of every layer's forward pass (the paper's appendix D.4)."""

    models: Annotated[tuple[str, ...], Several] = ()
    """Sequence layers; all if not given."""
    devices: Annotated[tuple[str, ...], Several] = ("cpu",)
    """cpu, cuda or both."""
    steps: int = 1024
    """Steps of the sequence."""
    features: int = 64
    """Width of the input and of the layer."""
    heads: int = 4
    """Heads of the layers that have some."""
    batch: int = 1
    """Sequences per pass."""
    passes: int = 10
    """Passes that are measured."""
    threads: int = 1
    """Threads on a CPU."""
    seed: int = 0
    """Seeds weights and inputs."""
    out: Path = Path("runs/bench-runtime")
    """Folder of runtime.json and runtime.md."""
    overwrite: bool = False
    """Replace the runtime.json and runtime.md that are there."""

    def __post_init__(self) -> None:
        for name in ("steps", "features", "heads", "batch", "passes", "threads", "seed"):
            least = 0 if name == "seed" else 1
            if not least <= getattr(self, name) <= LARGEST:
                raise UserError(f"--{name} is {getattr(self, name)}: it must be at least {least}, at most {LARGEST}.")
        if self.features % self.heads:
            raise UserError(f"--features {self.features} is not divisible by --heads {self.heads}: choose another.")
