"""What a folder of bearings holds, read to its end: for ``nacdrive data check``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.datasets.inspect import Finding
from nacdrive.extras.bearings.bearing import Bearing
from nacdrive.extras.bearings.layouts import open_bearings

SHOWN = 5
"""Damaged files named of one bearing."""


def contents(dataset: str, folder: Path) -> Iterator[Finding]:
    """Findings about one of the bearing data sets.

    Raises:
        UserError: if there is no such data at all.
    """
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


def damaged(bearing: Bearing) -> list[str]:
    """A sentence for each file of a bearing that cannot be read."""
    problems: dict[Path, str] = {}
    for i, path in enumerate(bearing.files):
        try:
            bearing.read(i)
        except UserError as error:
            problems.setdefault(path, str(error))
    return list(problems.values())
