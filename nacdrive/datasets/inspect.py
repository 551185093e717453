"""What a folder of a public data set holds, read to its end: what is sound, and what is not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nacdrive.common.errors import UserError
from nacdrive.datasets.bearings import Bearing, open_bearings
from nacdrive.datasets.bearings.layouts import ClockWarning
from nacdrive.datasets.mnist import load_mnist
from nacdrive.datasets.par import read_par

SHOWN = 5
"""Damaged files named of one bearing."""


@dataclass(frozen=True)
class Finding:
    """One line of a report."""

    text: str
    """A sentence or half of one."""
    kind: Literal["sound", "note", "problem"] = "sound"
    """``note``: the data set itself is odd there; ``problem``: something is missing or damaged."""


def contents(name: str, folder: Path) -> Iterator[Finding]:
    """Findings about a data set of ``nacdrive.datasets.downloads``, as they are made.

    Raises:
        UserError: if there is no such data at all, or a file that everything else depends on is damaged.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        findings = READERS[name](folder)
        while True:
            finding = next(findings, None)
            while caught:
                warning = caught.pop(0)
                note = issubclass(warning.category, ClockWarning)
                yield Finding(str(warning.message), "note" if note else "problem")
            if finding is None:
                return
            yield finding


def mnist_contents(folder: Path) -> Iterator[Finding]:
    """The four files."""
    mnist = load_mnist(folder)
    yield Finding(f"{len(mnist.train_images)} training and {len(mnist.test_images)} test images, as published")


def par_contents(folder: Path) -> Iterator[Finding]:
    """Recordings by person."""
    recordings = read_par(folder)
    for person in sorted({recording.person for recording in recordings}):
        own = [recording for recording in recordings if recording.person == person]
        yield Finding(
            f"{person}: {len(own)} recordings, {sum(map(len, own))} readings, "
            f"{sum(recording.t_s[-1] for recording in own) / 60:.1f} minutes"
        )


def bearing_contents(dataset: str) -> Callable[[Path], Iterator[Finding]]:
    """Reader of one of the bearing data sets."""

    def read(folder: Path) -> Iterator[Finding]:
        for bearing in open_bearings(dataset, folder):
            problems = damaged(bearing)
            hours = bearing.snapshot_s[-1] / 3600
            temperature = "" if bearing.temperature_c is None else ", with temperature"
            yield Finding(
                f"{bearing.name} ({bearing.condition}): {len(bearing)} snapshots of {bearing.samples} samples "
                f"over {hours:.2f} hours{temperature}"
            )
            for problem in problems[:SHOWN]:
                yield Finding(problem, "problem")
            if len(problems) > SHOWN:
                yield Finding(f"{len(problems) - SHOWN} more files of {bearing.name} are damaged", "problem")

    return read


def damaged(bearing: Bearing) -> list[str]:
    """A sentence for each file of a bearing that cannot be read."""
    problems: dict[Path, str] = {}
    for i, path in enumerate(bearing.files):
        try:
            bearing.read(i)
        except UserError as error:
            problems.setdefault(path, str(error))
    return list(problems.values())


READERS: dict[str, Callable[[Path], Iterator[Finding]]] = {
    "mnist": mnist_contents,
    "par": par_contents,
    **{dataset: bearing_contents(dataset) for dataset in ("pronostia", "xjtu-sy", "hust")},
}
