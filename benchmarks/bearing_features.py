"""Bearing features on one CPU thread beside PyWavelets, one window and many at a time, and the published features.

    OMP_NUM_THREADS=1 python benchmarks/bearing_features.py [--data FOLDER] [--write docs/results/bearing_features.md]

FOLDER holds PRONOSTIA (``pronostia/``, archives or unpacked) and the published features of XJTU-SY and HUST
(``xjtu_features.tar.xz``, ``hust_features.tar.xz``). Times are CPU time, medians over turns taken in one process.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np
import pywt
import torch
from numpy.typing import NDArray
from scipy import stats

from nacdrive.common.paths import data_folder
from nacdrive.extras.bearings.features import CENTRAL_FREQUENCY, FEATURES, FeatureOptions, WindowFeatures, features
from nacdrive.extras.bearings.layouts import RATE_HZ, open_bearings
from nacdrive.extras.bearings.runs import read_published_features

OPTIONS = FeatureOptions()
TURNS = 7
PUBLISHED_HZ = {"xjtu": (5.0, 60.0), "hust": (16.5, 150.0)}  # ends of the series, before their division by 0.81
WINDOWS = 64


def by_pywavelets(window: NDArray[np.float64], method: str = "conv") -> list[float]:
    """The seven features of one window from PyWavelets, NumPy and SciPy."""
    frequencies = np.geomspace(OPTIONS.highest_hz, OPTIONS.lowest_hz, OPTIONS.scales)
    coefficients, _ = pywt.cwt(window, CENTRAL_FREQUENCY * RATE_HZ / frequencies, "morl", method=method)
    power = (coefficients**2).sum(axis=1)
    counts, _ = np.histogram(window, bins=OPTIONS.entropy_bins)
    moments = [stats.kurtosis(window), stats.skew(window), window.mean(), window.std()]
    return [np.log10(power.sum()), frequencies[power.argmax()], stats.entropy(counts), *moments]


def by_pywavelets_at_once(windows: NDArray[np.float64]) -> NDArray[np.float64]:
    """``by_pywavelets`` of many windows: one transform along their last axis by FFT, and nothing window by window but
    the histogram.
    """
    frequencies = np.geomspace(OPTIONS.highest_hz, OPTIONS.lowest_hz, OPTIONS.scales)
    coefficients, _ = pywt.cwt(windows, CENTRAL_FREQUENCY * RATE_HZ / frequencies, "morl", method="fft", axis=-1)
    power = (coefficients**2).sum(axis=-1)
    counts = [np.histogram(window, bins=OPTIONS.entropy_bins)[0] for window in windows]
    moments = [stats.kurtosis(windows, axis=1), stats.skew(windows, axis=1), windows.mean(axis=1), windows.std(axis=1)]
    energy, dominant = np.log10(power.sum(axis=0)), frequencies[power.argmax(axis=0)]
    return np.stack([energy, dominant, stats.entropy(counts, axis=1), *moments], axis=1)


def cpu_s(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def speed(windows: NDArray[np.float32]) -> list[str]:
    """Table of milliseconds a window."""
    extractor = WindowFeatures(OPTIONS, RATE_HZ)
    single, double = torch.from_numpy(windows), windows.astype(np.float64)
    works = {
        "nacdrive, batches of 64": lambda: extractor(single),
        "PyWavelets, convolution (its default)": lambda: [by_pywavelets(row) for row in double],
        "PyWavelets, FFT": lambda: [by_pywavelets(row, "fft") for row in double],
        "PyWavelets, FFT, 64 windows at once": lambda: by_pywavelets_at_once(double),
    }
    for work in works.values():
        work()
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(TURNS):
        for name, work in works.items():
            taken[name].append(1e3 * cpu_s(work) / len(windows))
    ms = {name: statistics.median(values) for name, values in taken.items()}
    own = next(iter(ms.values()))
    rows = [f"| {name} | {value:.3g} | {value / own:.1f} |" for name, value in ms.items()]
    return ["| seven features of a window of 1000 samples, 64 scales | ms | times nacdrive's |", "|---|---|---|", *rows]


def tolerance(windows: NDArray[np.float32]) -> list[str]:
    """Table of the largest difference to PyWavelets in double precision."""
    found = WindowFeatures(OPTIONS, RATE_HZ)(torch.from_numpy(windows)).numpy()
    expected = np.array([by_pywavelets(row) for row in windows.astype(np.float64)])
    worst = np.abs(found - expected).max(axis=0)
    scale = np.abs(expected).max(axis=0)
    rows = [f"| {name} | {d:.1e} | {s:.3g} |" for name, d, s in zip(FEATURES, worst, scale, strict=True)]
    return ["| feature | largest difference | largest value |", "|---|---|---|", *rows]


def three_bin_entropies(samples: int = 1000) -> NDArray[np.float64]:
    """Every entropy that a histogram of three bins over ``samples`` values can have, in order."""
    count = np.arange(samples + 1)
    first, second = (axis.ravel() for axis in np.meshgrid(count, count))
    shares = np.stack([first, second, samples - first - second])[:, first + second <= samples] / samples
    return np.unique(stats.entropy(shares, axis=0).round(12))


def share_near(values: NDArray[np.float64], known: NDArray[np.float64], within: float) -> float:
    """Share of ``values`` that lie within so much of one of ``known``."""
    place = np.searchsorted(known, values).clip(1, len(known) - 1)
    return float((np.minimum(np.abs(values - known[place - 1]), np.abs(values - known[place])) < within).mean())


def published(folder: Path) -> list[str]:
    """Table: how many published entropies are those of three bins over 1000 samples, and frequencies of a series."""
    known = three_bin_entropies()
    rows = []
    for name, band in PUBLISHED_HZ.items():
        table = read_published_features(folder / f"{name}_features.tar.xz")
        values = np.concatenate([bearing.features[:, [2, 9]].ravel() for bearing in table]).astype(np.float64)
        chance = np.random.default_rng(0).uniform(values.min(), values.max(), len(values))
        near, by_chance = (share_near(v, known, 1e-6) for v in (values, chance))
        frequencies = np.concatenate([bearing.features[:, [1, 8]].ravel() for bearing in table]).astype(np.float64)
        on_series = share_near(np.log(frequencies), np.log(np.geomspace(*band, 100) / 0.81), 1e-6)
        rows.append(
            f"| {name} | {len(values)} | {values.max():.3f} | {100 * near:.2f} % | {100 * by_chance:.1f} % | "
            f"{100 * on_series:.2f} % of {band[0]:g} .. {band[1]:g} |"
        )
    head = (
        "| published file | entropies | largest | within 1e-6 of one | of uniform numbers | frequencies on the series |"
    )
    return [head, "|---|---|---|---|---|---|", *rows]


def by_kurtosis(folder: Path) -> list[str]:
    """Table: entropy at a kurtosis, ours on PRONOSTIA beside the published ones on other bearings."""
    edges = np.array([-0.5, -0.3, -0.1, 0.1, 0.3, 0.6, 1, 2, 4])
    own = np.concatenate(
        [features(b).features.reshape(-1, 7) for b in open_bearings("pronostia", folder / "pronostia")]
    )
    tables = {"nacdrive, PRONOSTIA": own}
    for name in ("xjtu", "hust"):
        found = read_published_features(folder / f"{name}_features.tar.xz")
        tables[f"published, {name}"] = np.concatenate([bearing.features.reshape(-1, 7) for bearing in found])
    rows = []
    for name, values in tables.items():
        place = np.digitize(values[:, 3], edges)
        means = " | ".join(f"{values[place == i, 2].mean():.2f}" for i in range(1, len(edges)))
        rows.append(f"| {name} | {means} |")
    head = " | ".join(f"{low:g} .. {high:g}" for low, high in itertools.pairwise(edges))
    return [f"| mean entropy at a kurtosis of | {head} |", "|" + "---|" * len(edges), *rows]


def real_windows(folder: Path) -> NDArray[np.float32]:
    """Windows spread over the life of Bearing1_4, both axes."""
    (bearing,) = (b for b in open_bearings("pronostia", folder / "pronostia") if b.name == "Bearing1_4")
    picks = np.linspace(0, len(bearing) - 1, WINDOWS // 2).astype(int)
    return np.concatenate([bearing.read(i)[: OPTIONS.window].T for i in picks]).copy()


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of the data sets")
    parser.add_argument("--write", type=Path, help="also write the report to this file")
    args = parser.parse_args()
    if not (args.data / "pronostia").is_dir():
        print(f"Left out: this benchmark needs PRONOSTIA in {args.data / 'pronostia'} (docs/data.md); see --data.")
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    windows = real_windows(args.data)
    text = "\n".join(
        [
            "# Bearing features: speed, equality with PyWavelets, and the published files",
            "",
            f"Measured on {datetime.date.today()}: {processor()}, Python {platform.python_version()}, "
            f"torch {torch.__version__}, PyWavelets {metadata.version('PyWavelets')}.",
            "Command: `OMP_NUM_THREADS=1 python benchmarks/bearing_features.py --data FOLDER "
            "--write docs/results/bearing_features.md`.",
            f"{WINDOWS} windows spread over the life of PRONOSTIA's Bearing1_4; one thread; medians of CPU time over "
            f"{TURNS} turns.",
            *["", "## Speed", ""],
            *speed(windows),
            *["", "## Equality", "", "Single precision against PyWavelets in double precision.", ""],
            *tolerance(windows),
            *["", "## The published feature files", ""],
            "One: the entropy of a histogram of three bins over 1000 samples (at most ln 3 = 1.099). The series: 100",
            "frequencies in a geometric series, each divided by 0.81. What both mean: [data](../data.md).",
            "",
            *published(args.data),
            "",
            *by_kurtosis(args.data),
            "",
        ]
    )
    print(text)
    if args.write:
        args.write.parent.mkdir(parents=True, exist_ok=True)
        args.write.write_text(text)


if __name__ == "__main__":
    main()
