"""CarRacing as a problem of the bench: episodes, or the authors' shuffled frames -> the expert's action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.tasks.base import Sample
from nacdrive.tasks.driving_bench import DrivingProblem, beginnings, frames_of
from nacdrive.tasks.problem import Fold, Measure, ProtocolName
from nacdrive.tasks.splits import rotate, stratified

ACCURACY = Measure("accuracy", "actions as the expert, %", higher=True, paper=True)
RETURN = Measure("return", "return in closed loop", higher=True, digits=0)
FRACTION = Measure("expert_fraction", "share of the expert's return", higher=True, digits=3)


class CarRacingBench(DrivingProblem):
    """The task under one protocol."""

    measures = {"carracing": (ACCURACY, RETURN, FRACTION)}

    def __init__(self, protocol: ProtocolName) -> None:
        super().__init__("carracing", protocol)
        self.settings: dict[str, Any] = {"batch": 8, "chunk": 16, "epochs": 100}
        if protocol == "paper":
            self.settings |= {
                "batch": 32, "chunk": 1, "valid_batch": 256, "learning_rate": 1e-4, "optimizer": "adam",
                "schedule": "plateau", "patience": 0, "average": 0.0, "soft": 0.0, "class_weights": 0.0,
                "augment": False,
            }  # fmt: skip
        self.notes = {
            "carracing": "Whole episodes are held out; the epoch is chosen on episodes of the training part. "
            "The return is that of tracks no training touched, where the budget has time to drive."
            if protocol == "sequence"
            else "Single frames in shuffled, stratified folds, of which the reported one chooses the epoch: "
            "neighbouring frames are nearly alike, so this is no test on unseen road."
        }

    def folds(self, places: Mapping[str, Path], count: int, seed: int, most: int | None) -> list[Fold]:
        """See ``Problem.folds``; ``most`` frames."""
        samples = self.task.load([places["carracing"]])
        if self.protocol == "paper":
            rows = frames_of(samples, most)
            labels = torch.cat([row.fields["target"] for row in rows]).numpy()
            folds = []
            for k, (learn, keep) in enumerate(stratified(labels, 5, seed)[:count]):
                test = [rows[i] for i in keep]
                folds.append(Fold(f"fold {k + 1} of 5", [rows[i] for i in learn], test, {"carracing": test}))
            return folds
        if len(samples) < 3:
            raise UserError(
                f"{places['carracing']} holds {len(samples)} episodes: three are the least, to learn from, to choose "
                "the epoch by, and to test on."
            )
        samples = beginnings(samples, most)
        found = []
        for k, (learn, keep) in enumerate(rotate(len(samples), min(5, len(samples)), seed)[:count]):
            train, valid = self.task.split([samples[i] for i in learn], 0.15, seed)
            found.append(Fold(f"episodes {k + 1} of 5", train, valid, {"carracing": [samples[i] for i in keep]}))
        return found

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        """See ``Problem.score``; driving is the bench's business."""
        answer = torch.cat([y.argmax(dim=-1) for y in outputs])
        truth = torch.cat([sample.fields["target"] for sample in samples])
        known = truth >= 0
        return {"accuracy": 100 * float((answer == truth)[known].float().mean())}


def problem(protocol: ProtocolName) -> CarRacingBench:
    """The task under ``protocol``."""
    return CarRacingBench(protocol)
