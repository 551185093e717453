"""Bearings in a folder of PRONOSTIA, XJTU-SY or HUST, as they are published."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.datasets.archives import is_archive, unpacked
from nacdrive.datasets.bearings.bearing import Bearing
from nacdrive.datasets.bearings.csv_tables import read_table
from nacdrive.datasets.bearings.hust import open_hust, recordings_of
from nacdrive.datasets.bearings.timestamps import first_stamp, snapshot_times, temperatures

RATE_HZ = 25_600.0
BEARING_FOLDER = re.compile(r"Bearing([1-3])_(\d)", re.IGNORECASE)


@dataclass(frozen=True)
class Layout:
    """How a run-to-failure data set lies on a disk: a folder per bearing, a numbered file per snapshot."""

    dataset: str
    file_name: re.Pattern[str]
    file_format: str
    columns: int
    period_s: float
    """Nominal time between two snapshots."""
    conditions: tuple[str, str, str]
    """Speed and load of Bearing1_*, Bearing2_* and Bearing3_*."""
    expected: str
    """For messages."""


PRONOSTIA = Layout(
    "pronostia",
    re.compile(r"acc_(\d+)\.csv", re.IGNORECASE),
    "acc_{:05d}.csv",
    6,
    10.0,
    ("1800 rpm, 4000 N", "1650 rpm, 4200 N", "1500 rpm, 5000 N"),
    "folders such as Learning_set/Bearing1_1 with files acc_00001.csv",
)
XJTU_SY = Layout(
    "xjtu-sy",
    re.compile(r"(\d+)\.csv", re.IGNORECASE),
    "{}.csv",
    2,
    60.0,
    ("35Hz12kN", "37.5Hz11kN", "40Hz10kN"),
    "folders such as 35Hz12kN/Bearing1_1 with files 1.csv",
)
LAYOUTS = {layout.dataset: layout for layout in (PRONOSTIA, XJTU_SY)}
DATASETS = (*LAYOUTS, "hust")
TEMPERATURE_FILE = re.compile(r"temp_(\d+)\.csv", re.IGNORECASE)
HUST_EXPECTED = "files such as B500.mat"


def open_bearings(dataset: str, folder: Path, names: Sequence[str] | None = None) -> list[Bearing]:
    """Bearings in a folder of a data set, in order of names; signals are read later, snapshot by snapshot.

    A last file that was cut off while it was written is left out, with a warning. Where a bearing is there twice (the
    ``Test_set`` of PRONOSTIA is a beginning of its ``Full_Test_Set``) the longer recording is taken.

    Args:
        dataset: ``pronostia``, ``xjtu-sy`` or ``hust``.
        folder: Holds the data set's folders at any depth, one bearing's files, or its archives (unpacked into the
            user's cache); an archive itself will do.
        names: Bearings to open; all if None.

    Raises:
        UserError: if there is none, a name is unknown, or a file is not of the published format.
    """
    if dataset not in DATASETS:
        raise unknown_name("bearing data set", dataset, DATASETS)
    if not folder.exists():
        raise UserError(f"{folder} does not exist: check the path of the {dataset} data.")
    layout = LAYOUTS.get(dataset)
    found = sources(layout, folder) if layout else recordings_of(path for files in walk(folder) for path in files)
    if not found:
        expected = layout.expected if layout else HUST_EXPECTED
        raise UserError(f"{folder} holds no bearing of {dataset}: it should hold {expected}, or archives of them.")
    known = {name for name, _ in found}
    for name in names or ():
        if name not in known:
            raise unknown_name(f"bearing in {folder}", name, known)
    opener: Callable[[str, str, list[Path]], Bearing] = partial(open_folder, layout) if layout else open_hust
    return [opener(*key, paths) for key, paths in sorted(found.items()) if names is None or key[0] in names]


def walk(folder: Path) -> Iterator[list[Path]]:
    """Files of every folder below (and of) ``folder``, archives unpacked."""
    if is_archive(folder):
        folder = unpacked(folder)
    for root, _, names in os.walk(folder):
        paths = [Path(root, name) for name in sorted(names) if not name.startswith(".")]
        yield paths
        for path in paths:
            if is_archive(path):
                yield from walk(unpacked(path))


def sources(layout: Layout, folder: Path) -> dict[tuple[str, str], list[Path]]:
    """Vibration files of each bearing, by (name, condition), in order of their numbers."""
    found: dict[tuple[str, str], list[Path]] = {}
    for paths in walk(folder):
        numbered = {int(match[1]): path for path in paths if (match := layout.file_name.fullmatch(path.name))}
        match = BEARING_FOLDER.fullmatch(paths[0].parent.resolve().name) if numbered else None
        if match:
            key = (f"Bearing{match[1]}_{match[2]}", layout.conditions[int(match[1]) - 1])
            if len(numbered) > len(found.get(key, [])):
                found[key] = [numbered[number] for number in sorted(numbered)]
    return found


def open_folder(layout: Layout, name: str, condition: str, paths: list[Path]) -> Bearing:
    """A run-to-failure bearing from its vibration files."""
    read_file = partial(read_vibration, columns=layout.columns)
    samples = len(read_file(paths[0]))
    if len(paths) > 1 and len(read_table(paths[-1], layout.columns, cut=True)) < samples:
        warnings.warn(f"{paths[-1]} was cut off: it is left out.", stacklevel=3)
        paths = paths[:-1]
    numbers = [file_number(layout.file_name, path) for path in paths]
    warn_of_gaps(layout, paths[0].parent, numbers)
    temperature = None
    if layout is PRONOSTIA:
        stamps = [first_stamp(path) for path in paths]
        snapshot_s = snapshot_times(name, stamps, numbers, layout.period_s)
        temperature = temperatures(temperature_files(paths[0].parent), stamps[0] + snapshot_s)
    else:
        snapshot_s = layout.period_s * (np.array(numbers, np.float64) - numbers[0])
    return Bearing(
        name=name,
        condition=condition,
        dataset=layout.dataset,
        files=tuple(paths),
        snapshot_s=snapshot_s,
        rate_hz=RATE_HZ,
        samples=samples,
        read_file=read_file,
        temperature_c=temperature,
    )


def warn_of_gaps(layout: Layout, folder: Path, numbers: list[int]) -> None:
    """Name the files (the first five) that are absent between a bearing's first and last."""
    absent = sorted(set(range(1, numbers[-1])) - set(numbers))
    if absent:
        shown = ", ".join(layout.file_format.format(number) for number in absent[:5])
        more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
        warnings.warn(f"{folder} lacks {shown}{more}: the bearing is read without.", stacklevel=4)


def file_number(pattern: re.Pattern[str], path: Path) -> int:
    """Number in the name of a file that fits ``pattern``."""
    match = pattern.fullmatch(path.name)
    assert match, path
    return int(match[1])


def temperature_files(folder: Path) -> list[Path]:
    """Temperature files of a PRONOSTIA bearing in order of their numbers; often there is none."""
    paths = [path for path in folder.iterdir() if TEMPERATURE_FILE.fullmatch(path.name)]
    return sorted(paths, key=partial(file_number, TEMPERATURE_FILE))


def read_vibration(path: Path, columns: int) -> NDArray[np.float32]:
    """Horizontal and vertical acceleration in g, [samples, 2]: the last two columns."""
    return read_table(path, columns)[:, -2:].astype(np.float32)
