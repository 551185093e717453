"""The IEEE PHM 2012 challenge as it was posed: learn from six bearings, answer once for each of eleven truncated ones.

A network learns wear from the learning bearings, as under ``sequence``; its one answer is the remaining life that
``nacdrive predict`` would print at the truncation, with the lives of the learning bearings as the prior. What has no
network answers with outputs of two columns, the second of which is the remaining life itself.

Numbers of files are those of the published folders ``Learning_set``, ``Test_set`` and ``Full_Test_Set``; the remaining
lives were printed after the challenge. With 10 s a file the two agree for ten of eleven bearings.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.datasets.synthetic import is_synthetic
from nacdrive.extras.bearings.features import features
from nacdrive.extras.bearings.layouts import PRONOSTIA, Bearing, file_number, open_bearings
from nacdrive.extras.bearings.runs import RunToFailure
from nacdrive.extras.bearings.wear import SurvivalPrior, phm2012_score, wear_curves
from nacdrive.tasks.base import Metric
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.splits import evenly, field_of, joined

SCORE = Metric("challenge", "score of the PHM-2012 challenge", higher=True, digits=3)
FOR_SCORE = Metric("challenge_best", "the same, answering for the score", higher=True, digits=3)
COVERED = Metric("covered", "bearings within the 80 % interval, %", higher=True, digits=0)
TESTED = Metric("bearings", "of 11 bearings", higher=True, digits=0, compared=False)
LEARNT = Metric("learnt", "learnt from, of 6", higher=True, digits=0, compared=False)
METRICS = (SCORE, FOR_SCORE, COVERED, TESTED, LEARNT)

NOTE = (
    "The IEEE PHM 2012 challenge as it was posed: learn from six bearings, answer once for each of eleven that were "
    "truncated before their end. The score is the official one, mean over the test bearings that are there, with "
    "remaining lives by the published files (Bearing1_4: 2890 s; results.jsonl also holds the score with the printed "
    "339 s). An answer is the median of what `nacdrive predict` says at the truncation; *answering for the score* "
    "takes the answer that expects most of it, for it punishes lives that are told too long four times as hard. "
    "Interval: of `predict`, 10 to 90 %. With fewer than 11 and 6 bearings it is no number of the challenge's."
)
CONSTANT_S = 1000.0
"""A round answer, chosen without looking."""
PERIOD_S = 10.0


@dataclass(frozen=True)
class Question:
    """One truncated bearing."""

    files: int  # files that a contestant was given
    full_files: int  # files until its failure, published later
    printed_s: float  # remaining life in seconds as it was printed

    @property
    def remaining_s(self) -> float:
        """Remaining life in seconds by the files themselves.

        It is the printed one but for Bearing1_4, for which 339 s were printed and 289 files, 2890 s, were left.
        """
        return PERIOD_S * (self.full_files - self.files)


ROWS = list(csv.DictReader(Path(__file__).with_name("challenge.csv").read_text(encoding="utf-8").splitlines()))
LEARNING_FILES = {row["bearing"]: int(row["full_files"]) for row in ROWS if not row["files"]}
"""Files of each learning bearing, all of which ran to failure."""
QUESTIONS = {
    row["bearing"]: Question(int(row["files"]), int(row["full_files"]), float(row["printed_s"]))
    for row in ROWS
    if row["files"]
}
"""The eleven test bearings in the challenge's order."""


def learning_lives_s() -> dict[str, float]:
    """Life of each learning bearing in seconds, from its first file to its last."""
    return {name: PERIOD_S * (files - 1) for name, files in LEARNING_FILES.items()}


@dataclass(frozen=True)
class Truncated:
    """A bearing up to where the challenge asks."""

    run: RunToFailure
    seen: int  # snapshots that may be known
    remaining_s: float  # what it has left there
    printed_s: float
    whole: bool  # whether its end is there too, so that its true wear is known


def read_challenge(folder: Path) -> tuple[list[RunToFailure], list[Truncated]]:
    """Learning and test bearings that are there; warns of those that are not."""
    made_up = is_synthetic(folder)
    learning: list[RunToFailure] = []
    tests: list[Truncated] = []
    for bearing in open_bearings("pronostia", folder):
        if bearing.name in LEARNING_FILES:
            if not made_up and last_number(bearing) < LEARNING_FILES[bearing.name]:
                warnings.warn(f"{bearing.name} ends before its failure: it is not learnt from.", stacklevel=2)
                continue
            learning.append(RunToFailure("pronostia", features(bearing)))
        elif bearing.name not in QUESTIONS:
            warnings.warn(f"{bearing.name} is no bearing of the challenge: it is left out.", stacklevel=2)
        elif (test := truncated(bearing, made_up)) is not None:
            tests.append(test)
        else:
            warnings.warn(f"{bearing.name} ends before the challenge asks: it is left out.", stacklevel=2)
    if not learning or not tests:
        raise UserError(
            f"{folder} holds {len(learning)} of the challenge's 6 learning bearings ({', '.join(LEARNING_FILES)}) and "
            f"{len(tests)} of its 11 test bearings: one of each is the least."
        )
    for kind, wanted, there in (
        ("learning", LEARNING_FILES.keys(), {run.name for run in learning}),
        ("test", QUESTIONS.keys(), {test.run.name for test in tests}),
    ):
        absent = [name for name in wanted if name not in there]
        if absent and not made_up:
            warnings.warn(
                f"the challenge's {kind} bearings {', '.join(absent)} are not in {folder}: the score is that of the "
                "others.",
                stacklevel=2,
            )
    return learning, tests


