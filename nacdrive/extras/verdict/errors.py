"""Steering errors of a policy on recorded drives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nacdrive.common.statistics import summary
from nacdrive.models import Policy
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.splits import slice_sample

Errors = dict[str, float]
"""``mse`` and ``mae`` of one block, and the same of predicting zero or a mean."""


def predict(policy: Policy, sample: Sample, piece: int = 256) -> Tensor:
    """Steering of ``policy`` at every frame of a drive, [N], clamped as when driving."""
    network, before = policy.network.eval(), policy.config.window - 1
    out = []
    with torch.inference_mode():
        for start in range(0, len(sample), piece):
            first = max(0, start - before)
            stretch = {
                name: x.to(policy.device) for name, x in slice_sample(sample, first, start + piece).fields.items()
            }
            steering = network(stretch["frames"][None], stretch["t"][None])[0, start - first :, 0]
            out.append(steering.float().clamp(-1, 1).cpu())
    return torch.cat(out)


def errors(steering: Tensor, target: Tensor, mean: float | None = None) -> Errors:
    """Errors of a block; ``mean`` is the one that a constant prediction would have known."""
    guesses = {"": steering, "zero_": torch.zeros_like(target)}
    if mean is not None:
        guesses["mean_"] = torch.full_like(target, mean)
    rows: Errors = {}
    for name, guess in guesses.items():
        rows[f"{name}mse"] = float((guess - target).square().mean())
        rows[f"{name}mae"] = float((guess - target).abs().mean())
    return rows


def summarised(rows: Sequence[Errors]) -> dict[str, Any]:
    """Mean and 95 % interval of each error over blocks."""
    return {name: summary([row[name] for row in rows]) for name in rows[0]}
