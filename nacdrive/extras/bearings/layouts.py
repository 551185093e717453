"""Bearings in a folder of PRONOSTIA, XJTU-SY or HUST, as they are published; vibration is read when it is asked for.

HUST has MATLAB files of one accelerometer, one per bearing type, load and seeded fault; nothing in it runs to failure.
"""

from __future__ import annotations

import os
import re
import warnings
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from nacdrive.common.errors import UserError, check_known, shortlist
from nacdrive.datasets.downloads import is_archive, unpacked
from nacdrive.datasets.inspect import Finding, OddDataWarning

DAY_S = 86_400.0


@dataclass(frozen=True)
class Bearing:
    """Snapshots of one bearing in the order in which they were taken."""

    name: str
    """As its data set calls it, such as ``Bearing1_4``."""
    condition: str
    dataset: str
    """``pronostia``, ``xjtu-sy`` or ``hust``."""
    files: tuple[Path, ...]
    snapshot_s: NDArray[np.float64]
    """[N] time of each snapshot in seconds since the first."""
    rate_hz: float
    samples: int
    read_file: Callable[[Path], NDArray[np.float32]]
    """Reads a file as [rows, axes]."""
    starts: NDArray[np.int64] | None = None
    """[N] row at which each snapshot begins in its file; None where a file is a snapshot."""
    temperature_c: NDArray[np.float32] | None = None
    """[N] temperature in degrees Celsius, the last value measured before each snapshot; None where not recorded."""

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> NDArray[np.float32]:
        """Vibration of one snapshot in g, [samples, axes]."""
        path = self.files[index]
        values = self.read_file(path)
        start = 0 if self.starts is None else int(self.starts[index])
        if len(values) < start + self.samples or (self.starts is None and len(values) != self.samples):
            what = f"{path} has {len(values)} rows where {start + self.samples} belong (as in {self.files[0].name})"
            raise UserError(f"{what}: fetch it again, or move it away.")
        return values[start : start + self.samples]


class ClockWarning(OddDataWarning):
    """Files whose clock was not believed."""


def first_stamp(path: Path) -> float:
    """Seconds since midnight in the first row of a vibration file (hour, minute, second, microsecond, ...)."""
    with path.open("rb") as handle:
        rows = [fields(handle.readline())[:4] for _ in range(2)]
    # The first line may be a header.
    columns = rows[not is_number(rows[0][0])]
    if len(columns) < 4 or not all(is_number(field) for field in columns):
        raise UserError(f"{path} line 1 does not begin with hour, minute, second and microsecond: mend the file.")
    hour, minute, second, microsecond = map(float, columns)
    return hour * 3600 + minute * 60 + second + microsecond * 1e-6


def snapshot_times(name: str, stamps: Sequence[float], numbers: Sequence[int], period_s: float) -> NDArray[np.float64]:
    """Seconds since the first snapshot, from the files' own clocks.

    Midnight is passed over. Stamps outside the longest increasing series are not believed (two files of the released
    Bearing1_1 carry the time before its start); their times follow from the file numbers around them, with a warning.
    ``stamps`` are seconds since midnight in order of files, whose increasing ``numbers`` count snapshots.
    """
    raw = np.asarray(stamps, np.float64)
    # Half a day back is a new day; less is a clock that jumped.
    times = raw + DAY_S * np.cumsum(np.diff(raw, prepend=raw[:1]) < -DAY_S / 2)
    nominal = period_s * np.asarray(numbers, np.float64)
    kept = longest_increasing(times)
    if len(kept) < len(times):
        warnings.warn(
            f"{name}: the clock of {len(times) - len(kept)} of {len(times)} files runs backwards; "
            "their times are taken from the file numbers.",
            ClockWarning,
            stacklevel=2,
        )
    # Between believed stamps linearly, beyond them at the nominal rate.
    seconds: NDArray[np.float64] = nominal + np.interp(nominal, nominal[kept], times[kept] - nominal[kept])
    seconds -= seconds[0]
    return seconds


