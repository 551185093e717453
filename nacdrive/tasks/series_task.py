"""What all tasks on series share with ``training.fit``: inputs, losses, measures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nacdrive.models.series import SeriesNetwork
from nacdrive.models.series_files import save_series
from nacdrive.tasks.base import Batch, LossOptions, Sample

UNKNOWN = -1
"""Class of a step that has no label."""


class SeriesTask:
    """A task on series ``x`` with times ``t``."""

    inputs = ("x", "t", "padding")

    def class_weights(self, samples: Sequence[Sample], power: float) -> Tensor:
        """All classes count alike."""
        return torch.ones(1)

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """The batch as it is."""
        return batch

    def save(self, network: SeriesNetwork, path: Path, meta: dict[str, Any]) -> None:
        """See ``Problem.save``."""
        save_series(network, path, meta)


class Classification(SeriesTask):
    """One of several classes, per sequence or per step."""

    measure_name = "accuracy"

    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, options: LossOptions) -> tuple[Tensor, Tensor]:
        """Cross-entropy where a class is known; outputs [..., classes], ``target`` [...]."""
        known = self.known(batch)
        total = F.cross_entropy(outputs[known].float(), batch["target"][known], reduction="sum")
        return total, known.sum()

    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Right answers, and how many were asked for."""
        known = self.known(batch)
        return (outputs.argmax(dim=-1) == batch["target"])[known].sum(), known.sum()

    def known(self, batch: Batch) -> Tensor:
        """Where there is something to learn."""
        known = batch["target"] != UNKNOWN
        return known & ~batch["padding"] if known.ndim == 2 else known


class Regression(SeriesTask):
    """One number, per sequence or per step."""

    measure_name = "mae"

    def loss(self, outputs: Tensor, batch: Batch, weights: Tensor, options: LossOptions) -> tuple[Tensor, Tensor]:
        """Squared error where the truth is known; outputs [..., 1], ``target`` [...], NaN where unknown."""
        known, error = self.error(outputs, batch)
        return error.square().sum(), known.sum()

    def measure(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sum of absolute errors, and how many there are."""
        known, error = self.error(outputs, batch)
        return error.abs().sum(), known.sum()

    def error(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Where the truth is known, and the errors there."""
        known = ~batch["target"].isnan()
        if known.ndim == 2:
            known = known & ~batch["padding"]
        return known, (outputs[..., 0].float() - batch["target"])[known]
