"""Recordings of the Udacity simulator as it wrote them: ``driving_log.csv`` beside ``IMG``, with all its quirks."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from operator import attrgetter, itemgetter
from pathlib import Path

import numpy as np

from nacdrive.common.errors import UserError, quoted, shortlist
from nacdrive.common.units import MPH_PER_MPS

COLUMNS = ("center", "left", "right", "steering", "throttle", "brake", "speed")
RANGES = ((-1.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 250.0))
"""Of steering, throttle, brake and speed (miles per hour; the simulator's own car ends at 30)."""

IMAGE = re.compile(r"[^\\/,\"]+\.(?:jpe?g|png)(?=\s*\"?\s*,)", re.IGNORECASE)
STAMP = re.compile(r"(\d{4})_(\d\d)_(\d\d)_(\d\d)_(\d\d)_(\d\d)_(\d{3})")
WHOLE = re.compile(r"-?(?:0|[1-9]\d*)")
FRACTION = re.compile(r"\d*[1-9](?:E-?\d+)?", re.IGNORECASE)
POWER = re.compile(r"-?[1-9]E-?\d+", re.IGNORECASE)

GREGORIAN = range(1970, 2200)
"""Years that the common calendar is at."""

Numbers = tuple[float, float, float, float]
"""Steering, throttle, brake, speed."""


@dataclass(frozen=True)
class RawRow:
    """What a line says, as far as it alone can tell."""

    line: int
    images: tuple[str, ...]
    """Base names of the centre, left and right image; of the centre alone where there is no other."""
    readings: tuple[Numbers, ...]
    """Every way to read its numbers; several where the decimal sign is the field separator too."""


def is_header(line: str) -> bool:
    """Whether a line names the columns."""
    return line.split(",")[0].strip().strip('"').lower() in ("center", "centre")


def parse_row(line: str, number: int, ranges: Sequence[tuple[float, float]] = RANGES) -> RawRow | None:
    """Read line ``number``; None if it is no row of a driving log, with values in these ``ranges``."""
    images = list(IMAGE.finditer(line))
    if len(images) not in (1, 3):
        return None
    fields = [field.strip().strip('"').strip() for field in line[images[-1].end() :].split(",")[1:]]
    while fields and not (fields[0] and fields[-1]):
        fields.pop(-1 if fields[0] else 0)
    readings = tuple(read_numbers(fields, ranges))
    return RawRow(number, tuple(match.group().strip() for match in images), readings) if readings else None


def read_numbers(fields: Sequence[str], ranges: Sequence[tuple[float, float]] = RANGES) -> list[Numbers]:
    """All readings of ``fields`` within the ``ranges``.

    Four fields are four numbers. In cultures with a decimal comma there are up to eight: every fraction then has a
    field of its own, which never ends in 0 (the simulator writes ``0,5`` and ``0``, never ``0,50``).
    """
    if len(fields) == 4:
        candidates = [[any_number(field) for field in fields]]
    elif 4 < len(fields) <= 8:
        candidates = [split_numbers(fields, parts) for parts in itertools.combinations(range(4), len(fields) - 4)]
    else:
        candidates = []
    # NaN lies in no range.
    return [
        (a, b, c, d)
        for a, b, c, d in candidates
        if all(low <= value <= high for value, (low, high) in zip((a, b, c, d), ranges, strict=True))
    ]


def any_number(field: str) -> float:
    """A field as a number; NaN where it is none. Persian cultures write a slash before the fraction."""
    try:
        return float(field.replace("/", ".").replace("\u066b", "."))
    except ValueError:
        return math.nan


def split_numbers(fields: Sequence[str], parts: Sequence[int]) -> list[float]:
    """Four numbers of more than four fields, if the columns in ``parts`` take two fields each."""
    rest = iter(fields)
    return [join_number(next(rest), next(rest) if column in parts else None) for column in range(4)]


def join_number(whole: str, fraction: str | None) -> float:
    """The number of a whole part and a fraction, or of a field alone; NaN where they form none."""
    if fraction is None:
        return float(whole) if WHOLE.fullmatch(whole) or POWER.fullmatch(whole) else math.nan
    return float(f"{whole}.{fraction}") if WHOLE.fullmatch(whole) and FRACTION.fullmatch(fraction) else math.nan


def disambiguate(rows: Sequence[RawRow]) -> list[Numbers]:
    """One reading for each row.

    The car never has throttle and brake at once, its speed is hardly ever a whole number but 0, and changes little.
    """
    certain = [row.readings[0][3] for row in rows if len(row.readings) == 1]
    speed = certain[0] if certain else 0.0
    settled: list[Numbers] = []
    for row in rows:
        settled.append(min(row.readings, key=lambda reading: implausibility(reading, speed)))
        speed = settled[-1][3]
    return settled


def implausibility(reading: Numbers, speed_before: float) -> tuple[bool, bool, float]:
    """Less for the likelier of two readings of a row."""
    _, throttle, brake, speed = reading
    return throttle * brake > 0, speed != 0 and speed.is_integer(), abs(speed - speed_before)


def stamp_of(image: str) -> datetime | None:
    """When an image was taken, from its name (``center_2018_07_16_17_11_43_382.jpg``); None where it tells no time.

    A year of another calendar (Persian, Islamic, Buddhist) keeps its number; its days are counted with 31 a month, for
    only the times between rows matter.
    """
    match = STAMP.search(image)
    if match is None:
        return None
    year, month, day, hour, minute, second, milliseconds = map(int, match.groups())
    try:
        if year not in GREGORIAN and 1 <= month <= 13 and 1 <= day <= 31:
            start = datetime(year, 1, 1, hour, minute, second, milliseconds * 1000)
            return start + timedelta(days=31 * (month - 1) + day - 1)
        return datetime(year, month, day, hour, minute, second, milliseconds * 1000)
    except ValueError:
        return None


LOG = "driving_log.csv"
IMAGES = "IMG"
ENDINGS = (".jpg", ".jpeg", ".png")
USUAL_GAP_S = 1 / 15
"""Between two rows, where the names of the images tell no time."""
LONGEST_GAP_S = 1.0
"""A longer one begins another drive: the recording was paused."""
LARGEST_STEP_MPH = 2.0
"""Between the speeds of two rows that follow each other."""


@dataclass(frozen=True)
class LogRow:
    """One instant of a drive."""

    center: Path
    left: Path | None  # of the left one; None where there is none
    right: Path | None
    t_s: float  # seconds since 1970 by the recording computer's clock, or since the log began
    steering: float  # -1 full left .. 1 full right
    throttle: float  # 0 .. 1
    brake: float  # 0 .. 1
    speed_mps: float


@dataclass(frozen=True)
class UdacityLog:
    """A log that was read."""

    folder: Path
    rows: list[LogRow]
    skipped: list[str]  # what was left out, a phrase each

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
    """Read the log in ``folder``; rows that cannot be used are left out with a warning. ``UserError`` if there is no
    log, or no usable row in it.

    Paths in the log are those of the computer that recorded: only their last part counts, and the images are looked
    for in ``IMG`` beside the log, then beside the log itself.
    """
    folder = Path(folder)
    path = folder if folder.name == LOG else folder / LOG
    raw, skipped = read_lines(path)
    folders = [place for place in (path.parent, path.parent / IMAGES) if place.is_dir()]
    there = {image.name: image for place in folders for image in place.iterdir() if image.suffix.lower() in ENDINGS}
    rows: list[LogRow] = []
    missing: list[str] = []
    stamped = all(stamp_of(row.images[0]) for row in raw)
    if stamped:
        # Each picture has its last row. A clock that goes back now and then is that of another drive.
        once = {row.images[0]: row for row in raw}
        if len(once) < len(raw):
            skipped.append(f"{len(raw) - len(once)} rows have the picture of a later one")
        times, raw = [stamp_of(name) or datetime.min for name in once], list(once.values())
        if 4 * sum(b < a for a, b in pairwise(times)) > len(raw):
            skipped.append("the rows were not in the order of their times, and are put into it")
            raw = [row for _, row in sorted(zip(times, raw, strict=True), key=itemgetter(0))]
    for row, numbers in zip(raw, disambiguate(raw), strict=True):
        if absent := [name for name in row.images if name not in there]:
            missing += absent
        else:
            rows.append(make_row(row, numbers, there, stamped))
    if missing:
        skipped.append(f"{len(missing)} images are missing ({shortlist(missing)})")
    if not rows:
        why = "; ".join(skipped) or "it holds no row"
        columns = f"A row is {', '.join(COLUMNS)}; left and right are both empty where there is the centre alone."
        advice = f"Put the images into {path.parent / IMAGES}." if missing else columns
        raise UserError(f"{path} has no usable row: {why}. {advice}")
    if not stamped:
        skipped.append(f"the images' names tell no time, so rows are taken as {USUAL_GAP_S:.3f} s apart")
    log = UdacityLog(path.parent, rows, skipped)
    if without := sum(n for drive in log.drives() if (n := sum(row.left is None for row in drive)) < len(drive)):
        skipped.append(f"{without} rows have no side pictures, so their drive is taken without")
    if skipped:
        warnings.warn(f"{path}: {'; '.join(skipped)}. Going on with {len(rows)} rows.", stacklevel=2)
    return log


def read_lines(path: Path) -> tuple[list[RawRow], list[str]]:
    """The rows of a log file, and what was left out."""
    if not path.is_file():
        inner = sorted(path.parent.glob(f"*/{LOG}")) if path.parent.is_dir() else []
        hint = f"did you mean {inner[0].parent}?" if inner else "give the folder that the simulator recorded into."
        raise UserError(f"there is no {LOG} in {path.parent}: {hint}")
    with quoted(f"{path} cannot be read (", "): check the disk and its rights.", OSError, say=attrgetter("strerror")):
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if lines and is_header(lines[0][1]):
        lines = lines[1:]
    parsed = {number: parse_row(line, number) for number, line in lines}
    # A line that lacks its end may have been cut short, even where what is left reads like a row.
    cut = bool(lines) and not text.endswith(("\n", "\r")) and not goes_on([line for _, line in lines], parsed)
    if cut:
        del parsed[lines[-1][0]]
    odd = {n: parse_row(line, n, [(-math.inf, math.inf)] * 4) for n, line in lines if n in parsed and not parsed[n]}
    bad = [str(n) for n, row in odd.items() if row is None]
    beyond = [str(n) for n, row in odd.items() if row is not None]
    skipped = ["the last line is cut short"] if cut else []
    if bad:
        skipped.append(f"{len(bad)} lines are no rows of a driving log (line {shortlist(bad)})")
    if beyond:
        ranges = "steering is -1 .. 1, throttle and brake are 0 .. 1, and speed 0 .. 250"
        skipped.append(f"{len(beyond)} rows have a value beyond its range (line {shortlist(beyond)}): {ranges}")
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
