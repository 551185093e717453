"""What a trained network answers to whole sequences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nacdrive.tasks.base import Task
from nacdrive.tasks.sample import Sample
from nacdrive.training.batches import Batches


@torch.inference_mode()
def outputs(
    network: nn.Module,
    task: Task,
    samples: Sequence[Sample],
    *,
    batch: int = 32,
    device: torch.device | str = "cpu",
) -> list[Tensor]:
    """Answers to ``samples``, in their order and uncut, in CPU memory.

    Args:
        batch: samples that are computed together.

    Returns:
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
