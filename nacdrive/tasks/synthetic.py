"""Five small tasks made from seeds, each of which asks for one thing that a layer between irregular steps may lack.

    nacdrive bench table --tasks synthetic-decay synthetic-recall --models nac-lag lstm mha --budget cpu --seeds 3

Time is no feature of a step: it reaches a layer only in so far as the layer feels it. Nothing here is measured data;
a training takes a minute at most on one core, and what is held out is drawn from random streams of its own.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.tasks.base import EVERYTHING, Fold, Metric, Size
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.series import Classification, Regression, SeriesTask

TRAIN, VALID, TEST = 4096, 512, 2048
"""Sequences of each part."""
PARTS = ("train", "valid", "test")
STEPS = 24
"""Steps of a sequence of the tasks without a question among them."""
TAU_S = 8.0
"""Time constant of what decays; steps are one second apart on average."""
SYMBOLS = 8
"""Contents that are told apart."""
MOST_BLANKS = 8
"""Empty steps at most between the last content and the question."""
MOST_BITS = 24
"""Length of the longest bit stream."""
Random = np.random.Generator
Drawn = tuple[NDArray[np.float32], NDArray[np.float64], float]
"""Features [T, F], times [T] in seconds, and the target: a number, or a class."""


class Synthetic(SeriesTask):
    """A task whose sequences follow from seeds. The test part is the same for all folds and seeds.

    A subclass brings ``draw``. Around the sequence layer stands as little as can be: one map of each step by itself,
    and a head.
    """

    data_folders = ()
    read = "last"
    window = 4 * STEPS  # never what limits an answer, in stacks either
    channels, kernels, strides, d_model, num_heads, dense = (32,), (1,), (1,), 32, 4, (32,)
    settings = {"batch_size": 32, "valid_batch": 256, "learning_rate": 3e-3, "epochs": 24, "patience": 0}
    sizes = {"smoke": Size(1, 128, 64), "cpu": Size(4, 2304), "full": Size()}

    @abstractmethod
    def draw(self, random: Random, part: str) -> Drawn:
        """One sequence of ``part``, one of ``PARTS``."""

    def folds(self, data_dirs: Mapping[str, Path], count: int, seed: int, size: Size = EVERYTHING) -> list[Fold]:
        """Fold k learns from sequences of seed + k; see ``Task.folds``."""
        amount = size.max_samples or TRAIN + VALID
        valid = max(1, round(amount * VALID / (TRAIN + VALID)))
        test = self.part("test", 0, min(size.max_tests or TEST, TEST))
        return [
            Fold(
                f"sequences of seed {seed + k}",
                self.part("train", seed + k, max(1, amount - valid)),
                self.part("valid", seed + k, valid),
                {self.name: test},
            )
            for k in range(count)
        ]

    def part(self, part: str, seed: int, count: int) -> list[Sample]:
        """``count`` sequences; the first of them are the same whatever ``count`` is."""
        # Parts have streams of their own, so no seed of the one can be a seed of the other.
        random = np.random.default_rng((PARTS.index(part), seed))
        return [self.sample(f"{part} sequence {i} of seed {seed}", *self.draw(random, part)) for i in range(count)]

    def sample(self, name: str, x: NDArray[np.float32], t: NDArray[np.float64], target: float) -> Sample:
        """A drawn sequence as tensors; the time stamps in float64, as clocks have them."""
        return Sample(name, {"x": torch.from_numpy(x), "t": torch.from_numpy(t)}, {"target": torch.tensor(target)})


class SyntheticRegression(Synthetic, Regression):
    """One number, scored by the share of its variance that is explained."""

    metrics = (Metric("r2", "R2", higher=True, digits=4), Metric("mae", "MAE", higher=False, digits=4))
    note = "Made from seeds. R2 is 1 - squared error over that of the test part's mean: 1 at best, 0 for a constant."

    def spare(self, sample: Sample) -> Tensor:
        """See ``SeriesTask.spare``: nothing is shown there; the last step is what asks."""
        empty = (sample.fields["x"] == 0).all(dim=1)
        empty[-1] = False
        return empty

    def score(self, task: str, outputs: Sequence[Tensor], samples: Sequence[Sample]) -> dict[str, float]:
        y, truth = self.answers(outputs, samples)
        error, spread = y[:, 0].double() - truth.double(), truth.double() - truth.double().mean()
        return {"r2": float(1 - error.square().sum() / spread.square().sum()), "mae": float(error.abs().mean())}


class Decay(SyntheticRegression):
    """A cue is shown once; at the end: what would be left of it, c exp(-(t - t_cue) / 8 s)."""

    name = "synthetic-decay"

    def draw(self, random: Random, part: str) -> Drawn:
        t = times(random, STEPS)
        cue, when = random.choice((-1.0, 1.0)) * random.uniform(0.5, 1.0), random.integers(STEPS)
        x = np.zeros((STEPS, 1), np.float32)
        x[when] = cue
        return x, t, float(cue * np.exp(-(t[-1] - t[when]) / TAU_S))


class Since(SyntheticRegression):
    """Events come and go; at the end: the time since the last one, in units of 8 s."""

    name = "synthetic-since"

    def draw(self, random: Random, part: str) -> Drawn:
        t = times(random, STEPS)
        event = random.random(STEPS) < 0.15
        event[0] = True
        return event[:, None].astype(np.float32), t, float((t[-1] - t[event][-1]) / TAU_S)


class Recall(SyntheticRegression):
    """Each of eight symbols comes with a number, in any order; after a pause: the number of one of them."""

    name = "synthetic-recall"

    def draw(self, random: Random, part: str) -> Drawn:
        t = times(random, SYMBOLS + int(random.integers(MOST_BLANKS + 1)) + 1)
        order, value, asked = random.permutation(SYMBOLS), random.uniform(-1, 1, SYMBOLS), random.integers(SYMBOLS)
        x = np.zeros((len(t), SYMBOLS + 2), np.float32)  # symbol, number, whether this is the question
        x[np.arange(SYMBOLS), order] = 1.0
        x[:SYMBOLS, SYMBOLS] = value
        x[-1, order[asked]] = x[-1, SYMBOLS + 1] = 1.0
        return x, t, float(self.answer(value[asked], t[-1] - t[asked]))

    def answer(self, value: float, age_s: float) -> float:
        """What is asked for of a number that was shown ``age_s`` ago."""
        return value


class RecallDecay(Recall):
    """The same, and the number has decayed since it was shown: content and time together."""

    name = "synthetic-recall-decay"

    def answer(self, value: float, age_s: float) -> float:
        return value * float(np.exp(-age_s / TAU_S))


class XOR(Synthetic, Classification):
    """The bit-stream XOR task of Lechner & Hasani (2020) and Hasani et al. (2022), sent as events: is the sum odd?

    A step is a run of equal bits, its time the number of bits so far; so the answer needs the gaps between steps.
    As there, streams are of 2 bits or more; here of 24 at most, and none of the test part is in another part, which
    short streams cannot avoid when parts are drawn independently.
    """

    name = "synthetic-xor"
    outputs = 2
    meta = {"classes": ["even", "odd"]}
    note = "Made from seeds. No bit stream of the test part is in another part; chance is 50 %."

    def draw(self, random: Random, part: str) -> Drawn:
        while True:
            bits = random.integers(0, 2, random.integers(2, MOST_BITS + 1))
            if part_of(bits) == part:
                break
        ends = np.append(np.flatnonzero(np.diff(bits)), len(bits) - 1)
        return bits[ends, None].astype(np.float32), ends + 1.0, int(bits.sum() % 2)

    def sample(self, name: str, x: NDArray[np.float32], t: NDArray[np.float64], target: float) -> Sample:
        """With a first step at 0, from which the first gap counts."""
        return super().sample(name, np.concatenate([x[:1], x]), np.concatenate([[0.0], t]), target)


def part_of(bits: NDArray[np.int64]) -> str:
    """The part that a bit stream belongs to: an eighth of all streams are for the test, an eighth for validation."""
    # A checksum would be linear in the bits, as the answer is.
    digest = hashlib.blake2b(bits.astype(np.uint8).tobytes(), digest_size=1).digest()[0]
    return {0: "test", 1: "valid"}.get(digest % 8, "train")


def times(random: Random, steps: int) -> NDArray[np.float64]:
    """Irregular times: gaps of one second on average, exponentially distributed."""
    return np.cumsum(random.exponential(1.0, steps))
