"""What may happen to a test sequence that no training knew of: missing steps, a clock that errs, no clock at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from nacdrive.tasks.sample import Sample
from nacdrive.tasks.series import SeriesTask

Kind = Literal["intact", "drop", "drop-spare", "jitter", "shuffle", "hide", "hide-all"]
TITLES: dict[Kind, str] = {
    "intact": "intact",
    "drop": "{} % of steps dropped",
    "drop-spare": "{} % of empty steps dropped",
    "jitter": "gaps ± {} %",
    "shuffle": "gaps shuffled",
    "hide": "time hidden",
    "hide-all": "time and time features hidden",
}
STREAMS: dict[Kind, int] = {kind: number for number, kind in enumerate(TITLES)}
"""Random stream of each kind, shared by its percentages: what is missing at 10 % is missing at 20 % too."""


@dataclass(frozen=True)
class Condition:
    """One thing that is done to every test sequence."""

    kind: Kind
    percent: int = 0

    @property
    def key(self) -> str:
        """Its name in results, such as ``drop-30``."""
        return f"{self.kind}-{self.percent}" if self.percent else self.kind

    @property
    def title(self) -> str:
        return TITLES[self.kind].format(self.percent)


INTACT = Condition("intact")
HIDDEN = Condition("hide")
CONDITIONS = (
    INTACT,
    *(Condition("drop", percent) for percent in (10, 20, 30, 40, 50)),
    Condition("drop-spare", 50),
    *(Condition("jitter", percent) for percent in (10, 50)),
    Condition("shuffle"),
    HIDDEN,
    Condition("hide-all"),
)
MEANING = (
    "*Dropped*: each step but the last is missing with this probability, and the others keep their times; what a step "
    "held is lost to every layer alike. *Empty steps dropped*: only steps that hold nothing, so that the true answer "
    "stays as it was. *Gaps ± p %*: each gap times a number between 1 - p and 1 + p, drawn evenly. *Gaps shuffled*: "
    "the same gaps in another order. *Time hidden*: every gap that the layer is given is the training part's mean. "
    "*Time features hidden*: the columns of the input that hold the time too."
)


def conditions_for(task: SeriesTask, samples: Sequence[Sample]) -> list[Condition]:
    """Those of ``CONDITIONS`` that mean something for a task."""
    there = {"drop-spare": task.spare(samples[0]) is not None, "hide-all": bool(task.time_columns)}
    return [condition for condition in CONDITIONS if there.get(condition.kind, True)]


def changed(
    task: SeriesTask, samples: Sequence[Sample], condition: Condition, gap_s: float, seed: int
) -> Sequence[Sample]:
    """``samples`` under ``condition``; the same for every layer, since they depend on ``seed`` alone.

    They have one label each and the fields ``x`` [T, channels] and ``t`` [T] in seconds; ``gap_s`` is the mean gap of
    the training part.
    """
    if condition.kind == "intact":
        return samples
    random = np.random.default_rng((seed, STREAMS[condition.kind]))
    return [change(task, sample, condition, gap_s, random) for sample in samples]


def change(task: SeriesTask, sample: Sample, condition: Condition, gap_s: float, random: np.random.Generator) -> Sample:
    """One sample under ``condition``; draws as much from ``random`` whatever the percentage is."""
    share, t = condition.percent / 100, sample.fields["t"]
    if condition.kind in ("drop", "drop-spare"):
        may_go = torch.ones(len(sample), dtype=torch.bool) if condition.kind == "drop" else task.spare(sample)
        assert may_go is not None
        keep = torch.from_numpy(random.random(len(sample)) >= share) | ~may_go
        # The answer is read at the last step, and holds for its time.
        keep[-1] = True
        return Sample(sample.name, {name: field[keep] for name, field in sample.fields.items()}, sample.labels)
    gaps = t.diff()
    if condition.kind == "jitter":
        gaps = gaps * torch.from_numpy(1 + share * random.uniform(-1, 1, len(gaps))).to(gaps.dtype)
    elif condition.kind == "shuffle":
        gaps = gaps[torch.from_numpy(random.permutation(len(gaps)))]
    else:
        gaps = torch.full_like(gaps, gap_s)
    fields = {**sample.fields, "t": torch.cat([t[:1], t[:1] + gaps.cumsum(dim=0)])}
    if condition.kind == "hide-all":
        x = fields["x"].clone()
        x[:, list(task.time_columns)] = fields["t"].to(x.dtype).unsqueeze(1)
        fields["x"] = x
    return Sample(sample.name, fields, sample.labels)
