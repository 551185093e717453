"""PAR: positions of four worn tags, at uneven times -> what the person is doing, at every reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.datasets.par import ACTIVITIES, TAGS, ParRecording, read_par
from nacdrive.models.series import SeriesConfig, SeriesNetwork, layer_options, mean_gap, scale_of
from nacdrive.tasks.base import Sample
from nacdrive.tasks.problem import Fold, Measure, ProtocolName
from nacdrive.tasks.segments import field_of, joined, segments
from nacdrive.tasks.series_task import Classification
from nacdrive.tasks.splits import stratified
from nacdrive.tasks.synthetic_marker import is_made_up

WINDOW = 32
"""Readings that an answer of the sequence layer may depend on."""
KERNELS = (5, 3)
CONTEXT = WINDOW - 1 + sum(kernel - 1 for kernel in KERNELS)
JUDGED = 64
LONGEST_S = 5.0
"""A tag that has not been seen for longer is as good as lost; the value before its first reading."""
PERIOD_S = 0.211
"""Nominal time between two readings, by which the authors' script counts time."""
PAPER_PERSON = "B"
MADE_UP_FILE = "readings.txt"
"""In a made-up folder, so that nobody takes it for the official file."""

ACCURACY = Measure("accuracy", "accuracy per reading, %", higher=True, paper=True)
F1 = Measure("f1", "macro F1, %", higher=True)


class PAR(Classification):
    """The task under one protocol."""

    name = "par"
    measures = {"par": (ACCURACY, F1)}

    def __init__(self, protocol: ProtocolName) -> None:
        self.protocol = protocol
        self.settings: dict[str, Any] = {"batch": 20, "valid_batch": 64, "learning_rate": 1e-3, "epochs": 500}
        if protocol == "paper":
            self.settings |= {"schedule": "constant", "average": 0.0, "patience": 0, "valid_batch": 1024}
        self.notes = {
            "par": "Leave one person out; the epoch is chosen on a recording of each other person."
            if protocol == "sequence"
            else f"Single readings of person {PAPER_PERSON} with their times, classes cut to the smallest, scaled "
            "before the split, in shuffled folds; the reported one chooses the epoch, as in the authors' script."
        }

    def folds(self, places: Mapping[str, Path], count: int, seed: int, most: int | None) -> list[Fold]:
        """See ``Problem.folds``; ``most`` segments, or rows for the paper, to learn from."""
        place = places["par"]
        recordings = read_par(place / MADE_UP_FILE if is_made_up(place) else place)
        if self.protocol == "paper":
            return row_folds(recordings, count, seed, most)
        persons = sorted({recording.person for recording in recordings})
        if len(persons) < 2:
            raise UserError(f"{places['par']} holds recordings of one person: one more is needed to be held out.")
        return [person_fold(person, recordings, most) for person in persons[:count]]

    def network(self, model: str, train: Sequence[Sample], **options: Any) -> SeriesNetwork:
        """See ``Problem.network``."""
        paper = self.protocol == "paper"
        mean, std = ((0.0,) * 4, (1.0,) * 4) if paper else scale_of(train)
        config = SeriesConfig(
            task=self.name, protocol=self.protocol, model=model, channels_in=len(mean), outputs=len(ACTIVITIES),
            read="last" if paper else "steps", window=1 if paper else WINDOW, channels=(64, 64), kernels=KERNELS,
            strides=(1, 1), d_model=32, num_heads=4, dense=(32,), mean=mean, std=std,
            gap_s=None if paper else mean_gap(train), options={**layer_options(model, self.protocol), **options},
            about={"classes": list(ACTIVITIES)},
        )  # fmt: skip
        return SeriesNetwork(config)

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        """See ``Problem.score``."""
        if self.protocol == "paper":
            answer = torch.stack(list(outputs)).argmax(dim=-1)
            truth = torch.stack([sample.labels["target"] for sample in samples])
        else:
            answer = torch.cat(list(joined(samples, [y.argmax(dim=-1) for y in outputs]).values()))
            truth = torch.cat(list(field_of(samples, "target").values()))
        return {"accuracy": 100 * float((answer == truth).float().mean()), "f1": 100 * macro_f1(answer, truth)}


def macro_f1(answer: Tensor, truth: Tensor) -> float:
    """F1 of each class that occurs, averaged."""
    found = []
    for label in sorted(set(truth.tolist())):
        both = int(((answer == label) & (truth == label)).sum())
        found.append(2 * both / (int((answer == label).sum()) + int((truth == label).sum())))
    return float(np.mean(found))


def series(recording: ParRecording) -> dict[str, Tensor]:
    """``x`` [N, 16]: of each tag the last position and the seconds since; ``t`` [N] s; ``target`` [N]."""
    N = len(recording)
    x = np.zeros((N, len(TAGS), 4), np.float32)
    for tag in range(len(TAGS)):
        last = np.maximum.accumulate(np.where(recording.tag == tag, np.arange(N), -1))
        since = np.where(last < 0, LONGEST_S, recording.t_s - recording.t_s[last])
        x[:, tag, :3] = np.where(last[:, None] < 0, 0, recording.xyz[last])
        x[:, tag, 3] = np.minimum(since, LONGEST_S)
    return {
        "x": torch.from_numpy(x.reshape(N, -1)),
        "t": torch.from_numpy(recording.t_s).float(),
        "target": torch.from_numpy(recording.activity),
    }


def cut(recordings: Sequence[ParRecording]) -> list[Sample]:
    """Segments of recordings; the context's labels are not learnt from twice."""
    return [s for r in recordings for s in segments(r.name, series(r), judged=JUDGED, context=CONTEXT)]


def person_fold(person: str, recordings: Sequence[ParRecording], most: int | None) -> Fold:
    """One person held out; of every other the last recording chooses the epoch, if there is another."""
    others = [r for r in recordings if r.person != person]
    last = {r.person: r.name for r in others}
    valid = [r for r in others if r.name == last[r.person]]
    train = [r for r in others if r.name != last[r.person]]
    if not train:
        train, valid = valid, []
    few = None if most is None else max(1, most // 4)
    tested = cut([r for r in recordings if r.person == person])[:few]
    return Fold(f"person {person}", thin(cut(train), most), thin(cut(valid), few), {"par": tested})


def thin(samples: list[Sample], most: int | None) -> list[Sample]:
    """At most ``most`` of them, evenly spread."""
    if most is None or most >= len(samples):
        return samples
    return [samples[i] for i in np.linspace(0, len(samples) - 1, most).round().astype(int)]


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
    rows = thin(rows, most)
    labels = np.array([int(row.labels["target"]) for row in rows])
    folds = []
    for k, (learn, keep) in enumerate(stratified(labels, 5, seed)[:count]):
        test = [rows[i] for i in keep]
        folds.append(Fold(f"fold {k + 1} of 5", [rows[i] for i in learn], test, {"par": test}))
    return folds


def problem(protocol: ProtocolName) -> PAR:
    """The task under ``protocol``."""
    return PAR(protocol)
