"""PAR: positions of four worn tags, at uneven times -> what the person is doing, at every reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.datasets.par import ACTIVITIES, TAGS, ParRecording, read_par
from nacdrive.datasets.synthetic import SYNTHETIC_PAR_FILE, is_synthetic
from nacdrive.tasks.base import EVERYTHING, Fold, Metric, ProtocolName, Size, shuffled_folds
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.series import Classification
from nacdrive.tasks.splits import evenly, segments, stratified

SCORED = 64
"""Readings of a segment that count."""
LONGEST_S = 5.0
"""A tag that has not been seen for longer is as good as lost; the value before its first reading."""
PERIOD_S = 0.211
"""Nominal time between two readings, by which the authors' script counts time."""
PAPER_PERSON = "B"

ACCURACY = Metric("accuracy", "accuracy per reading, %", higher=True, paper=True)
F1 = Metric("f1", "macro F1, %", higher=True)


class PAR(Classification):
    """The task under one protocol."""

    name = "par"
    protocols = ("sequence", "paper")
    metrics = (ACCURACY, F1)
    sizes = {"smoke": Size(1, 40, 10), "cpu": Size(10), "full": Size()}
    outputs, channels, kernels, d_model, num_heads, dense = len(ACTIVITIES), (64, 64), (5, 3), 32, 4, (32,)
    meta = {"classes": list(ACTIVITIES)}

    def __init__(self, protocol: ProtocolName = "sequence") -> None:
        super().__init__(protocol)
        self.settings = {"batch_size": 20, "valid_batch": 64, "learning_rate": 1e-3, "epochs": 500}
        if protocol == "paper":
            self.settings |= {"schedule": "constant", "average": 0.0, "patience": 0, "valid_batch": 1024}
            self.read, self.window, self.criterion = "last", 1, ACCURACY
            self.note = (
                f"Single readings of person {PAPER_PERSON} with their times, classes cut to the smallest, scaled "
                "before the split, in shuffled folds; the reported one chooses the epoch, as in the authors' script."
            )
        else:
            # Whole segments: cut shorter, no answer would be learnt with the window that it is tested with.
            self.settings |= {"chunk": self.context + SCORED}
            self.note = (
                "Leave one person out; the epoch is chosen on a recording of each other person. Of a single person, "
                "one recording is left out instead, and the last other one chooses the epoch."
            )

    def folds(self, data_dirs: Mapping[str, Path], count: int, seed: int, size: Size = EVERYTHING) -> list[Fold]:
        """See ``Task.folds``; sequences are segments, or rows for the paper."""
        folder = data_dirs[self.name]
        recordings = read_par(folder / SYNTHETIC_PAR_FILE if is_synthetic(folder) else folder)
        if self.protocol == "paper":
            return row_folds(recordings, count, seed, size.max_samples)
        if len(recordings) < 2:
            raise UserError(f"{folder} holds one recording: one more is needed to be held out.")
        persons = sorted({recording.person for recording in recordings})
        if len(persons) < 2:
            return [self.fold(f"recording {held.name}", [held], recordings, size) for held in recordings[:count]]
        return [
            self.fold(f"person {person}", [r for r in recordings if r.person == person], recordings, size)
            for person in persons[:count]
        ]

    def fold(self, name: str, held: Sequence[ParRecording], recordings: Sequence[ParRecording], size: Size) -> Fold:
        """Recordings held out; of every other person the last one chooses the epoch, if there is another."""
        names = {r.name for r in held}
        others = [r for r in recordings if r.name not in names]
        counts = Counter(r.person for r in others)
        last = {r.person: r.name for r in others if counts[r.person] > 1}
        valid = [r for r in others if r.name == last.get(r.person)]
        train = [r for r in others if r.name != last.get(r.person)]
        return Fold(
            name,
            evenly(self.cut(train), size.max_samples),
            evenly(self.cut(valid), size.max_tests),
            {self.name: evenly(self.cut(held), size.max_tests)},
        )

    def cut(self, recordings: Sequence[ParRecording]) -> list[Sample]:
        """Segments of recordings, of which every reading is scored once."""
        return [s for r in recordings for s in segments(r.name, series(r), scored=SCORED, context=self.context)]

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        y, truth = self.answers(outputs, samples)
        answer = y.argmax(dim=-1)
        return {"accuracy": 100 * float((answer == truth).float().mean()), "f1": 100 * macro_f1(answer, truth)}


def macro_f1(answer: Tensor, truth: Tensor) -> float:
    """F1 of each class that occurs, averaged."""
    scores = []
    for label in sorted(set(truth.tolist())):
        both = int(((answer == label) & (truth == label)).sum())
        scores.append(2 * both / (int((answer == label).sum()) + int((truth == label).sum())))
    return float(np.mean(scores))


def series(recording: ParRecording) -> dict[str, Tensor]:
    """``x`` [N, 16]: of each tag the last position and the seconds since; ``t`` [N] s; ``target`` [N]."""
    N = len(recording)
    x = np.zeros((N, len(TAGS), 4), np.float32)
    for tag in range(len(TAGS)):
        last = np.maximum.accumulate(np.where(recording.tag == tag, np.arange(N), -1))
        x[:, tag, :3] = np.where(last[:, None] < 0, 0, recording.xyz[last])
        x[:, tag, 3] = np.minimum(np.where(last < 0, LONGEST_S, recording.t_s - recording.t_s[last]), LONGEST_S)
    return {
        "x": torch.from_numpy(x.reshape(N, -1)),
        "t": torch.from_numpy(recording.t_s).float(),
        "target": torch.from_numpy(recording.activity),
    }


def row_folds(recordings: Sequence[ParRecording], count: int, seed: int, most: int | None) -> list[Fold]:
    """The authors' rows: position and counted time of one person, as many of each activity as of the rarest."""
    chosen = [r for r in recordings if r.person == PAPER_PERSON]
    if not chosen:
        raise UserError(f"--protocol paper takes the recordings of person {PAPER_PERSON} alone: there are none.")
    xyz = np.concatenate([r.xyz for r in chosen])
    activity: NDArray[np.int64] = np.concatenate([r.activity for r in chosen])
    fewest = np.bincount(activity)[np.unique(activity)].min()
    kept = np.concatenate([np.flatnonzero(activity == label)[:fewest] for label in np.unique(activity)])
    x = np.column_stack([xyz, np.arange(len(xyz)) * PERIOD_S])[kept]
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-9)
    nothing = torch.zeros(1)
    rows = [
        Sample(
            f"row {i}", {"x": torch.from_numpy(row[None]).float(), "t": nothing}, {"target": torch.tensor(int(label))}
        )
        for i, row, label in zip(kept, x, activity[kept], strict=True)
    ]
    rows = evenly(rows, most)
    labels = np.array([int(row.labels["target"]) for row in rows])
    return shuffled_folds("par", rows, stratified(labels, 5, seed)[:count])
