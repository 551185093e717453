"""Means with intervals: how sure a number of few episodes is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESAMPLES = 10_000
LEVEL = 0.95
FEW = 10
"""Values, or pairs, below which a bootstrap is not trusted: of three the truth is in its interval 3 times in 4."""
NORMAL = 1.959963984540054
"""Quantile of the normal distribution at the upper end of a 95 % interval, ..."""
STUDENT = (
    12.706204736174694, 4.302652729749462, 3.1824463052837078, 2.7764451051977934, 2.5705818356363146,
    2.4469118511449786, 2.364624251592784, 2.306004135204166,
)  # fmt: skip
"""... and of Student's with 1, 2, ... degrees of freedom, for fewer than ``FEW`` values."""
SEED = 20_260_101
"""Of the resampling, so that the same returns always give the same interval."""


def resampled(count: int) -> NDArray[np.int64]:
    """Indices of ``RESAMPLES`` bootstrap samples of ``count`` episodes, shape [samples, count]."""
    return np.random.default_rng(SEED).integers(0, count, size=(RESAMPLES, count))


def bounds(samples: NDArray[np.float64]) -> list[float]:
    """Percentile interval of bootstrap samples."""
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(samples, (tail, 100 - tail))
    return [float(low), float(high)]


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Mean, sample standard deviation, extremes, and the 95 % interval of the mean, as of ``paired_difference``."""
    array = np.asarray(values, dtype=np.float64)
    return {
        "mean": float(array.mean()),
        "std": float(array.std(ddof=1)) if len(array) > 1 else None,
        "interval95": paired_difference(array, np.zeros(len(array)))["interval95"],
        "min": float(array.min()),
        "median": float(np.median(array)),
        "max": float(array.max()),
    }


def fraction(pupil: Sequence[float], expert: Sequence[float]) -> dict[str, Any] | None:
    """Ratio of the mean returns over the same tracks, with its 95 % interval.

    Tracks are resampled in pairs; below ``FEW`` of them Student's t stands in. None where the expert's mean is not
    positive: a ratio would say nothing.
    """
    p, e = np.asarray(pupil, dtype=np.float64), np.asarray(expert, dtype=np.float64)
    if len(p) != len(e):
        raise ValueError(f"{len(p)} returns against {len(e)} of the expert: they must be of the same tracks")
    if e.mean() <= 0:
        return None
    value = float(p.mean() / e.mean())
    if len(p) >= FEW:
        rows = resampled(len(p))
        means = e[rows].mean(axis=1)
        kept = means > 0
        interval = bounds(p[rows].mean(axis=1)[kept] / means[kept])
    elif interval := paired_difference(p, value * e)["interval95"]:
        interval = [value + end / float(e.mean()) for end in interval]  # the ratio's error, to first order
    return {"value": value, "interval95": interval}


def paired_difference(ours: ArrayLike, theirs: ArrayLike) -> dict[str, Any]:
    """Mean of ``ours - theirs`` over the same tracks (or folds and seeds), as many of each, with its 95 % interval.

    Pairs are resampled; below ``FEW`` of them Student's t stands in, for a bootstrap of three is far too sure.
    """
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if len(a) != len(b) or not len(a):
        raise ValueError(f"{len(a)} values against {len(b)}: they must be of the same tracks")
    differences = a - b
    mean, interval = float(differences.mean()), None
    if len(a) >= FEW:
        interval = bounds(differences[resampled(len(a))].mean(axis=1))
    elif len(a) > 1:
        half = float(STUDENT[len(a) - 2] * differences.std(ddof=1) / np.sqrt(len(a)))
        interval = [mean - half, mean + half]
    return {"value": mean, "interval95": interval}


def auc(low: NDArray[Any], high: NDArray[Any]) -> float:
    """Chance that a member of ``high`` exceeds one of ``low``, ties counting half (Mann and Whitney 1947)."""
    ordered = np.sort(low)
    below = np.searchsorted(ordered, high, side="left") + np.searchsorted(ordered, high, side="right")
    return float(below.sum() / (2 * len(low) * len(high)))


def proportion(successes: int, trials: int, quantile: float = NORMAL) -> list[float]:
    """95 % interval of a share (Wilson, 1927), sound where all or none succeeded; another by another ``quantile``."""
    share, denominator = successes / trials, 2 * (trials + quantile**2)
    centre = (2 * trials * share + quantile**2) / denominator
    half = quantile / denominator * math.sqrt(4 * trials * share * (1 - share) + quantile**2)
    return [centre - half if successes else 0.0, centre + half if successes < trials else 1.0]


def difference_of_shares(
    successes: int, trials: int, others: int, other_trials: int, comparisons: int = 1
) -> tuple[float, float]:
    """95 % interval of the difference of two independent shares (Newcombe, 1998, method 10).

    With several ``comparisons`` that shall hold together it is wider (Bonferroni).
    """
    quantile = NormalDist().inv_cdf(1 - (1 - LEVEL) / 2 / comparisons)
    first, second = successes / trials, others / other_trials
    low, high = proportion(successes, trials, quantile)
    other_low, other_high = proportion(others, other_trials, quantile)
    below = math.hypot(first - low, other_high - second)
    return first - second - below, first - second + math.hypot(high - first, second - other_low)
