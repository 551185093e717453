"""PRONOSTIA, and XJTU-SY and HUST with its model: vibration of a bearing -> its wear, from 0 (new) to 1 (failed)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.extras.bearings import challenge
from nacdrive.extras.bearings.runs import MINUTE_S, RunToFailure, read_runs
from nacdrive.extras.bearings.wear import HOURS, WearCurve, plot_wear, wear_curves
from nacdrive.tasks.base import EVERYTHING, Fold, Metric, ProtocolName, Size
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.series import Regression
from nacdrive.tasks.splits import evenly, rotate, segments

BATCH = 64
"""Predictions that the paper's scripts sum over before they average."""


def paper_score(prediction: ArrayLike, truth: ArrayLike, batch: int = BATCH) -> float:
    """Score of the paper's table, in what its public scripts do: 0 is perfect, more is worse.

    For the error e = prediction - truth: exp(-e/13) - 1 where e < 0, else exp(e/10) - 1; summed over a batch, averaged
    over batches (the last may be smaller).
    """
    error = (np.asarray(prediction, np.float64) - np.asarray(truth, np.float64)).ravel()
    return float(np.where(error < 0, np.expm1(-error / 13), np.expm1(error / 10)).sum() / -(-len(error) // batch))


SCORED = 32
"""Snapshots of a segment that count."""
TIME_COLUMN = 14
"""Of the authors' 16 features, the elapsed time."""
PAPER_TRAINING = ("Bearing1_4", "Bearing1_5", "Bearing1_6", "Bearing1_7")
PAPER_TEST = {"pronostia": "Bearing1_1", "xjtu-sy": "Bearing1_1", "hust": "Bearing1"}
"""The paper's "Bearing 1 of the first condition" of each data set."""

RMSE = Metric("rmse", "RMSE of wear (0 .. 1)", higher=False, digits=3)
PER_BATCH = Metric("score", "paper's score, per 64 answers", higher=False, digits=3)
ONSET = Metric("onset_min", "onset error, minutes", higher=False, digits=0)
AFTER = Metric("rmse_worn", "RMSE after onset", higher=False, digits=3)
ELSEWHERE = Metric("rmse_elsewhere", "RMSE, unseen speed and load", higher=False, digits=3)
WHOLE = Metric("score_whole", "paper's score, whole bearing", higher=False, paper=True)

WEAR = (
    "Wear is 0 until it shows (3-sigma rule), then grows to 1 at failure; time since installation is no input. "
    "RMSE over a whole life is mostly that of the healthy part, so apart from it: by how much the predicted onset (the "
    "first of five snapshots in a row above 0.1) misses that of the true wear, and the RMSE from the true onset on."
)
HELD_OUT = (
    "Each fold holds out one bearing of the first condition; all bearings of other conditions are unseen too. "
    "Without a third bearing to choose the epoch by, the last one is taken."
)
UNTOUCHED = "Trained on PRONOSTIA alone; the authors' feature files are put back into the order of time."
ROWS = (
    "Single windows of Bearings 1_4 .. 1_7 (those that are there) in shuffled folds, elapsed time as an input, a ramp "
    "as the label, every bearing scaled with its own whole life, as in the authors' scripts: time so scaled is the "
    "label. "
    "Tested on Bearing 1 of the first condition, summed over all of it: only so are numbers of the paper's size."
)
ORDER = "The authors' feature files have their minutes in the order 1, 10, 100, ...; that is kept here."
NO_LIFE = "Nothing in HUST runs to failure, so there is no remaining life to predict; its ramp is the paper's."


class Bearings(Regression):
    """The task under one protocol."""

    name = "pronostia"
    protocols = ("sequence", "paper", "challenge")
    sizes = {"smoke": Size(1, 400), "cpu": Size(60), "full": Size()}
    channels, kernels, d_model, num_heads, dense = (32, 16), (3, 2), 16, 8, ()

    def __init__(self, protocol: ProtocolName = "sequence") -> None:
        super().__init__(protocol)
        self.settings = {"learning_rate": 1e-3, "epochs": 150}
        if protocol == "paper":
            self.settings |= {"batch_size": 32, "valid_batch": 1024}
            self.settings |= {"schedule": "constant", "average": 0.0, "patience": 0}
            self.read, self.window = "last", 1
        else:
            # Whole segments: cut shorter, no answer would be learnt with the window that it is tested with.
            self.settings |= {"chunk": self.context + SCORED}
            self.settings |= {"batch_size": 8, "valid_batch": 32, "patience": 30, "weight_decay": 0.05}

    def about(self, train: Sequence[Sample]) -> dict[str, Any]:
        """Lives of the bearings that were learnt from, in seconds: the prior of a remaining life."""
        if self.protocol == "paper":
            return {}
        lives: dict[str, float] = {}
        for sample in train:
            lives[sample.name] = max(lives.get(sample.name, 0.0), float(sample.fields["t"][-1]))
        return {"lives_s": {name: life for name, life in lives.items() if life > 0}}

    def metrics_of(self, task: str) -> tuple[Metric, ...]:
        if self.protocol == "paper":
            return (WHOLE, PER_BATCH, RMSE)
        if self.protocol == "challenge":
            return challenge.METRICS if task == self.name else ()
        if task == "hust":
            return ()
        return (RMSE, *(() if task == "xjtu-sy" else (ELSEWHERE,)), ONSET, AFTER, PER_BATCH)

    def note_of(self, task: str) -> str:
        if self.protocol == "paper":
            return f"{ROWS} {ORDER}" if task == "xjtu-sy" else f"{ROWS} {NO_LIFE}" if task == "hust" else ROWS
        if self.protocol == "challenge":
            return challenge.NOTE if task == self.name else "The challenge was about bearings of PRONOSTIA."
        return NO_LIFE if task == "hust" else f"{WEAR} {UNTOUCHED if task == 'xjtu-sy' else HELD_OUT}"

    def folds(self, data_dirs: Mapping[str, Path], count: int, seed: int, size: Size = EVERYTHING) -> list[Fold]:
        """See ``Task.folds``; ``max_samples`` snapshots of each bearing are used, evenly spread over its life."""
        most = size.max_samples
        if self.protocol == "challenge":
            # All learning bearings are learnt from: none is left to choose the epoch by, and the last one is taken.
            learning, questions = challenge.read_challenge(data_dirs["pronostia"])
            lives = [float(run.table.t_s[-1]) for run in learning]
            name = f"{len(questions)} of {len(challenge.QUESTIONS)} bearings"
            samples = [s for one in questions for s in challenge.samples_of(one, lives, most, self.pieces)]
            return [Fold(name, self.cut(learning, most), [], {"pronostia": samples})]
        runs = {task: read_runs(task, folder) for task, folder in data_dirs.items()}
        if self.protocol == "paper":
            return self.row_folds(runs, count, seed, most)
        first = [run for run in runs["pronostia"] if run.is_training_condition]
        if len(first) < 2:
            what = f"{data_dirs['pronostia']} holds {len(first)} bearings of the first condition (Bearing1_*)"
            raise UserError(f"{what}: one to learn from and one to hold out are the least.")
        return [self.fold(held, first, runs, most) for held in first[: count or None]]

    def fold(
        self,
        held: RunToFailure,
        first: Sequence[RunToFailure],
        runs: Mapping[str, Sequence[RunToFailure]],
        most: int | None = None,
    ) -> Fold:
        """Everything of the first condition but ``held`` is learnt from; of three or more, one chooses the epoch."""
        others = [run for run in first if run is not held]
        valid = [others[first.index(held) % len(others)]] if len(others) > 1 else []
        train = [run for run in others if run not in valid]
        elsewhere = [run for run in runs["pronostia"] if not run.is_training_condition]
        tests = {"pronostia": self.cut([held, *elsewhere], most)}
        if "xjtu-sy" in runs:
            tests["xjtu-sy"] = self.cut(runs["xjtu-sy"], most)
        return Fold(held.name, self.cut(train, most), self.cut(valid, most), tests)

    def cut(self, runs: Sequence[RunToFailure], most: int | None = None) -> list[Sample]:
        """Segments of bearings' lives, of which every snapshot is scored once."""
        return [s for run in runs for s in self.pieces(run.name, run.series(most))]

    def pieces(self, name: str, fields: dict[str, Tensor]) -> list[Sample]:
        return segments(name, fields, scored=SCORED, context=self.context)

    def row_folds(
        self, runs: Mapping[str, Sequence[RunToFailure]], count: int, seed: int, most: int | None
    ) -> list[Fold]:
        """The authors' folds over shuffled rows; the fold that is held out chooses the epoch."""
        known = [run for run in runs["pronostia"] if run.name in PAPER_TRAINING]
        if not known:
            raise UserError(f"--protocol paper trains on {', '.join(PAPER_TRAINING)} of PRONOSTIA: none is there.")
        pairs = [run.rows() for run in known]
        rows = row_samples("row", scaled(torch.cat([x for x, _ in pairs])), torch.cat([y for _, y in pairs]), most)
        tests = {}
        for task, of_task in runs.items():
            # HUST's own files are named by bearing type and fault; the authors' "Bearing1" is one of their files.
            one = [run for run in of_task if run.name == PAPER_TEST[task]] or (of_task[:1] if task == "hust" else [])
            if not one:
                raise UserError(f"--protocol paper tests on {PAPER_TEST[task]} of {task}: it is not there.")
            x, y = one[0].rows()
            tests[task] = row_samples(one[0].name, scaled(x), y, most)
        return [
            Fold(f"fold {k + 1} of 5", [rows[i] for i in learn], [rows[i] for i in keep], tests)
            for k, (learn, keep) in enumerate(rotate(len(rows), 5, seed)[:count])
        ]

    def curves(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, WearCurve]:
        """Wear over time of each test bearing; the paper's rows count as a second each, for their times are scaled."""
        if self.protocol != "paper":
            return wear_curves(outputs, samples)
        y, truth = rows_of(outputs, samples)
        return {PAPER_TEST[task]: WearCurve(np.arange(len(y), dtype=np.float64), y, truth)}

    def plot(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample], folder: Path, title: str) -> None:
        axis = "rows" if self.protocol == "paper" else HOURS
        plot_wear(self.curves(task, outputs, samples), folder / f"wear-{task}.png", title=title, known=True, axis=axis)

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        """See ``Task.score``; ``rmse`` and the scores are those of the held-out bearing, or of all of XJTU-SY."""
        if self.protocol == "challenge":
            return challenge.challenge_scores(outputs, samples)
        if self.protocol == "paper":
            y, truth = rows_of(outputs, samples)
            return {
                "score_whole": paper_score(y, truth, batch=len(y)),
                "score": paper_score(y, truth),
                "rmse": float(np.sqrt(np.mean((y - truth) ** 2))),
            }
        curves = wear_curves(outputs, samples)
        near = {name: c for name, c in curves.items() if task != "pronostia" or name.startswith("Bearing1")}
        scores = {f"rmse {name}": curve.rmse for name, curve in curves.items()}
        scores["score"] = float(np.mean([paper_score(c.predicted, c.truth) for c in near.values()]))
        scores["rmse"] = float(np.mean([c.rmse for c in near.values()]))
        scores["rmse_worn"] = float(np.mean([c.rmse_worn for c in near.values()]))
        scores["onset_min"] = float(np.mean([c.onset_error_s for c in near.values()])) / MINUTE_S
        if len(curves) > len(near):
            scores["rmse_elsewhere"] = float(np.mean([c.rmse for name, c in curves.items() if name not in near]))
        return scores

    def references(self, task: str, train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, list[Tensor]]:
        """Constants, and the time alone: of the paper's rows the column of time, else the training wear at that age."""
        if self.protocol == "challenge":
            return challenge.challenge_references(train, samples)
        if self.protocol == "paper":
            half = self.constant(torch.full((1,), 0.5), samples)
            # Time scaled over a whole life has mean 0 and deviation 1: the ramp but for a constant factor.
            clock = [0.5 + sample.fields["x"][0, TIME_COLUMN : TIME_COLUMN + 1] / 12**0.5 for sample in samples]
            return {"always 0.5": half, "scaled time alone": clock}
        lives = wear_curves([sample.fields["target"][:, None] for sample in train], train).values()
        times = [sample.fields["t"].double().numpy() for sample in samples]
        wear = [np.mean([np.interp(t, life.t_s, life.truth) for life in lives], axis=0) for t in times]
        age = [torch.from_numpy(y).float()[:, None] for y in wear]
        return {**super().references(task, train, samples), "age alone": age}


def scaled(x: Tensor) -> Tensor:
    """Each column with its own mean and deviation: of all rows there are, as the authors' scripts do."""
    std = x.std(dim=0, unbiased=False)
    return ((x - x.mean(dim=0)) / torch.where(std > 0, std, 1.0)).float()


def row_samples(name: str, x: Tensor, y: Tensor, most: int | None) -> list[Sample]:
    """One sample of one step per row; at most ``most``, evenly spread."""
    nothing = torch.zeros(1)
    return [
        Sample(f"{name} {i}", {"x": x[i : i + 1], "t": nothing}, {"target": y[i]}) for i in evenly(range(len(x)), most)
    ]


def rows_of(outputs: Sequence[Tensor], samples: Sequence[Sample]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Predictions [N] and labels [N] of the paper's rows."""
    y = np.array([float(value) for value in outputs])
    return y, np.array([float(sample.labels["target"]) for sample in samples])
