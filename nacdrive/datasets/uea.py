"""Data sets of the UEA and UCR archives of time series classification, as their ``.ts`` files hold them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError, instead_of, shortlist
from nacdrive.datasets.downloads import is_archive, unpacked

TRAIN, TEST = "_TRAIN.ts", "_TEST.ts"


@dataclass(frozen=True)
class LabelledSeries:
    """One series, its class, and where it stands."""

    x: NDArray[np.float32]  # [T, dimensions], NaN where a value is missing
    label: int
    place: str


@dataclass(frozen=True)
class SeriesSet:
    """A data set in the parts that its makers cut it into; ``LabelledSeries.label`` counts in ``classes``."""

    name: str
    classes: tuple[str, ...]
    train: Sequence[LabelledSeries]
    test: Sequence[LabelledSeries]


def read_series_set(folder: Path) -> SeriesSet:
    """The set of which ``NAME_TRAIN.ts`` and ``NAME_TEST.ts`` lie in a folder or an archive; ``UserError`` if there is
    not one of them, a line cannot be read (with file and line), or the parts are not of one set.
    """
    folder = unpacked(folder) if is_archive(folder) else folder
    names = sorted(path.name.removesuffix(TRAIN) for path in folder.glob(f"*{TRAIN}"))
    if len(names) != 1:
        there = f"the parts of {shortlist(names)}" if names else f"no NAME{TRAIN}"
        raise UserError(f"{folder} has {there}: give NAME{TRAIN} and NAME{TEST} of one data set.")
    (classes, train), (others, test) = (read_ts(folder / f"{names[0]}{part}") for part in (TRAIN, TEST))
    if classes != others or len({series.x.shape[1] for series in (*train, *test)}) > 1:
        raise UserError(f"{folder}: classes or dimensions of {names[0]}{TRAIN} and {names[0]}{TEST} differ: copy both.")
    return SeriesSet(names[0], classes, train, test)


def read_ts(path: Path) -> tuple[tuple[str, ...], list[LabelledSeries]]:
    """Classes and series of one file."""
    if not path.is_file():
        raise UserError(f"{path} does not exist: copy it beside the other part of its data set.")
    lines = enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
    about = dict(header(lines))
    flag, *classes = about.get("@classlabel", "false").split()
    if flag.lower() != "true" or not classes or about.get("@timestamps", "false").lower() == "true":
        raise UserError(f"{path}: give a set whose header says that it has class labels and no time stamps.")
    series = [read_line(f"{path} line {number}", line, classes) for number, line in lines if line.strip()]
    if not series:
        raise UserError(f"{path} holds no series: copy it again.")
    return tuple(classes), series


def header(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """What stands above the data, name and value; ``lines`` then begin with the data."""
    for _, line in lines:
        name, _, value = line.strip().partition(" ")
        if name.lower() == "@data":
            return
        yield name.lower(), value


def read_line(place: str, line: str, classes: Sequence[str]) -> LabelledSeries:
    """One series: dimensions between colons, values between commas, its class at the end."""
    *dimensions, label = line.strip().split(":")
    with instead_of(
        ValueError,
        f"{place} is no series of equally long dimensions with one of the classes {shortlist(list(classes))}: mend "
        "the file, or copy it again.",
    ):
        rows = [np.array(row.replace("?", "nan").split(","), np.float32) for row in dimensions]
        return LabelledSeries(np.stack(rows, axis=1), list(classes).index(label), place)
