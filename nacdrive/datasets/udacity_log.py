"""Recordings of the Udacity simulator as it wrote them: ``driving_log.csv`` beside ``IMG``, with all its quirks."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from itertools import pairwise
from pathlib import Path

import numpy as np

from nacdrive.common.errors import UserError
from nacdrive.datasets.udacity_row import Numbers, RawRow, disambiguate, is_header, parse_row, stamp_of

LOG = "driving_log.csv"
IMAGES = "IMG"
MPH_PER_MPS = 2.23693629
"""The simulator's own factor."""
USUAL_GAP_S = 1 / 15
"""Between two rows, where the names of the images tell no time."""
LONGEST_GAP_S = 1.0
"""A longer one begins another drive: the recording was paused."""
LARGEST_STEP_MPH = 2.0
"""Between the speeds of two rows that follow each other."""
NAMED = 5
"""Missing images that a message names."""


@dataclass(frozen=True)
class LogRow:
    """One instant of a drive."""

    center: Path
    """Image of the centre camera."""
    left: Path | None
    """Of the left one; None where there is none."""
    right: Path | None
    """Of the right one."""
    t_s: float
    """When the images were taken: seconds since 1970 by the recording computer's clock, or since the log began."""
    steering: float
    """-1 full left .. 1 full right."""
    throttle: float
    """0 .. 1."""
    brake: float
    """0 .. 1."""
    speed_mps: float
    """Metres per second."""


@dataclass(frozen=True)
class UdacityLog:
    """A log that was read."""

    folder: Path
    """The folder with ``driving_log.csv``."""
    rows: list[LogRow]
    """The usable rows, in the order of the file."""
    skipped: list[str]
    """What was left out, a phrase each."""

    def drives(self) -> list[list[LogRow]]:
        """The rows of each drive: the clock runs forward, without a pause."""
        drives = [[self.rows[0]]]
        for before, row in pairwise(self.rows):
            if not 0 < row.t_s - before.t_s <= LONGEST_GAP_S:
                drives.append([])
            drives[-1].append(row)
        return drives

    @property
    def gap_s(self) -> float:
        """Usual time between two rows, in seconds."""
        gaps = [b.t_s - a.t_s for drive in self.drives() for a, b in pairwise(drive)]
        return float(np.median(gaps)) if gaps else USUAL_GAP_S


def is_log(folder: Path) -> bool:
    """Whether a folder holds a driving log (or the path is one)."""
    return folder.name == LOG or (folder / LOG).is_file()


def read_log(folder: Path | str) -> UdacityLog:
    """Read the log in ``folder``; rows that cannot be used are left out with a warning.

    Paths in the log are those of the computer that recorded: only their last part counts, and the images are looked
    for in ``IMG`` beside the log, then beside the log itself.

    Raises:
        UserError: if there is no log, or no usable row in it.
    """
    folder = Path(folder)
    path = folder if folder.name == LOG else folder / LOG
    raw, skipped = read_lines(path)
    there = {image.name: image for place in (path.parent, path.parent / IMAGES) for image in images_in(place)}
    rows: list[LogRow] = []
    missing: list[str] = []
    stamped = all(stamp_of(row.images[0]) for row in raw)
    for row, numbers in zip(raw, disambiguate(raw), strict=True):
        absent = [name for name in row.images if name not in there]
        if absent:
            missing += absent
        else:
            rows.append(make_row(row, numbers, there, stamped))
    if missing:
        skipped.append(f"{len(missing)} images are missing ({', '.join(missing[:NAMED])}{more(missing)})")
    if not rows:
        why = "; ".join(skipped) or "it holds no row"
        advice = f"Put the images into {path.parent / IMAGES}." if missing else "Is it a log of the Udacity simulator?"
        raise UserError(f"{path} has no usable row: {why}. {advice}")
    if not stamped:
        skipped.append(f"the images' names tell no time, so rows are taken as {USUAL_GAP_S:.3f} s apart")
    if skipped:
        warnings.warn(f"{path}: {'; '.join(skipped)}. Going on with {len(rows)} rows.", stacklevel=2)
    return UdacityLog(path.parent, rows, skipped)


def read_lines(path: Path) -> tuple[list[RawRow], list[str]]:
    """The rows of a log file, and what was left out.

    Raises:
        UserError: if it does not exist or is no text.
    """
    if not path.is_file():
        inner = sorted(path.parent.glob(f"*/{LOG}")) if path.parent.is_dir() else []
        hint = f"did you mean {inner[0].parent}?" if inner else "give the folder that the simulator recorded into."
        raise UserError(f"there is no {LOG} in {path.parent}: {hint}")
    try:
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check the disk and its rights.") from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if lines and is_header(lines[0][1]):
        lines = lines[1:]
    parsed = {number: parse_row(line, number) for number, line in lines}
    # A line that lacks its end may have been cut short, even where what is left reads like a row.
    cut = bool(lines) and not text.endswith(("\n", "\r")) and not goes_on([line for _, line in lines], parsed)
    if cut:
        del parsed[lines[-1][0]]
    bad = [str(number) for number, row in parsed.items() if row is None]
    skipped = ["the last line is cut short"] if cut else []
    if bad:
        skipped.append(f"{len(bad)} lines are no rows of a driving log (line {', '.join(bad[:NAMED])}{more(bad)})")
    return [row for row in parsed.values() if row is not None], skipped


def goes_on(lines: list[str], parsed: Mapping[int, RawRow | None]) -> bool:
    """Whether the last line has all that the line before has, and about its speed."""
    if len(lines) < 2 or lines[-1].count(",") != lines[-2].count(","):
        return False
    before, last = list(parsed.values())[-2:]
    if before is None or last is None:
        return False
    return any(abs(a[3] - b[3]) <= LARGEST_STEP_MPH for a in before.readings for b in last.readings)


def make_row(row: RawRow, numbers: Numbers, there: dict[str, Path], stamped: bool) -> LogRow:
    """A row with its images found; without stamps, the time follows from the number of the line."""
    images = [there[name] for name in row.images]
    center, left, right = images if len(images) == 3 else (images[0], None, None)
    stamp = stamp_of(row.images[0])
    # The clock has no zone: read as UTC, no hour is ever skipped or lived twice.
    t_s = stamp.replace(tzinfo=UTC).timestamp() if stamped and stamp else row.line * USUAL_GAP_S
    steering, throttle, brake, speed = numbers
    return LogRow(center, left, right, t_s, steering, throttle, brake, speed / MPH_PER_MPS)


def images_in(folder: Path) -> list[Path]:
    """The images in a folder, if it is one."""
    endings = (".jpg", ".jpeg", ".png")
    return [path for path in folder.iterdir() if path.suffix.lower() in endings] if folder.is_dir() else []


def more(names: list[str]) -> str:
    """How many names a list leaves out."""
    return f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
