"""Steering errors on recorded drives, and of models trained anew for each part that is held out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nacdrive.common.runs import seed_everything
from nacdrive.common.statistics import summary
from nacdrive.models import Policy
from nacdrive.tasks.driving import Udacity, center_alone, with_sides
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.splits import block_folds, slice_sample
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import fit

TASK = Udacity()
Errors = dict[str, float]
"""``mse`` and ``mae`` of one block, and the same of predicting zero or a mean."""


def cross_validate(
    samples: Sequence[Sample],
    model: str,
    window: int,
    config: FitConfig,
    *,
    sides: bool,
    vision: Policy | None = None,
    on_fold: Callable[[int, list[Errors]], None] = lambda fold, rows: None,
) -> list[list[Errors]]:
    """Errors on every block of ``samples``, each judged by a network that was trained without it: rows of each fold.

    The parts are contiguous blocks a second apart; no epoch is chosen by what is reported, for the last one is kept.
    With ``vision`` every network begins with the convolutions of that policy, which must not know ``samples``.
    """
    result = []
    for number, (train, test) in enumerate(block_folds(samples)):
        seed_everything(config.seed)
        policy = Policy.new(TASK.policy_config(model, window, samples), model)
        if vision is not None:
            policy.network.vision.load_state_dict(vision.network.vision.state_dict())
        with tempfile.TemporaryDirectory() as folder:
            fit(policy.network, TASK, with_sides(train) if sides else center_alone(train), [], config, Path(folder))
        mean = float(torch.cat([sample.fields["target"] for sample in train]).mean())
        rows = [errors(predict(policy, sample), sample.fields["target"], mean) for sample in center_alone(test)]
        result.append(rows)
        on_fold(number, rows)
    return result


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
    found = {"": steering, "zero_": torch.zeros_like(target)}
    if mean is not None:
        found["mean_"] = torch.full_like(target, mean)
    rows: Errors = {}
    for name, guess in found.items():
        rows[f"{name}mse"] = float((guess - target).square().mean())
        rows[f"{name}mae"] = float((guess - target).abs().mean())
    return rows


def summarised(rows: Sequence[Errors]) -> dict[str, Any]:
    """Mean and 95 % interval of each error over blocks."""
    return {name: summary([row[name] for row in rows]) for name in rows[0]}
