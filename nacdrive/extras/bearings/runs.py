"""Bearings run to failure, as series: one step per snapshot, features relative to the bearing's own beginning.

They come from vibration, or from the window features of XJTU-SY and HUST that the authors of the NAC paper published.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.common.errors import UserError, quoted
from nacdrive.datasets.downloads import is_archive, unpacked
from nacdrive.extras.bearings.features import FEATURES, FeatureTable, features
from nacdrive.extras.bearings.layouts import PRONOSTIA, XJTU_SY, open_bearings, open_folder, sources
from nacdrive.extras.bearings.wear import first_prediction_time, fpt_label
from nacdrive.tasks.splits import evenly

BEGINNING = 20
"""Snapshots that tell what is usual for a bearing; from then on its features are differences from them."""
KELVIN = 273.15
ROOM_C = 25.0
"""Temperature that the authors' script assumes where none was recorded."""
MINUTE_S = 60.0
AXES = ("Horizontal", "Vertical")
EACH = len(FEATURES)
RATIOS, SHAPES = ([axis + column for axis in (0, EACH) for column in columns] for columns in ((1, 6), (3, 4)))
"""Columns of both axes: dominant frequency and deviation; kurtosis and skewness."""


@dataclass(frozen=True)
class PublishedBearing:
    """One feature file of the authors: a row per window of 1000 samples.

    The columns follow ``FEATURES``, with two differences that cannot be undone without the raw recordings: dominant
    frequencies are in a unit of the authors' own (6 .. 74 for XJTU-SY, 20 .. 87 for HUST), and the energies belong to
    scales that are not published. Times and labels are as published, and wrong for XJTU-SY: its minutes were joined in
    the order of their file names as text (docs/data.md).
    """

    name: str
    dataset: str
    features: NDArray[np.float32]
    """[N, 14] seven features of the horizontal axis, then of the vertical one; energies as log10."""
    t_s: NDArray[np.float64]
    """[N] the file's own time column. XJTU-SY: 39 ms a row, though recordings were a minute apart."""
    remaining_min: NDArray[np.float32] | None
    """[N] minutes left (XJTU-SY's column ``RUL``, whole minutes); None for HUST."""
    temperature_c: NDArray[np.float32] | None
    """[N] HUST's column of constant 25 degrees; None for XJTU-SY."""


@dataclass(frozen=True)
class RunToFailure:
    """One bearing from its first snapshot to its last."""

    dataset: str
    table: FeatureTable
    published: PublishedBearing | None = None  # the file it came from, where it came from the authors' features

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def is_training_condition(self) -> bool:
        """Whether it ran at the speed and load that the models are trained on."""
        return bool(re.match(r"Bearing1(_|$)", self.name))

    def series(self, most: int | None = None) -> dict[str, Tensor]:
        """``x`` [N, 14], ``t`` [N] in seconds, ``target`` [N]: 0 while healthy, then linear to 1 at the end; of
        ``most`` snapshots, evenly spread, where that is fewer: beginning and wear are those of all.
        """
        t_s = self.table.t_s
        fields = {
            "x": torch.from_numpy(relative(self.table.features.mean(axis=1))),
            "t": torch.from_numpy(t_s).float(),
            "target": torch.from_numpy(fpt_label(t_s, first_prediction_time(self.table))),
        }
        kept = torch.tensor(evenly(range(len(t_s)), most))
        return {name: values[kept] for name, values in fields.items()}

    def rows(self) -> tuple[Tensor, Tensor]:
        """The authors' rows: [M, 16] fourteen features, time, temperature, one row a window; [M] their ramp."""
        source = self.published or self.table
        features, t_s = source.features, source.t_s
        warm = np.full(len(t_s), ROOM_C) if source.temperature_c is None else source.temperature_c
        if isinstance(source, FeatureTable):
            _, W, F = features.shape
            features, t_s, warm = features.reshape(-1, F), (t_s[:, None] + source.window_s).ravel(), np.repeat(warm, W)
        x = torch.from_numpy(np.column_stack([features, t_s, warm + KELVIN])).double()
        return x, torch.linspace(0, 1, len(x))


def read_runs(dataset: str, folder: Path) -> list[RunToFailure]:
    """Bearings of a data set from its raw files, or else from the authors' feature files."""
    if dataset != "pronostia" and is_published(folder):
        return [run_of(bearing) for bearing in read_published_features(folder)]
    return [RunToFailure(dataset, features(bearing)) for bearing in open_bearings(dataset, folder)]


def read_own(folder: Path) -> list[RunToFailure]:
    """Bearings of one's own: a folder of vibration files whatever its name, or anything that ``read_runs`` reads.

    Files named ``acc_00001.csv`` are read as those of PRONOSTIA (every 10 s), ``1.csv`` as those of XJTU-SY (every
    minute).
    """
    if is_published(folder):
        return read_runs("xjtu-sy", folder)
    if not folder.exists():
        raise UserError(f"{folder} does not exist: check the path.")
    for layout in (PRONOSTIA, XJTU_SY):
        paths = {int(m[1]): p for p in folder.glob("*") if (m := layout.file_name.fullmatch(p.name))}
        if paths:
            files = [paths[number] for number in sorted(paths)]
            return [RunToFailure(layout.dataset, features(open_folder(layout, folder.resolve().name, "", files)))]
    for layout in (PRONOSTIA, XJTU_SY):
        if sources(layout, folder):
            return read_runs(layout.dataset, folder)
    raise UserError(
        f"{folder} holds no vibration files: acc_00001.csv, acc_00002.csv, ... as of PRONOSTIA or 1.csv, 2.csv, ... "
        "as of XJTU-SY are read."
    )


