"""PRONOSTIA, and XJTU-SY and HUST with its model: vibration of a bearing -> its wear, from 0 (new) to 1 (failed)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.datasets.bearings.labels import remaining_s
from nacdrive.models.series import SeriesConfig, SeriesNetwork, layer_options, mean_gap, scale_of
from nacdrive.tasks.base import Sample
from nacdrive.tasks.bearing_runs import Life, read_lives
from nacdrive.tasks.problem import Fold, Measure, ProtocolName
from nacdrive.tasks.rul_scores import paper_score, phm2012_score
from nacdrive.tasks.segments import field_of, joined, segments
from nacdrive.tasks.series_task import Regression
from nacdrive.tasks.splits import rotate

WINDOW = 32
"""Snapshots that an answer of the sequence layer may depend on."""
KERNELS = (3, 2)
CONTEXT = WINDOW - 1 + sum(kernel - 1 for kernel in KERNELS)
JUDGED = 32
PAPER_TRAINING = ("Bearing1_4", "Bearing1_5", "Bearing1_6", "Bearing1_7")
PAPER_TEST = {"pronostia": "Bearing1_1", "xjtu-sy": "Bearing1_1", "hust": "Bearing1"}
"""The paper's "Bearing 1 of the first condition" of each data set."""
WORN = 0.1
"""Predicted wear that counts as its beginning."""
IN_A_ROW = 5

RMSE = Measure("rmse", "RMSE of wear (0 .. 1)", higher=False, digits=3)
PER_BATCH = Measure("score", "paper's score, per 64 answers", higher=False, digits=3)
PHM = Measure("phm", "PHM-2012 score", higher=True, digits=3)
ELSEWHERE = Measure("rmse_elsewhere", "RMSE, unseen speed and load", higher=False, digits=3)
WHOLE = Measure("score_whole", "paper's score, whole bearing", higher=False, paper=True)

