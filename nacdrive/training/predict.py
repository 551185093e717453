"""What a trained network answers to whole sequences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nacdrive.tasks import Sample, Task
from nacdrive.training.batches import Batches, BatchSource


@torch.inference_mode()
def outputs(
    network: nn.Module,
    task: Task,
    samples: Sequence[Sample],
    *,
    batch: int = 32,
    device: torch.device | str = "cpu",
    source: BatchSource | None = None,
) -> list[Tensor]:
    """Answers to ``samples``, in their order and uncut, in CPU memory.

    Args:
        batch: samples that are computed together.
        source: hands out the batches of ``samples`` in place of ``Batches``, one row per sample.

    Returns:
        Per sample [..., outputs]: one row per step, or the one answer to the sequence.
    """
    network.to(device).eval()
    source = source or Batches(samples, max(map(len, samples)), batch)
    answers: list[Tensor] = []
    for key in source.epoch(None, 0):
        held = source.load(key)
        y = network(*(held[name].to(device) for name in task.inputs)).float().cpu()
        lengths = (~held["padding"]).sum(dim=1).tolist()
        answers += [row if row.ndim == 1 else row[:n] for row, n in zip(y, lengths, strict=True)]
    return answers