def last_number(bearing: Bearing) -> int:
    """Number of a bearing's last file."""
    return file_number(PRONOSTIA.file_name, bearing.files[-1])


def truncated(bearing: Bearing, made_up: bool) -> Truncated | None:
    """A test bearing, cut where the challenge did; None if it ends before. Made-up lives are cut at the same share."""
    question = QUESTIONS[bearing.name]
    files, last = question.files, last_number(bearing)
    if made_up:
        files = max(1, round(last * question.files / question.full_files))
    if last < files:
        return None
    seen = sum(file_number(PRONOSTIA.file_name, path) <= files for path in bearing.files)
    left, printed = question.remaining_s, question.printed_s
    if made_up:
        left = printed = PERIOD_S * (last - files)
    run = RunToFailure("pronostia", features(bearing))
    return Truncated(run, seen, left, printed, whole=made_up or last >= question.full_files)


def samples_of(
    test: Truncated, lives_s: Sequence[float], most: int | None, cut: Callable[[str, dict[str, Tensor]], list[Sample]]
) -> list[Sample]:
    """Segments of what may be known of a bearing, with what it has left and the learning bearings' lives."""
    fields = {name: value[: test.seen] for name, value in test.run.series().items()}
    if not test.whole:
        fields["target"] = torch.full_like(fields["target"], torch.nan)
    kept = torch.tensor(evenly(range(test.seen), most))
    labels = {
        "remaining_s": torch.tensor(test.remaining_s, dtype=torch.float64),
        "printed_s": torch.tensor(test.printed_s, dtype=torch.float64),
        "lives_s": torch.tensor(lives_s, dtype=torch.float64),
    }
    return [replace(s, labels=labels) for s in cut(test.run.name, {k: v[kept] for k, v in fields.items()})]


def label_of(samples: Sequence[Sample], label: str) -> dict[str, Tensor]:
    """A label of every bearing."""
    return {sample.name: sample.labels[label] for sample in samples}


def challenge_scores(outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
    """Official score, and each bearing's answer; see ``NOTE``."""
    left = {name: float(value) for name, value in label_of(samples, "remaining_s").items()}
    printed = [float(value) for value in label_of(samples, "printed_s").values()]
    prior = SurvivalPrior(tuple(next(iter(label_of(samples, "lives_s").values())).tolist()))
    scores = {"bearings": float(len(left)), "learnt": float(len(prior.lives_s))}
    if outputs[0].shape[1] == 2:
        answers = {name: float(y[-1]) for name, y in joined(samples, [y[:, 1] for y in outputs]).items()}
        best = answers
    else:
        curves = wear_curves(outputs, samples)
        lived = {name: curve.remaining_life(prior) for name, curve in curves.items()}
        answers = {name: float(life.median_s[-1]) for name, life in lived.items()}
        best = {name: curve.best_guess_s(prior) for name, curve in curves.items()}
        inside = [life.low_s[-1] <= left[name] <= life.high_s[-1] for name, life in lived.items()]
        scores["covered"] = 100 * float(np.mean(inside))
    actual = list(left.values())
    scores["challenge"] = phm2012_score(actual, [answers[name] for name in left])
    scores["challenge_best"] = phm2012_score(actual, [best[name] for name in left])
    scores["challenge_printed"] = phm2012_score(printed, [answers[name] for name in left])
    return scores | {f"remaining_s {name}": value for name, value in answers.items()}


def challenge_references(train: Sequence[Sample], samples: Sequence[Sample]) -> dict[str, list[Tensor]]:
    """Answers without a network: constants and ages."""
    times = {name: t.double().numpy() for name, t in field_of(samples, "t").items()}
    learnt = {name: t.double().numpy() for name, t in field_of(train, "t").items()}
    lives = {name: float(t[-1]) for name, t in learnt.items()}
    prior = SurvivalPrior(tuple(lives.values()))
    middle = {name: float(prior.remaining_s(t[-1], 0.5)) for name, t in times.items()}
    mean = {name: max(mean_life(name, lives) - t[-1], 0.0) for name, t in times.items()}
    answers = {
        f"always {CONSTANT_S:.0f} s": dict.fromkeys(times, CONSTANT_S),
        "best constant for the learning bearings": dict.fromkeys(times, best_constant(list(learnt.values()))),
        "mean life of the condition minus elapsed": mean,
        "median of the survival prior": middle,
    }
    return {name: direct(by_bearing, samples) for name, by_bearing in answers.items()}


def direct(answers: Mapping[str, float], samples: Sequence[Sample]) -> list[Tensor]:
    """Outputs of two columns that say remaining lives themselves."""
    return [
        torch.tensor([[0.0, answers[sample.name]]], dtype=torch.float64).expand(len(sample), 2) for sample in samples
    ]


def mean_life(name: str, lives_s: Mapping[str, float]) -> float:
    """Mean life of the learning bearings of a bearing's speed and load; of all where there is none of them."""
    alike = [life for other, life in lives_s.items() if other.partition("_")[0] == name.partition("_")[0]]
    return float(np.mean(alike or list(lives_s.values())))


def best_constant(times: Sequence[NDArray[np.float64]]) -> float:
    """The constant of the highest score, had the challenge asked at every snapshot of the learning bearings."""
    candidates = PERIOD_S * np.unique(np.geomspace(1, 2000, 80).round())
    scores = [np.mean([phm2012_score(t[-1] - t[:-1], guess) for t in times]) for guess in candidates]
    return float(candidates[int(np.argmax(scores))])