WEAR = (
    "Wear is 0 until it shows (3-sigma rule), then grows to 1 at failure; time since installation is no input. "
    "PHM-2012 score: at every snapshot between the first sign of wear and failure, mean over bearings."
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

    def __init__(self, protocol: ProtocolName) -> None:
        self.protocol = protocol
        self.settings: dict[str, Any] = {"learning_rate": 1e-3, "epochs": 150}
        self.measures: dict[str, tuple[Measure, ...]]
        if protocol == "paper":
            self.settings |= {"batch": 32, "valid_batch": 1024, "schedule": "constant", "average": 0.0, "patience": 0}
            self.measures = {task: (WHOLE, PER_BATCH, RMSE) for task in PAPER_TEST}
            self.notes = {"pronostia": ROWS, "xjtu-sy": f"{ROWS} {ORDER}", "hust": f"{ROWS} {NO_LIFE}"}
        else:
            self.settings |= {"batch": 8, "valid_batch": 32, "patience": 30, "weight_decay": 0.05}
            self.measures = {"pronostia": (RMSE, ELSEWHERE, PER_BATCH, PHM), "xjtu-sy": (RMSE, PER_BATCH, PHM)}
            self.notes = {"pronostia": f"{WEAR} {HELD_OUT}", "xjtu-sy": f"{WEAR} {UNTOUCHED}", "hust": NO_LIFE}

    def folds(self, places: Mapping[str, Path], count: int, seed: int, most: int | None) -> list[Fold]:
        """See ``Problem.folds``; ``most`` snapshots of each bearing are used, evenly spread over its life."""
        lives = {task: [life.thinned(most) for life in read_lives(task, place)] for task, place in places.items()}
        if self.protocol == "paper":
            return self.row_folds(lives, count, seed, most)
        first = [life for life in lives["pronostia"] if life.first_condition]
        if len(first) < 2:
            raise UserError(
                f"{places['pronostia']} holds {len(first)} bearings of the first condition (Bearing1_*): "
                "one to learn from and one to hold out are the least."
            )
        return [self.fold(held, first, lives) for held in first[: count or None]]

    def fold(self, held: Life, first: Sequence[Life], lives: Mapping[str, Sequence[Life]]) -> Fold:
        """Everything of the first condition but ``held`` is learnt from; of three or more, one chooses the epoch."""
        others = [life for life in first if life is not held]
        valid = [others[first.index(held) % len(others)]] if len(others) > 1 else []
        train = [life for life in others if life not in valid]
        elsewhere = [life for life in lives["pronostia"] if not life.first_condition]
        tests = {"pronostia": cut([held, *elsewhere])}
        if "xjtu-sy" in lives:
            tests["xjtu-sy"] = cut(lives["xjtu-sy"])
        return Fold(held.name, cut(train), cut(valid), tests)

    def row_folds(self, lives: Mapping[str, Sequence[Life]], count: int, seed: int, most: int | None) -> list[Fold]:
        """The authors' folds over shuffled rows; the fold that is held out chooses the epoch."""
        known = [life for life in lives["pronostia"] if life.name in PAPER_TRAINING]
        if not known:
            raise UserError(f"--protocol paper trains on {', '.join(PAPER_TRAINING)} of PRONOSTIA: none is there.")
        pairs = [life.rows() for life in known]
        rows = row_samples("row", scaled(torch.cat([x for x, _ in pairs])), torch.cat([y for _, y in pairs]), most)
        tests = {}
        for task, found in lives.items():
            # HUST's own files are named by bearing type and fault; the authors' "Bearing1" is one of their files.
            one = [life for life in found if life.name == PAPER_TEST[task]] or (found[:1] if task == "hust" else [])
            if not one:
                raise UserError(f"--protocol paper tests on {PAPER_TEST[task]} of {task}: it is not there.")
            x, y = one[0].rows()
            tests[task] = row_samples(one[0].name, scaled(x), y, most)
        return [
            Fold(f"fold {k + 1} of 5", [rows[i] for i in learn], [rows[i] for i in keep], tests)
            for k, (learn, keep) in enumerate(rotate(len(rows), 5, seed)[:count])
        ]

    def network(self, model: str, train: Sequence[Sample], **options: Any) -> SeriesNetwork:
        """See ``Problem.network``."""
        paper = self.protocol == "paper"
        mean, std = ((0.0,) * 16, (1.0,) * 16) if paper else scale_of(train)
        config = SeriesConfig(
            task=self.name, protocol=self.protocol, model=model, channels_in=len(mean), outputs=1,
            read="last" if paper else "steps", window=1 if paper else WINDOW, channels=(32, 16), kernels=KERNELS,
            strides=(1, 1), d_model=16, num_heads=8, dense=(), mean=mean, std=std,
            gap_s=None if paper else mean_gap(train), options={**layer_options(model, self.protocol), **options},
        )  # fmt: skip
        return SeriesNetwork(config)

    def curves(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, WearCurve]:
        """Wear over time of each test bearing; the paper's rows count as a second each, for their times are scaled."""
        if self.protocol == "sequence":
            return wear_curves(outputs, samples)
        y = np.array([float(value) for value in outputs])
        truth = np.array([float(sample.labels["target"]) for sample in samples])
        return {PAPER_TEST[task]: WearCurve(np.arange(len(y), dtype=np.float64), y, truth)}

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        """See ``Problem.score``; ``rmse`` and the scores are those of the held-out bearing, or of all of XJTU-SY."""
        if self.protocol == "paper":
            y = np.array([float(value) for value in outputs])
            truth = np.array([float(sample.labels["target"]) for sample in samples])
            return {
                "score_whole": paper_score(y, truth, batch=len(y)),
                "score": paper_score(y, truth),
                "rmse": float(np.sqrt(np.mean((y - truth) ** 2))),
            }
        curves = wear_curves(outputs, samples)
        near = {name: c for name, c in curves.items() if task != "pronostia" or name.startswith("Bearing1")}
        found = {f"rmse {name}": curve.rmse for name, curve in curves.items()}
        found["score"] = float(np.mean([paper_score(c.predicted, c.truth) for c in near.values()]))
        found["rmse"] = float(np.mean([c.rmse for c in near.values()]))
        found["phm"] = float(np.mean([c.phm() for c in near.values()]))
        if len(curves) > len(near):
            found["rmse_elsewhere"] = float(np.mean([c.rmse for name, c in curves.items() if name not in near]))
        return found


class WearCurve:
    """Predicted wear of one bearing over its life."""

    def __init__(self, t_s: NDArray[np.float64], predicted: NDArray[np.float64], truth: NDArray[np.float64]) -> None:
        """Times [N] in seconds, predicted and true wear [N]; for a bearing still at work, the truth has no meaning."""
        self.t_s, self.predicted, self.truth = t_s, np.clip(predicted, 0.0, 1.0), truth

    @property
    def rmse(self) -> float:
        """Root mean square error of the wear."""
        return float(np.sqrt(np.mean((self.predicted - self.truth) ** 2)))

    def remaining_s(self) -> NDArray[np.float64]:
        """[N] predicted remaining seconds at each snapshot, from the wear so far; infinite while none shows."""
        beyond = self.predicted > WORN
        run, begin = 0, np.inf
        left = np.full(len(self.t_s), np.inf)
        for i, now in enumerate(beyond):
            run = run + 1 if now else 0
            if run == IN_A_ROW and begin == np.inf:
                # From here on the wear grows from WORN to 1.
                begin = self.t_s[i - IN_A_ROW + 1]
            if begin < np.inf:
                share = max((self.predicted[i] - WORN) / (1 - WORN), 0.0)
                left[i] = float(remaining_s(share, self.t_s[i] - begin))
        return left

    def phm(self) -> float:
        """Mean PHM-2012 accuracy over the snapshots between the first true wear and the last but one."""
        asked = (self.truth > 0) & (self.t_s < self.t_s[-1])
        if not asked.any():
            return 0.0
        return phm2012_score(self.t_s[-1] - self.t_s[asked], self.remaining_s()[asked])


def cut(lives: Sequence[Life]) -> list[Sample]:
    """Segments of lives."""
    return [s for life in lives for s in segments(life.name, life.series(), judged=JUDGED, context=CONTEXT)]


def wear_curves(outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, WearCurve]:
    """Each bearing's curve from the answers to its segments."""
    predicted = joined(samples, [y[:, 0] for y in outputs])
    times, truth = field_of(samples, "t"), field_of(samples, "target")
    return {
        name: WearCurve(times[name].double().numpy(), y.double().numpy(), truth[name].double().numpy())
        for name, y in predicted.items()
    }


def scaled(x: Tensor) -> Tensor:
    """Each column with its own mean and deviation: of all rows there are, as the authors' scripts do."""
    std = x.std(dim=0, unbiased=False)
    return ((x - x.mean(dim=0)) / torch.where(std > 0, std, 1.0)).float()


def row_samples(name: str, x: Tensor, y: Tensor, most: int | None) -> list[Sample]:
    """One sample of one step per row; at most ``most``, evenly spread."""
    kept = range(len(x)) if most is None or most >= len(x) else np.linspace(0, len(x) - 1, most).round().astype(int)
    nothing = torch.zeros(1)
    return [Sample(f"{name} {i}", {"x": x[i : i + 1], "t": nothing}, {"target": y[i]}) for i in kept]


def problem(protocol: ProtocolName) -> Bearings:
    """The task under ``protocol``."""
    return Bearings(protocol)
