"""The options of ``nacdrive bench``; imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro
from annotated_types import Interval

from nacdrive.common.errors import UserError
from nacdrive.common.options import Count, Device, Options, Processes, Result, SeedOption, Target, Workers
from nacdrive.common.paths import data_folder
from nacdrive.common.runs import usable_cores
from nacdrive.datasets.options import RecordingOption, RecordingsOption
from nacdrive.tasks.registry import MostOption
from nacdrive.training.config import BatchOption

BudgetName = Literal["smoke", "cpu", "full"]
FOLDS: dict[BudgetName, int] = {"smoke": 1, "cpu": 1, "full": 5}
"""Folds where none are asked for; what else a budget means says each task's ``sizes``."""
Several = tyro.conf.arg(metavar="NAME [NAME ...]")


class LayersOption(Options):
    """Which layers."""

    models: Annotated[tuple[str, ...], Several] = ()
    """Sequence layers; all there are if not given. Also my_module:MyLayer."""


class TableConfig(
    LayersOption, MostOption, RecordingOption, SeedOption, Device, Result, Workers, defaults={"data": data_folder()}
):
    """Train and test models x tasks x folds, and print the paper's table.

    --data (or $NACDRIVE_DATA) has a folder of data per task: mnist, par, carracing, udacity, pronostia, xjtu-sy, hust.
    """

    tasks: Annotated[tuple[str, ...], Several] = ()
    """emnist, par, carracing, udacity, pronostia, xjtu-sy, hust; all of these if not given. Also, by name, uea,
    physionet2012, synthetic-decay, -since, -recall, -recall-decay and -xor, or my_module:MyTask."""
    folds: int = 0
    """Trainings per task and model; 0: one under smoke and cpu, five under full."""
    seeds: Annotated[int, Interval(ge=1, le=100)] = 1
    """Trainings per fold, each from other random weights; the table shows how far they differ."""
    references: bool = True
    """Rows of what is no model beside the models: constants, the clock alone."""
    protocol: Literal["sequence", "paper", "scripts", "challenge"] = "sequence"
    """sequence: real sequences, split by person, bearing or episode. paper: as the paper, its scripts where it is
    silent. scripts: as these also where they contradict it. challenge: pronostia as the PHM 2012 challenge posed it."""
    budget: BudgetName = "smoke"
    """smoke: minutes for everything, its numbers mean nothing; cpu: minutes per training; full: as the paper."""
    epochs: int = 0
    """Most epochs, and never more than the task's own; 0: as the budget says."""
    learning_rates: tuple[Annotated[float, Interval(gt=0, le=1)], ...] = ()
    """Of each layer the one that is best on the validation part of the first fold and seed, and for the other folds
    and seeds the same; the task's own if not given."""
    parameters: Annotated[int, Interval(ge=0, le=10**8)] = 0
    """Give each layer the width at which its network has about so many parameters; 0: the task's width for all."""
    drive: int = 0
    """Tracks that a trained policy of carracing or udacity drives; 0: as the budget says."""

    @property
    def folder(self) -> Path:
        return self.out or Path("runs") / f"bench-{self.protocol}-{self.budget}"

    @property
    def fold_count(self) -> int:
        return self.folds or FOLDS[self.budget]

    @property
    def parallel(self) -> int:
        return self.workers or (1 if self.device.startswith("cuda") else usable_cores())


class PlanConfig(TableConfig):
    """Say what a table would cost: cells, core-hours and memory, from what such cells have cost; computes nothing."""

    costs: tuple[Path, ...] = ()
    """Folders or files of earlier results; those in --out count too. A smoke run of minutes measures every layer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("resume", "overwrite", "ray"):
            if getattr(self, name):
                raise UserError(f"--{name} means nothing to 'bench plan', which only counts: leave it out.")


class RunConfig(TableConfig):
    """Compute a part of a table, and go on with it at the next call; the table so far is written each time."""

    hours: Annotated[float, Interval(gt=0, le=10_000)] = 1.0
    """End after so many hours; cells under way go on from their checkpoints at the next call."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.overwrite:
            object.__setattr__(self, "resume", True)


class ReportConfig(RecordingsOption, Target, defaults={"out": Path("runs/bench-report")}):
    """Compare the layers of one or many runs: paired differences with intervals, cost against quality.

    The data are folders of 'bench table' or 'bench run', or their results.jsonl, of any machines: merged cell by cell.
    """

    wanted = "the results to compare, such as runs/bench-sequence-cpu"


class RobustnessConfig(
    RecordingsOption, LayersOption, SeedOption, Processes, Target, defaults={"out": Path("runs/bench-robustness")}
):
    """Test trained cells on what they were not trained for: steps dropped, gaps jittered, time hidden; trains nothing.

    The data are folders of 'bench table' or 'bench run', with the models in their 'cells'. The same command goes on
    where it was stopped, and adds what the runs have got in the meantime.
    """

    wanted = "the runs whose models are to be tested, such as runs/bench-sequence-cpu"

    most_tests: int = 0
    """Test sequences of each model, evenly thinned; 0: all."""


class RuntimeConfig(
    LayersOption, SeedOption, BatchOption, Target, defaults={"batch_size": 1, "out": Path("runs/bench-runtime")}
):
    """Time and peak memory of every layer's forward pass (the paper's appendix D.4)."""

    devices: Annotated[tuple[str, ...], Several] = ("cpu",)
    """cpu, cuda or both."""
    steps: Count = 1024
    """Steps of the sequence."""
    features: Count = 64
    """Width of the input and of the layer."""
    heads: Count = 4
    """Heads of the layers that have some."""
    passes: Count = 10
    """Passes that are measured."""
    threads: Annotated[int, Interval(ge=1, le=1024)] = 1
    """Threads on a CPU."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features % self.heads:
            raise UserError(f"--features {self.features} is not divisible by --heads {self.heads}: choose another.")
