"""The statistics that a LeRobot data set carries, by which its policies scale what goes in and out.

After ``lerobot.datasets.compute_stats``: minimum, maximum, mean, standard deviation, count and five quantiles of each
feature in each episode; those of the whole are the weighted means of the episodes', its quantiles too. Ours differ in
two ways: quantiles of an episode are exact (theirs come from histograms of 5000 bins), and what is unknown (NaN) does
not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
SHRINK_FROM = 300
"""Images of this many pixels a side and more are thinned out to about ``SHRUNK``."""
SHRUNK = 150

Stats = dict[str, NDArray[Any]]
"""``min``, ``max``, ``mean``, ``std``, ``count`` and the quantiles of one feature."""


def number_stats(values: NDArray[Any]) -> Stats:
    """Statistics of [frames] or [frames, width] numbers: arrays of [1] or [width]; ``count`` is [1]."""
    rows = np.asarray(values, dtype=np.float64)
    rows = rows[:, None] if rows.ndim == 1 else rows
    # An unknown number becomes 0 only where a column knows none at all.
    known = [column[np.isfinite(column)] for column in rows.T]
    columns = [column if len(column) else np.zeros(1) for column in known]
    stats = {
        name: np.array([measure(column) for column in columns])
        for name, measure in (("min", np.min), ("max", np.max), ("mean", np.mean), ("std", np.std))
    }
    stats |= {name: np.array([np.quantile(column, q) for column in columns]) for name, q in QUANTILES.items()}
    return {**stats, "count": np.array([len(rows)])}


def sampled_frames(count: int) -> list[int]:
    """The frames whose pixels are looked at, of an episode of ``count``: about ``count ** 0.75``, at least 100."""
    samples = max(min(100, count), min(int(count**0.75), 10_000))
    return [int(i) for i in np.round(np.linspace(0, count - 1, samples))]


def image_stats(decode: Callable[[int], NDArray[np.uint8]], count: int) -> Stats:
    """Statistics of the channels of an episode's ``count`` images, 0 .. 1: arrays of [3, 1, 1].

    ``decode`` makes of the number of a frame uint8 [height, width, 3]; one frame is held at a time.
    """
    chosen = sampled_frames(count)
    levels = np.zeros((3, 256), dtype=np.int64)
    for i in chosen:
        frame = decode(i)
        height, width = frame.shape[:2]
        if max(height, width) >= SHRINK_FROM:
            step = int((width if width > height else height) / SHRUNK)
            frame = frame[::step, ::step]
        for channel in range(3):
            levels[channel] += np.bincount(frame[..., channel].reshape(-1), minlength=256)
    value = np.arange(256) / 255
    total = levels.sum(1)
    mean = levels @ value / total
    below = np.cumsum(levels, axis=1)
    stats = {
        "min": np.array([value[row.nonzero()[0][0]] for row in levels]),
        "max": np.array([value[row.nonzero()[0][-1]] for row in levels]),
        "mean": mean,
        "std": np.sqrt(np.maximum(levels @ value**2 / total - mean**2, 0)),
    }
    for name, q in QUANTILES.items():
        stats[name] = np.array([value[np.searchsorted(row, q * row[-1])] for row in below])
    return {**{name: array.reshape(3, 1, 1) for name, array in stats.items()}, "count": np.array([len(chosen)])}


def aggregate(episodes: Sequence[Mapping[str, Stats]]) -> dict[str, Stats]:
    """The statistics of a whole data set from those of its episodes; a feature may be absent from some."""
    features = dict.fromkeys(name for stats in episodes for name in stats)
    return {name: aggregate_feature([stats[name] for stats in episodes if name in stats]) for name in features}


def aggregate_feature(parts: Sequence[Stats]) -> Stats:
    """One feature's statistics from those of several episodes."""
    stacked = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    counts = stacked["count"].astype(np.float64)
    weights = counts.reshape(counts.shape[0], *[1] * (stacked["mean"].ndim - 1)) / counts.sum()

    def weighted(values: NDArray[Any]) -> NDArray[Any]:
        return np.asarray((values * weights).sum(0))

    mean = weighted(stacked["mean"])
    variance = weighted(stacked["std"] ** 2 + (stacked["mean"] - mean) ** 2)
    return {
        "min": stacked["min"].min(0),
        "max": stacked["max"].max(0),
        "mean": mean,
        "std": np.sqrt(variance),
        **{name: weighted(stacked[name]) for name in QUANTILES},
        "count": stacked["count"].sum(0),
    }