def is_published(folder: Path) -> bool:
    """Whether a folder or archive is one of the authors' features, to go by its name or its files."""
    return (folder.is_file() and "features" in folder.name) or any(folder.rglob("Bearing*_features*.csv"))


def read_published_features(path: Path) -> list[PublishedBearing]:
    """Feature files of a folder (or its archive, or one file), in order of names."""
    if is_archive(path):
        path = unpacked(path)
    if not path.exists():
        raise UserError(f"{path} does not exist: check the path of the published features.")
    files = [path] if path.is_file() else sorted(path.rglob("Bearing*_features*.csv"))
    if not files:
        raise UserError(f"{path} holds no file Bearing*_features*.csv: name the folder of published features.")
    return [read_feature_file(file) for file in files]


def read_feature_file(path: Path) -> PublishedBearing:
    """One published file; which data set it is of is told by its columns."""
    with path.open(newline="", encoding="utf-8-sig") as handle:
        reader = csv.DictReader(handle)
        columns = set(reader.fieldnames or ())
        hust = "Degradation" in columns
        needed = {*AXES, "Time", "Degradation" if hust else "RUL"} | ({"Temperature"} if hust else set())
        if not needed <= columns:
            raise UserError(f"{path} line 1 lacks the columns {', '.join(sorted(needed - columns))}: check the file.")
        rows = [numbers_of(path, line, row, sorted(needed - set(AXES))) for line, row in enumerate(reader, start=2)]
    if not rows:
        raise UserError(f"{path} holds no rows: fetch it again.")
    values = np.array(rows, np.float64)
    features = values[:, : 2 * EACH]
    features[:, [0, EACH]] = np.log10(features[:, [0, EACH]])
    scalars = dict(zip(sorted(needed - set(AXES)), values[:, 2 * EACH :].T, strict=True))
    return PublishedBearing(
        name=path.name.split("_features")[0],
        dataset="hust" if hust else "xjtu-sy",
        features=features.astype(np.float32),
        t_s=scalars["Time"],
        remaining_min=None if hust else scalars["RUL"].astype(np.float32),
        temperature_c=scalars["Temperature"].astype(np.float32) if hust else None,
    )


def numbers_of(path: Path, line: int, row: dict[str, str], scalars: list[str]) -> list[float]:
    """Both axes' features and the named scalars of one row."""
    with quoted(f"{path} line {line} is no row of published features (", "): check the file.", TypeError, ValueError):
        axes = [json.loads(row[axis]) for axis in AXES]
        numbers = [*axes[0], *axes[1], *(float(row[name]) for name in scalars)]
    if [len(axis) for axis in axes] != [EACH] * 2 or not np.isfinite(numbers).all() or min(numbers[0], numbers[7]) <= 0:
        raise UserError(f"{path} line {line} is no row of {EACH} finite features an axis: check the file.")
    return numbers


def run_of(bearing: PublishedBearing) -> RunToFailure:
    """A published bearing, one step per minute, in the order in which the minutes passed.

    The published XJTU-SY rows are not in that order: the recordings 1.csv, 2.csv, ... were taken as their names sort
    (1, 10, 100, 101, ...), so that neither the column of remaining life nor that of time belongs to its row. Undone,
    the vibration of Bearing1_1 grows with time as it should (rank correlation 0.92 instead of -0.06).
    """
    left = bearing.remaining_min
    if left is None:
        blocks = np.arange(len(bearing.t_s))
        minutes = bearing.t_s / MINUTE_S
    else:
        blocks = (left[0] - left).astype(int)
        minutes = np.array(sorted(range(1, int(left[0]) + 1), key=str)[: blocks[-1] + 1], np.float64) - 1
    sums = np.stack([np.bincount(blocks, column) for column in bearing.features.T.astype(np.float64)], axis=1)
    order = np.argsort(minutes)
    means = (sums / np.bincount(blocks)[:, None])[order].astype(np.float32)
    t_s = minutes[order] * MINUTE_S
    table = FeatureTable(bearing.name, "", means[:, None], t_s - t_s[0], np.zeros(1), None)
    return RunToFailure(bearing.dataset, table, bearing)


def relative(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Features [N, 14] as differences from the bearing's own beginning, frequencies and deviations as ratios.

    So sensors of another gain, and frequencies in another unit, give the same numbers; only the past is used.
    """
    x = values.astype(np.float64)
    x[:, RATIOS] = np.log(np.maximum(x[:, RATIOS], 1e-9))
    # A single shock gives a kurtosis of hundreds.
    x[:, SHAPES] = np.arcsinh(x[:, SHAPES])
    usual = np.stack([np.median(x[: min(i + 1, BEGINNING)], axis=0) for i in range(min(len(x), BEGINNING))])
    usual = np.concatenate([usual, np.repeat(usual[-1:], len(x) - len(usual), axis=0)])
    return np.asarray(x - usual, np.float32)
