"""When the snapshots of a PRONOSTIA bearing were taken, and how warm it was."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError
from nacdrive.datasets.bearings.csv_tables import fields, is_number, read_table

DAY_S = 86_400.0
TENTH_S = 0.1


class ClockWarning(UserWarning):
    """Files whose clock was not believed."""


def first_stamp(path: Path) -> float:
    """Seconds since midnight in the first row of a vibration file (hour, minute, second, microsecond, ...).

    Raises:
        UserError: if the row does not begin with four numbers.
    """
    with path.open("rb") as handle:
        found = fields(handle.readline())[:4]
    if len(found) < 4 or not all(is_number(field) for field in found):
        raise UserError(f"{path} line 1 does not begin with hour, minute, second and microsecond: mend the file.")
    hour, minute, second, microsecond = map(float, found)
    return hour * 3600 + minute * 60 + second + microsecond * 1e-6


def snapshot_times(name: str, stamps: Sequence[float], numbers: Sequence[int], period_s: float) -> NDArray[np.float64]:
    """Seconds since the first snapshot, from the files' own clocks.

    Midnight is passed over. Stamps outside the longest increasing series are not believed (two files of the released
    Bearing1_1 carry the time before its start); their times follow from the file numbers around them, with a warning.

    Args:
        name: Of the bearing, for the warning.
        stamps: Seconds since midnight, in order of files.
        numbers: Increasing numbers of the files, which count snapshots.
        period_s: Nominal time between two snapshots.
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
    offset = np.interp(nominal, nominal[kept], times[kept] - nominal[kept])
    found: NDArray[np.float64] = nominal + offset
    found -= found[0]
    return found


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

    Args:
        paths: Files of hour, minute, second, tenth, degrees; in order of their numbers.
        stamps: [N] time of day of each snapshot in seconds, growing beyond a day where midnight is passed.
    """
    if not paths:
        return None
    rows = np.concatenate([read_table(path, 5, cut=path == paths[-1]) for path in paths])
    times = rows[:, :3] @ (3600.0, 60.0, 1.0) + rows[:, 3] * TENTH_S
    times += DAY_S * np.cumsum(np.diff(times, prepend=times[:1]) < -DAY_S / 2)
    if times[0] < stamps[0] - DAY_S / 2:
        times += DAY_S
    times = np.maximum.accumulate(times)
    last = np.searchsorted(times, stamps, side="right") - 1
    degrees: NDArray[np.float32] = rows[np.maximum(last, 0), 4].astype(np.float32)
    return degrees
