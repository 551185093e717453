"""Udacity as a problem of the bench: blocks of a drive, or the authors' shuffled frames -> steering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nacdrive.layers import build
from nacdrive.models.config import PolicyConfig
from nacdrive.models.driving import DrivingNetwork
from nacdrive.tasks import udacity_blocks
from nacdrive.tasks.base import Batch, Sample
from nacdrive.tasks.driving_bench import DrivingProblem, beginnings, frames_of
from nacdrive.tasks.problem import Fold, Measure, ProtocolName
from nacdrive.tasks.splits import rotate
from nacdrive.tasks.udacity import center_alone, with_sides

MSE = Measure("mse", "steering MSE", higher=False, digits=4, paper=True)
MAE = Measure("mae", "steering MAE", higher=False, digits=4)
AUTONOMY = Measure("autonomy", "autonomy in closed loop, %", higher=True, digits=1)
OFF_ROAD = Measure("off_road_per_lap", "off road, per lap", higher=False)
OFFSET = Measure("offset_mean_m", "mean distance from the lane's middle, m", higher=False)
AUGMENTED = 0.6
"""Probability with which the authors' script changes a frame."""


class MapRows(DrivingNetwork):
    """The authors' form: the last convolution's 64 maps of 1 x 18 are the steps of the sequence; it has no time in it.

    The sequence layer runs over the maps of one frame and is read at the last of them.
    """

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        maps, columns = config.channels[-1], self.sequence.in_features // config.channels[-1]
        self.maps = maps
        self.sequence = build(
            config.model, config.d_model, config.num_heads, maps, in_features=columns, **config.options
        )

    def forward(self, frames: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """Steering [B, T, 1] of each frame by itself; see ``DrivingNetwork.forward``."""
        B, T = frames.shape[:2]
        x = self.features(frames.flatten(0, 1)).view(B * T, self.maps, -1)
        steering: Tensor = self.head(self.sequence.last(self.dropout(x)))
        return steering.view(B, T, 1)


class UdacityBench(DrivingProblem):
    """The task under one protocol."""

    def __init__(self, protocol: ProtocolName) -> None:
        super().__init__("udacity", protocol)
        # The authors' form is no policy: it cannot drive.
        driven = (AUTONOMY, OFF_ROAD, OFFSET) if protocol == "sequence" else ()
        self.measures = {"udacity": (MSE, MAE, *driven)}
        self.settings: dict[str, Any] = {"batch": 8, "chunk": 16, "epochs": 10, "class_weights": 0.0}
        if protocol == "paper":
            self.settings |= {
                "batch": 40, "chunk": 1, "valid_batch": 256, "schedule": "constant", "patience": 0, "average": 0.0,
            }  # fmt: skip
        self.notes = {
            "udacity": "Blocks of the drive are held out with a gap beside them; other blocks choose the epoch."
            if protocol == "sequence"
            else "Single frames in shuffled folds of which the reported one chooses the epoch: "
            "neighbouring frames are nearly alike, so this is no test on unseen road."
        }

    def folds(self, places: Mapping[str, Path], count: int, seed: int, most: int | None) -> list[Fold]:
        """See ``Problem.folds``; ``most`` frames of the centre camera."""
        samples = self.task.load([places["udacity"]])
        if self.protocol == "paper":
            return self.frame_folds(samples, count, seed, most)
        found = []
        for k, (learn, test) in enumerate(udacity_blocks.folds(samples, 5)[:count]):
            train, valid = self.task.split(beginnings(learn, most), 0.15, seed + k)
            tests = beginnings(center_alone(test), most)
            found.append(Fold(f"blocks {k + 1} of 5", train, valid, {"udacity": tests}))
        return found

    def frame_folds(self, samples: Sequence[Sample], count: int, seed: int, most: int | None) -> list[Fold]:
        """The authors' folds over shuffled frames; the side cameras' frames stay with the centre's."""
        rows = frames_of(samples, most)
        found = []
        for k, (learn, keep) in enumerate(rotate(len(rows), 5, seed)[:count]):
            test = labelled(center_alone([rows[i] for i in keep]), rows)
            train = labelled(with_sides([rows[i] for i in learn]), rows)
            found.append(Fold(f"fold {k + 1} of 5", train, test, {"udacity": test}))
        return found

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """See ``Task.augment``; under ``paper`` a frame is changed with probability 0.6."""
        changed = super().augment(batch, generator)
        if self.protocol == "sequence":
            return changed
        keep = torch.rand(len(batch["target"]), generator=generator) >= AUGMENTED
        for name in ("frames", "t", "target"):
            changed[name][keep] = batch[name][keep]
        return changed

    def network(self, model: str, train: Sequence[Sample], **options: Any) -> DrivingNetwork:
        """See ``Problem.network``."""
        if self.protocol == "sequence":
            return super().network(model, train, **options)
        return MapRows(self.config(model, 1, train, **options))

    def save(self, network: DrivingNetwork, path: Path, meta: dict[str, Any]) -> None:
        """A policy's file; the authors' form is no policy, and is not kept."""
        if self.protocol == "sequence":
            super().save(network, path, meta)

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        """See ``Problem.score``."""
        steering = torch.cat([y[..., 0] for y in outputs]).clamp(-1, 1)
        error = steering - torch.cat([sample.fields["target"] for sample in samples])
        return {"mse": float(error.square().mean()), "mae": float(error.abs().mean())}


def labelled(samples: Sequence[Sample], rows: Sequence[Sample]) -> list[Sample]:
    """Samples with the labels that the task's own functions leave out; they are those of every row."""
    return [Sample(s.name, s.fields, rows[0].labels) for s in samples]


def problem(protocol: ProtocolName) -> UdacityBench:
    """The task under ``protocol``."""
    return UdacityBench(protocol)
