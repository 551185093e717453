"""What a folder of a public data set holds, read to its end: what is sound, and what is not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nacdrive.common.plugins import load_object
from nacdrive.datasets.mnist import load_mnist
from nacdrive.datasets.par import read_par
from nacdrive.datasets.physionet2012 import read_stays
from nacdrive.datasets.uea import read_series_set


class OddDataWarning(UserWarning):
    """The data set itself is odd there, as published; nothing is missing or damaged."""


@dataclass(frozen=True)
class Finding:
    """One line of a report."""

    text: str
    kind: Literal["sound", "note", "problem"] = "sound"
    """``note``: the data set itself is odd there; ``problem``: something is missing or damaged."""


def contents(name: str, folder: Path) -> Iterator[Finding]:
    """Findings about a data set of ``nacdrive.datasets.downloads``, as they are made."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        findings = READERS[name](folder) if name in READERS else load_object(BEARINGS)(name, folder)
        while True:
            finding = next(findings, None)
            while caught:
                warning = caught.pop(0)
                note = issubclass(warning.category, OddDataWarning)
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


def physionet2012_contents(folder: Path) -> Iterator[Finding]:
    """Stays, deaths, readings."""
    stays = read_stays(folder)
    died, readings = sum(stay.died for stay in stays), sum(len(stay.value) for stay in stays)
    yield Finding(f"{len(stays)} stays in intensive care, {died} deaths in hospital, {readings} readings")


def uea_contents(folder: Path) -> Iterator[Finding]:
    """Parts, classes, dimensions and lengths."""
    data = read_series_set(folder)
    lengths = [len(series.x) for series in (*data.train, *data.test)]
    yield Finding(
        f"{data.name}: {len(data.train)} series to learn from and {len(data.test)} to test on, {len(data.classes)} "
        f"classes, {data.train[0].x.shape[1]} dimensions, {min(lengths)} to {max(lengths)} steps"
    )


READERS: dict[str, Callable[[Path], Iterator[Finding]]] = {
    "mnist": mnist_contents,
    "par": par_contents,
    "physionet2012": physionet2012_contents,
    "uea": uea_contents,
}
"""Name of a data set -> its reader; the others are of bearings."""
BEARINGS = "nacdrive.extras.bearings.layouts:contents"
