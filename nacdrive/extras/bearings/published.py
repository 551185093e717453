"""Window features of XJTU-SY and HUST as the authors of the NAC paper published them."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError
from nacdrive.datasets.downloads import is_archive, unpacked

AXES = ("Horizontal", "Vertical")
FEATURES = 7


@dataclass(frozen=True)
class PublishedBearing:
    """One feature file: a row per window of 1000 samples.

    The columns follow ``nacdrive.extras.bearings.features.FEATURES``, with two differences that cannot be undone
    without the raw recordings: dominant frequencies are in a unit of the authors' own (6 .. 74 for XJTU-SY, 20 .. 87
    for HUST), and the energies belong to scales that are not published. Times and labels are as published, and
    wrong for XJTU-SY: its minutes were joined in the order of their file names as text (docs/data.md).
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
    features = values[:, : 2 * FEATURES]
    features[:, [0, FEATURES]] = np.log10(features[:, [0, FEATURES]])
    scalars = dict(zip(sorted(needed - set(AXES)), values[:, 2 * FEATURES :].T, strict=True))
    left = None if hust else scalars["RUL"]
    return PublishedBearing(
        name=path.name.split("_features")[0],
        dataset="hust" if hust else "xjtu-sy",
        features=features.astype(np.float32),
        t_s=scalars["Time"],
        remaining_min=None if left is None else left.astype(np.float32),
        temperature_c=scalars["Temperature"].astype(np.float32) if hust else None,
    )


def numbers_of(path: Path, line: int, row: dict[str, str], scalars: list[str]) -> list[float]:
    """Both axes' features and the named scalars of one row."""
    try:
        axes = [json.loads(row[axis]) for axis in AXES]
        numbers = [*axes[0], *axes[1], *(float(row[name]) for name in scalars)]
    except (TypeError, ValueError) as error:
        raise UserError(f"{path} line {line} is no row of published features ({error}): check the file.") from error
    if (
        [len(axis) for axis in axes] != [FEATURES] * 2
        or not np.isfinite(numbers).all()
        or min(numbers[0], numbers[7]) <= 0
    ):
        raise UserError(f"{path} line {line} is no row of {FEATURES} finite features an axis: check the file.")
    return numbers
