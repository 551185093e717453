"""What every task promises to whoever trains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from nacdrive.policies import PolicyConfig

Batch = dict[str, Tensor]
"""Named tensors [B, T, ...]; ``padding`` [B, T] is True where a step is padding."""


@dataclass(frozen=True)
class Sample:
    """One sequence in memory, such as an episode."""

    name: str
    """For messages: where it came from."""
    fields: dict[str, Tensor]
    """Named tensors [steps, ...] of one length."""

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
    """A thing to learn."""

    name: str

    def load(self, folders: Sequence[Path]) -> list[Sample]:
        """Read data, one sample per episode.

        Raises:
            UserError: if a folder does not hold data of this task.
        """

    def policy_config(self, model: str, window: int, samples: Sequence[Sample], **more: Any) -> PolicyConfig:
        """Architecture of the task's network around the sequence layer ``model``."""

    def class_weights(self, samples: Sequence[Sample], power: float) -> Tensor:
        """Weight of each class, mean 1 over the samples."""

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """A batch as it might also have been; ``batch`` is in CPU memory and stays as it is."""

    def loss(self, scores: Tensor, batch: Batch, weights: Tensor, options: LossOptions) -> tuple[Tensor, Tensor]:
        """Weighted sum of the losses and sum of the weights, over the steps that are no padding."""

    def correct(self, scores: Tensor, batch: Batch) -> Tensor:
        """Number of steps decided as the teacher would have."""
