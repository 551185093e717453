"""What every task promises to whoever trains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from nacdrive.models import PolicyConfig

Batch = dict[str, Tensor]
"""Named tensors: fields [B, T, ...], labels [B, ...], and ``padding`` [B, T], True where a step is padding."""


@dataclass(frozen=True)
class Sample:
    """One sequence in memory, such as an episode."""

    name: str
    """For messages: where it came from."""
    fields: dict[str, Tensor]
    """Named tensors [steps, ...] of one length."""
    labels: dict[str, Tensor] = field(default_factory=dict)
    """Named tensors [...] that hold for the sequence as a whole, such as its class; such sequences are never cut."""

    def __len__(self) -> int:
        return len(next(iter(self.fields.values())))


@dataclass(frozen=True)
class LossOptions:
    """How the loss is formed."""

    soft: float = 0.5
    """Weight of the teacher's whole distribution (cross-entropy) against its best action alone; 0 .. 1."""
    class_weights: float = 0.5
    """Weight of an action is its frequency to the power of minus this; 0 = none, 1 = balanced."""


class Task(Protocol):
    """A thing to learn: all that ``training.fit`` asks of it."""

    name: str
    inputs: tuple[str, ...]
    """Fields of a batch that the network is called with, in their order."""
    measure_name: str
    """What ``measure`` measures, such as ``accuracy`` or ``mae``: ``valid_NAME`` in the log."""

    def class_weights(self, samples: Sequence[Sample], power: float) -> Tensor:
        """Weight of each class, mean 1 over the samples; handed on to ``loss``, which alone knows what it means."""

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """A batch as it might also have been; ``batch`` is in CPU memory and stays as it is."""

    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, options: LossOptions) -> tuple[Tensor, Tensor]:
        """Weighted sum of the losses and sum of the weights, over the steps that are no padding."""

    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """What is told beside the loss: its sum, such as the number of right decisions, and over how many."""


class DrivingTask(Task, Protocol):
    """A task that is learnt from drives, for a policy."""

    def load(self, folders: Sequence[Path]) -> list[Sample]:
        """Read data, one sample per episode.

        Raises:
            UserError: if a folder does not hold data of this task.
        """

    def split(self, samples: Sequence[Sample], valid_share: float, seed: int) -> tuple[list[Sample], list[Sample]]:
        """What is learnt from and what is validated on; nothing is on both sides.

        Raises:
            UserError: if there is too little.
        """

    def policy_config(self, model: str, window: int, samples: Sequence[Sample], **more: Any) -> PolicyConfig:
        """Architecture of the task's network around the sequence layer ``model``."""
