"""What a trained network answers to whole sequences; networks out of model files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.common.errors import UserError
from nacdrive.common.paths import find_model
from nacdrive.models.series import SeriesNetwork, load_series
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Task
from nacdrive.tasks.sample import Sample
from nacdrive.training.batches import Batches


@torch.inference_mode()
def outputs(
    network: nn.Module, task: Task, samples: Sequence[Sample], *, batch: int = 32, device: torch.device | str = "cpu"
) -> list[Tensor]:
    """Answers to ``samples``, ``batch`` at once, in their order and uncut, in CPU memory.

    Per sample [..., outputs]: one row per step, or the one answer to the sequence.
    """
    network.to(device).eval()
    source = Batches(samples, max(map(len, samples)), batch)
    answers: list[Tensor] = []
    for key in source.epoch(None, 0):
        loaded = source.load(key)
        y = network(*(loaded[name].to(device) for name in task.inputs)).float().cpu()
        lengths = (~loaded["padding"]).sum(dim=1).tolist()
        answers += [row if row.ndim == 1 else row[:n] for row, n in zip(y, lengths, strict=True)]
    return answers


@dataclass(frozen=True)
class TrainedSeries:
    """A network and what it was trained for."""

    path: Path
    network: SeriesNetwork
    meta: dict[str, Any]
    device: str

    @staticmethod
    def load(name: str, task: str, device: str) -> TrainedSeries:
        """A model file, or the name of a shipped one."""
        path = find_model(name, task)
        network, meta = load_series(path, task=task, device=device)
        return TrainedSeries(path, network, meta, device)

    def predict(self, samples: list[Sample]) -> list[Tensor]:
        wanted, there = self.network.config.channels_in, samples[0].fields["x"].shape[1]
        if there != wanted:
            problem = f"{self.path} was trained on {wanted} channels, these data have {there}"
            raise UserError(f"{problem}: give another --model.")
        return outputs(self.network, load_task(self.network.config.task), samples, device=self.device)
