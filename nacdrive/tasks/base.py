"""What every task is: data, the network around a sequence layer, a loss, and the numbers of a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from nacdrive.common.errors import UserError
from nacdrive.tasks.sample import Batch, Sample
from nacdrive.tasks.splits import Split, evenly, rotate, split_samples

ProtocolName = Literal["sequence", "paper", "scripts", "challenge"]
"""``sequence``: real sequences, split by person, bearing or episode. ``paper``: rows, as in the paper, and as in the
authors' scripts where it is silent. ``scripts``: as they are also where they contradict it. ``challenge``: as a public
challenge on the same data was posed."""


@dataclass(frozen=True)
class Metric:
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
    compared: bool = True
    """Whether layers can be better or worse by it; False for what only says how much data stands behind a row."""


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


def shuffled_folds(
    task: str, rows: Sequence[Sample], splits: Sequence[Split], tested: Callable[[list[Sample]], list[Sample]] = list
) -> list[Fold]:
    """As the authors' scripts: shuffled rows, and the reported part, as ``tested`` has it, chooses the epoch."""
    folds = []
    for k, (learn, keep) in enumerate(splits):
        test = tested([rows[i] for i in keep])
        folds.append(Fold(f"fold {k + 1} of 5", [rows[i] for i in learn], test, {task: test}))
    return folds


@dataclass(frozen=True)
class Size:
    """How much work a training and its tests may be."""

    epochs: int | None = None
    """Most epochs; None: what the task asks for (paper, Table 4)."""
    max_samples: int | None = None
    """About how many sequences to learn from; None: all."""
    max_tests: int | None = None
    """About how many sequences to test on; None: all."""
    drive: int = 0
    """Tracks driven afterwards in closed loop, for the tasks that have one."""


EVERYTHING = Size()


class Task(ABC):
    """A thing to learn, under one protocol. ``training.fit`` and the bench know no more of it than this.

    A subclass brings ``loss``, ``measure``, ``load``, ``network``, ``save`` and ``score``, and changes of the rest what
    does not fit; ``tasks.series`` and ``tasks.driving`` hold subclasses that are most of a task already.

    Args:
        protocol: under ``sequence`` nothing that is reported is learnt from; see ``ProtocolName``.
    """

    name: str
    """How it is asked for; set by ``load_task``."""
    inputs: tuple[str, ...]
    """Fields of a batch that the network is called with, in their order."""
    measure_name: str
    """What ``measure`` measures, such as ``accuracy`` or ``mae``: ``valid_NAME`` in the log."""
    protocols: ClassVar[tuple[ProtocolName, ...]] = ("sequence",)
    """Protocols that it has."""
    metrics: tuple[Metric, ...] = ()
    """What ``score`` gives for a table, the most telling first."""
    criterion: Metric | None = None
    """What of ``score`` chooses the epoch, such as an area under a curve; None: the loss. The network must then give
    one answer per sequence, and ``measure_name`` is the metric's key."""
    note: str = ""
    """What a reader of the table must know of its numbers."""
    settings: Mapping[str, Any] = {}
    """Options of ``FitConfig`` that it asks for (paper, Table 4)."""
    nac_options: Mapping[str, Any] = {}
    """Options of NAC that count where a variant names no others."""
    script_note: str = ""
    """What ``--protocol scripts`` changes, for a reader of its table."""
    sizes: Mapping[str, Size] = {"smoke": Size(1, 64, 64), "cpu": Size(10), "full": Size()}
    """What each budget of the bench means for it."""
    data_folders: tuple[str, ...] | None = None
    """Names that the folder of its data may have; its own name if not given, () if it needs none."""
    sample_recording: str | None = None
    """The shipped recording that a smoke run takes where there are no data."""
    closed_loop: bool = False
    """Whether its policies are also driven, for further numbers of a table."""

    def __init__(self, protocol: ProtocolName = "sequence") -> None:
        self.protocol = protocol

    def balance(self, samples: Sequence[Sample]) -> float:
        """Power of ``class_weights`` where nobody gives one."""
        return 0.5

    def class_weights(self, samples: Sequence[Sample], power: float) -> Tensor:
        """Weight of each class, mean 1 over the samples; handed on to ``loss``, which alone knows what it means."""
        return torch.ones(1)

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """A batch as it might also have been; ``batch`` is in CPU memory and stays as it is."""
        return batch

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, soft: float) -> tuple[Tensor, Tensor]:
        """Weighted sum of the losses and sum of the weights, over the steps that are no padding.

        ``soft`` (0 .. 1) is the weight of a teacher's whole distribution (cross-entropy) against its best action alone.
        """

    @abstractmethod
    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """What is reported beside the loss: its sum, such as the number of right decisions, and over how many."""

    def load(self, folders: Sequence[Path]) -> list[Sample]:
        """All data in ``folders``, one sample per sequence; needed where ``folds`` is not overridden.

        Raises:
            UserError: if a folder does not hold data of this task.
        """
        raise NotImplementedError(f"{type(self).__name__} has neither load nor folds")

    def split(self, samples: Sequence[Sample], valid_share: float, seed: int) -> tuple[list[Sample], list[Sample]]:
        """What is learnt from and what is validated on; nothing is on both sides. Here whole sequences, at random."""
        return split_samples(samples, valid_share, seed)

    def folds(self, data_dirs: Mapping[str, Path], count: int, seed: int, size: Size = EVERYTHING) -> list[Fold]:
        """Read and split; here whole sequences in five random parts, each held out once.

        Args:
            data_dirs: folder of each task that is asked for.
            count: how many folds are wanted; there may be fewer, such as one per person.
            seed: of the split, where it is random.
            size: how many sequences are wanted.

        Raises:
            UserError: if a folder lacks its data.
        """
        samples = self.load([data_dirs[self.name]] if self.name in data_dirs else [])
        if len(samples) < 3:
            what = f"the task '{self.name}' has {len(samples)} sequences"
            raise UserError(f"{what}: to learn from, to choose the epoch by and to test on it needs 3 at least.")
        folds = []
        for k, (learn, keep) in enumerate(rotate(len(samples), 5, seed)[:count]):
            train, valid = self.split([samples[i] for i in evenly(learn, size.max_samples)], 0.15, seed)
            tests = [samples[i] for i in evenly(keep, size.max_tests)]
            folds.append(Fold(f"part {k + 1} of 5", train, valid, {self.name: tests}))
        return folds

    @abstractmethod
    def network(self, model: str, train: Sequence[Sample], **options: Any) -> nn.Module:
        """The network around the sequence layer ``model``, scaled to ``train``; ``options`` are the layer's."""

    @abstractmethod
    def save(self, network: Any, path: Path, meta: dict[str, Any]) -> None:
        """Write a model file."""

    @abstractmethod
    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        """Every metric of ``task`` from the network's outputs on its test samples, and what else is worth keeping."""

    def plot(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample], folder: Path, title: str) -> None:
        """Write figures of a test into ``folder``; here none."""
        return

    def references(self, task: str, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, list[Tensor]]:
        """Outputs of what is no model, such as a constant, on test samples of ``task``: name -> one per sample."""
        return {}

    def metrics_of(self, task: str) -> tuple[Metric, ...]:
        """Metrics of this task, or of another that is evaluated with its model; () where the protocol has none."""
        return self.metrics if self.protocol in self.protocols else ()

    def note_of(self, task: str) -> str:
        """What a reader must know of the numbers of ``task``."""
        return self.note