def longest_increasing(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Indices of the longest strictly increasing series within ``values`` (patience sorting)."""
    tails: list[float] = []
    tail_index: list[int] = []
    before = np.full(len(values), -1)
    for i, value in enumerate(values.tolist()):
        place = bisect_left(tails, value)
        before[i] = tail_index[place - 1] if place else -1
        tails[place : place + 1] = [value]
        tail_index[place : place + 1] = [i]
    chain, i = [], tail_index[-1] if tail_index else -1
    while i >= 0:
        chain.append(i)
        i = int(before[i])
    return np.array(chain[::-1], np.int64)


def temperatures(paths: Sequence[Path], stamps: NDArray[np.float64]) -> NDArray[np.float32] | None:
    """Last temperature measured before each snapshot, [N] in degrees Celsius; None without temperature files.

    Snapshots before the first measurement get the first one.
    ``paths`` hold hour, minute, second, tenth, degrees; ``stamps`` are [N] times of day in seconds, growing beyond a
    day where midnight is passed.
    """
    if not paths:
        return None
    rows = np.concatenate([read_table(path, 5, cut=path == paths[-1]) for path in paths])
    times = rows[:, :3] @ (3600.0, 60.0, 1.0) + rows[:, 3] * 0.1
    times += DAY_S * np.cumsum(np.diff(times, prepend=times[:1]) < -DAY_S / 2)
    times -= DAY_S * np.round((times[0] - stamps[0]) / DAY_S)
    times = np.maximum.accumulate(times)
    return np.asarray(rows[np.maximum(np.searchsorted(times, stamps, side="right") - 1, 0), 4], np.float32)


def read_table(path: Path, columns: int, *, cut: bool = False) -> NDArray[np.float64]:
    """Numbers of a text file, [rows, columns], if ``cut`` without a last line that was cut off in the middle."""
    data = path.read_bytes()
    if cut and not data.endswith(b"\n"):
        whole, _, last = data.rpartition(b"\n")
        data = data if len(fields(last)) == columns else whole
    first = data.partition(b"\n")[0]
    header = int(not is_number(fields(first)[0]))
    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            csv.ReadOptions(use_threads=False, autogenerate_column_names=True, skip_rows=header),
            csv.ParseOptions(delimiter=delimiter(first), quote_char=False),
            csv.ConvertOptions(column_types={f"f{i}": pa.float64() for i in range(columns)}),
        )
    except pa.ArrowInvalid as error:
        raise line_error(path, data, columns, header) from error
    values = np.column_stack([column.to_numpy() for column in table.columns])
    if table.num_columns != columns or not np.isfinite(values).all():
        raise line_error(path, data, columns, header)
    return values


def line_error(path: Path, data: bytes, columns: int, header: int) -> UserError:
    """What is wrong with the first line that is not ``columns`` finite numbers."""
    for number, line in enumerate(data.splitlines()[header:], start=1 + header):
        row = fields(line)
        if line and len(row) != columns:
            return UserError(f"{path} line {number} has {len(row)} columns where {columns} belong: mend the file.")
        for field in row if line else []:
            if not (is_number(field) and np.isfinite(float(field))):
                text = field.decode(errors="replace").strip()
                return UserError(f"{path} line {number} holds '{text}' where a finite number belongs: mend the file.")
    return UserError(f"{path} holds no rows of {columns} numbers: it is empty or another kind of file.")


def delimiter(line: bytes) -> str:
    """Sign between the columns of a line."""
    return next((sign for sign in (";", "\t") if sign.encode() in line), ",")


def fields(line: bytes) -> list[bytes]:
    """Fields of a line."""
    return line.rstrip(b"\r\n").split(delimiter(line).encode())


def is_number(field: bytes) -> bool:
    """Whether a field reads as a number (``nan`` does)."""
    try:
        float(field)
    except ValueError:
        return False
    return True


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
    conditions: tuple[str, str, str]  # speed and load of Bearing1_*, Bearing2_* and Bearing3_*
    expected: str


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
HUST_RATE_HZ = 51_200.0
SNAPSHOT = 51_200
"""Samples of a snapshot: each recording of about ten seconds is cut into seconds."""
LOADS = {"00": "0 W", "02": "200 W", "04": "400 W"}
FAULTS = ("N", "I", "O", "B", "IO", "IB", "OB")
"""Healthy, inner race, outer race, ball, and their pairs: the order in which a bearing's files are put."""
HUST_FILE = re.compile(r"(N|IO|OI|IB|BI|OB|BO|I|O|B)([4-8])(00|02|04)\.mat", re.IGNORECASE)


def open_bearings(dataset: str, folder: Path) -> list[Bearing]:
    """Bearings in a folder of a data set, in order of names; signals are read later, snapshot by snapshot.

    A last file that was cut off while it was written is left out, with a warning. Where a bearing is there twice (the
    ``Test_set`` of PRONOSTIA is a beginning of its ``Full_Test_Set``) the longer recording is taken.

    ``folder`` holds the folders of ``pronostia``, ``xjtu-sy`` or ``hust`` at any depth, one bearing's files, or
    archives, which are unpacked into the user's cache; an archive itself will do. ``UserError`` if there is none, or a
    file is not of the published format.
    """
    return [open_one() for *_, open_one in openers(dataset, folder)]


def openers(dataset: str, folder: Path) -> list[tuple[str, list[Path], Callable[[], Bearing]]]:
    """Name and files of each bearing of ``open_bearings``, and what opens it."""
    check_known("bearing data set", dataset, DATASETS)
    if not folder.exists():
        raise UserError(f"{folder} does not exist: check the path of the {dataset} data.")
    layout = LAYOUTS.get(dataset)
    recordings = sources(layout, folder) if layout else recordings_of(path for files in walk(folder) for path in files)
    if not recordings:
        expected = layout.expected if layout else "files such as B500.mat"
        raise UserError(f"{folder} holds no bearing of {dataset}: it should hold {expected}, or archives of them.")
    opener: Callable[[str, str, list[Path]], Bearing] = partial(open_folder, layout) if layout else open_hust
    return [(key[0], paths, partial(opener, *key, paths)) for key, paths in sorted(recordings.items())]


def walk(folder: Path) -> Iterator[list[Path]]:
    """Files of every folder below (and of) ``folder``, archives unpacked."""
    if is_archive(folder):
        folder = unpacked(folder)
    for root, folders, names in os.walk(folder):
        # Else the disk would decide which of two equally long recordings of a bearing is taken.
        folders.sort()
        paths = [Path(root, name) for name in sorted(names) if not name.startswith(".")]
        yield paths
        for path in paths:
            if is_archive(path):
                yield from walk(unpacked(path))


def sources(layout: Layout, folder: Path) -> dict[tuple[str, str], list[Path]]:
    """Vibration files of each bearing, by (name, condition), in order of their numbers."""
    files: dict[tuple[str, str], list[Path]] = {}
    for paths in walk(folder):
        numbered = {int(match[1]): path for path in paths if (match := layout.file_name.fullmatch(path.name))}
        match = BEARING_FOLDER.fullmatch(paths[0].parent.resolve().name) if numbered else None
        if match:
            key = (f"Bearing{match[1]}_{match[2]}", layout.conditions[int(match[1]) - 1])
            if len(numbered) > len(files.get(key, [])):
                files[key] = [numbered[number] for number in sorted(numbered)]
    return files


def open_folder(layout: Layout, name: str, condition: str, paths: list[Path]) -> Bearing:
    """A run-to-failure bearing from its vibration files."""
    read_file = partial(read_vibration, columns=layout.columns)
    samples = len(read_file(paths[0]))
    is_begun = b"\n" in paths[-1].read_bytes()
    if len(paths) > 1 and not (is_begun and len(read_table(paths[-1], layout.columns, cut=True)) >= samples):
        warnings.warn(f"{paths[-1]} was cut off: it is left out.", stacklevel=3)
        paths = paths[:-1]
    numbers = [file_number(layout.file_name, path) for path in paths]
    if absent := sorted(set(range(1, numbers[-1])) - set(numbers)):
        shown = shortlist([layout.file_format.format(number) for number in absent])
        warnings.warn(f"{paths[0].parent} lacks {shown}: the bearing is read without.", stacklevel=3)
    temperature = None
    if layout is PRONOSTIA:
        stamps = [first_stamp(path) for path in paths]
        snapshot_s = snapshot_times(name, stamps, numbers, layout.period_s)
        beside = [path for path in paths[0].parent.iterdir() if TEMPERATURE_FILE.fullmatch(path.name)]
        beside.sort(key=partial(file_number, TEMPERATURE_FILE))
        temperature = temperatures(beside, stamps[0] + snapshot_s)
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


def file_number(pattern: re.Pattern[str], path: Path) -> int:
    """Number in the name of a file that fits ``pattern``."""
    match = pattern.fullmatch(path.name)
    assert match, path
    return int(match[1])


def read_vibration(path: Path, columns: int) -> NDArray[np.float32]:
    """Horizontal and vertical acceleration in g, [samples, 2]: the last two columns."""
    return read_table(path, columns)[:, -2:].astype(np.float32)


SHOWN = 5
"""Damaged files named of one bearing."""


def contents(dataset: str, folder: Path) -> Iterator[Finding]:
    """Findings about one of the bearing data sets."""
    read_file = partial(read_vibration, columns=LAYOUTS[dataset].columns) if dataset in LAYOUTS else read_mat
    for name, paths, open_one in openers(dataset, folder):
        try:
            bearing = open_one()
        except UserError as error:
            problems = damaged(paths, [partial(read_file, path) for path in paths]) or [str(error)]
        else:
            problems = damaged(bearing.files, [partial(bearing.read, i) for i in range(len(bearing))])
            hours = bearing.snapshot_s[-1] / 3600
            temperature = "" if bearing.temperature_c is None else ", with temperature"
            yield Finding(
                f"{name} ({bearing.condition}): {len(bearing)} snapshots of {bearing.samples} samples "
                f"over {hours:.2f} hours{temperature}"
            )
        for problem in problems[:SHOWN]:
            yield Finding(problem, "problem")
        if len(problems) > SHOWN:
            yield Finding(f"{len(problems) - SHOWN} more files of {name} are damaged", "problem")


def damaged(files: Sequence[Path], reads: Sequence[Callable[[], object]]) -> list[str]:
    """A sentence for each of the ``files`` that cannot be read, each by its own of ``reads``."""
    problems: dict[Path, str] = {}
    for path, read in zip(files, reads, strict=True):
        try:
            read()
        except UserError as error:
            problems.setdefault(path, str(error))
    return list(problems.values())


def recordings_of(paths: Iterable[Path]) -> dict[tuple[str, str], list[Path]]:
    """Files named such as ``B500.mat`` by (bearing type, load), healthy first."""
    groups: dict[tuple[str, str], dict[int, Path]] = defaultdict(dict)
    for path in paths:
        if match := HUST_FILE.fullmatch(path.name):
            order = next(i for i, fault in enumerate(FAULTS) if sorted(match[1].upper()) == sorted(fault))
            groups[f"620{match[2]}", LOADS[match[3]]][order] = path
    return {key: [files[order] for order in sorted(files)] for key, files in groups.items()}


def open_hust(name: str, condition: str, paths: list[Path]) -> Bearing:
    """All recordings of one bearing type at one load, cut into snapshots; times count recorded seconds, not wear."""
    whole = {path: range(0, len(read_mat(path)) - SNAPSHOT + 1, SNAPSHOT) for path in paths}
    files = [path for path, starts in whole.items() for _ in starts]
    return Bearing(
        name=name,
        condition=condition,
        dataset="hust",
        files=tuple(files),
        snapshot_s=np.arange(len(files), dtype=np.float64) * SNAPSHOT / HUST_RATE_HZ,
        rate_hz=HUST_RATE_HZ,
        samples=SNAPSHOT,
        read_file=read_mat,
        starts=np.array([start for starts in whole.values() for start in starts], np.int64),
    )


@lru_cache(maxsize=1)
def read_mat(path: Path) -> NDArray[np.float32]:
    """Signal of a MATLAB file, [samples, 1]: its variable ``data``, or else its longest one. Remembers the last file.

    The variable ``fs`` of the published files is the speed of the shaft, not the sampling rate.
    """
    from scipy.io import loadmat

    try:
        content: dict[str, Any] = loadmat(path)
    except NotImplementedError as error:
        raise UserError(
            f"{path} is a MATLAB 7.3 file: save it as version 7 (in MATLAB: save('FILE.mat', '-v7'))."
        ) from error
    except Exception as error:  # a damaged file makes loadmat raise nearly anything
        raise UserError(f"{path} cannot be read as a MATLAB file ({error}): fetch it again.") from error
    arrays = {k: a for k, a in content.items() if isinstance(a, np.ndarray) and a.dtype.kind in "fiu"}
    signal = arrays.get("data", max(arrays.values(), key=np.size, default=np.zeros(0))).astype(np.float32).ravel()
    if len(signal) < SNAPSHOT:
        raise UserError(f"{path} holds no signal of a second or more: it is no HUST recording.")
    bad = np.flatnonzero(~np.isfinite(signal))
    if len(bad):
        raise UserError(f"{path} sample {bad[0] + 1} is no finite number: fetch the file again.")
    return signal[:, None]
