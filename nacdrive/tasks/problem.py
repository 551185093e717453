"""A task to compare sequence layers on: data cut into folds, a network around a layer, and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from nacdrive.common.errors import unknown_name
from nacdrive.tasks.base import Sample, Task

ProtocolName = Literal["sequence", "paper"]
"""``sequence``: real sequences, split by person, bearing or episode. ``paper``: rows, as in the authors' scripts."""

PROBLEMS = {
    "emnist": "nacdrive.tasks.emnist",
    "par": "nacdrive.tasks.par",
    "carracing": "nacdrive.tasks.carracing_bench",
    "udacity": "nacdrive.tasks.udacity_bench",
    "pronostia": "nacdrive.tasks.bearings",
}
"""Task that trains -> its module."""
TESTED_WITH = {"xjtu-sy": "pronostia", "hust": "pronostia"}
"""Task without a training of its own -> the one whose model it is tested with."""


@dataclass(frozen=True)
class Measure:
    """A number that a table shows."""

    key: str
    """Its name in the results."""
    title: str
    """Its name in a table, with the unit."""
    higher: bool
    """Whether more is better."""
    digits: int = 2
    """Decimals in a table."""
    paper: bool = False
    """Whether it is what the paper's Table 1 holds."""


@dataclass(frozen=True)
class Fold:
    """Data of one training and its tests; no sequence is in two of them under ``sequence``."""

    name: str
    """What is held out, such as ``person A``."""
    train: Sequence[Sample]
    """Learnt from."""
    valid: Sequence[Sample]
    """Chooses the epoch; empty where the data are too few to hold more out."""
    tests: Mapping[str, Sequence[Sample]]
    """Reported, by the name of the task."""


class Problem(Task, Protocol):
    """A task under one protocol."""

    protocol: ProtocolName
    measures: Mapping[str, tuple[Measure, ...]]
    """What each task reports, the most telling first."""
    settings: Mapping[str, Any]
    """Options of ``FitConfig`` that the task asks for (paper, Table 4)."""
    notes: Mapping[str, str]
    """What a reader of the table must know of a task's numbers."""

    def folds(self, places: Mapping[str, Path], count: int, seed: int, most: int | None) -> list[Fold]:
        """Read and split.

        Args:
            places: folder of each task that is asked for.
            count: how many folds are wanted; there may be fewer, such as one per person.
            seed: of the split, where it is random.
            most: about how many sequences to learn from; None for all.

        Raises:
            UserError: if a folder lacks its data.
        """

    def network(self, model: str, train: Sequence[Sample], **options: Any) -> nn.Module:
        """The network of Table 4 around the sequence layer ``model``, scaled to ``train``."""

    def save(self, network: Any, path: Path, meta: dict[str, Any]) -> None:
        """Write a model file."""

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        """Every measure of ``task`` from the network's outputs on its test samples, and what else is worth keeping."""


def task_names() -> list[str]:
    """Every task of a table, in the paper's order."""
    return ["emnist", "par", "carracing", "udacity", "pronostia", "xjtu-sy", "hust"]


def trained_on(task: str) -> str:
    """The problem whose training a task is reported for.

    Raises:
        UserError: if the task is unknown.
    """
    name = TESTED_WITH.get(task, task)
    if name not in PROBLEMS:
        raise unknown_name("task", task, [*PROBLEMS, *TESTED_WITH])
    return name


def load_problem(task: str, protocol: ProtocolName) -> Problem:
    """The problem behind ``task``, under a protocol.

    Raises:
        UserError: if the task is unknown.
    """
    problem: Problem = import_module(PROBLEMS[trained_on(task)]).problem(protocol)
    return problem
