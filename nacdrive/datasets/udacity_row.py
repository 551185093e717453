"""One line of the Udacity simulator's ``driving_log.csv``: three image names and four numbers, in any culture."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

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
    """Number of the line, from 1."""
    images: tuple[str, ...]
    """Base names of the centre, left and right image; of the centre alone where there is no other."""
    readings: tuple[Numbers, ...]
    """Every way to read its numbers; several where the decimal sign is the field separator too."""


def is_header(line: str) -> bool:
    """Whether a line names the columns."""
    return line.split(",")[0].strip().strip('"').lower() in ("center", "centre")


def parse_row(line: str, number: int) -> RawRow | None:
    """Read line ``number``; None if it is no row of a driving log."""
    found = list(IMAGE.finditer(line))
    if len(found) not in (1, 3):
        return None
    fields = [field.strip().strip('"').strip() for field in line[found[-1].end() :].split(",")[1:]]
    while fields and not fields[0]:
        fields.pop(0)
    readings = tuple(read_numbers(fields))
    return RawRow(number, tuple(match.group().strip() for match in found), readings) if readings else None


def read_numbers(fields: Sequence[str]) -> list[Numbers]:
    """All readings of ``fields`` within the ranges.

    Four fields are four numbers. In cultures with a decimal comma there are up to eight: every fraction then has a
    field of its own, which never ends in 0 (the simulator writes ``0,5`` and ``0``, never ``0,50``).
    """
    if len(fields) == 4:
        candidates = [[any_number(field) for field in fields]]
    elif 4 < len(fields) <= 8:
        candidates = [split_numbers(fields, parts) for parts in itertools.combinations(range(4), len(fields) - 4)]
    else:
        candidates = []
    return [(a, b, c, d) for a, b, c, d in candidates if within((a, b, c, d))]


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


def within(values: Sequence[float]) -> bool:
    """Whether every number lies in its range (NaN does not)."""
    return all(low <= value <= high for value, (low, high) in zip(values, RANGES, strict=True))


def disambiguate(rows: Sequence[RawRow]) -> list[Numbers]:
    """One reading for each row.

    The car never has throttle and brake at once, its speed is hardly ever a whole number but 0, and changes little.
    """
    certain = [row.readings[0][3] for row in rows if len(row.readings) == 1]
    speed = certain[0] if certain else 0.0
    settled: list[Numbers] = []
    for row in rows:
        best = min(row.readings, key=lambda reading: implausibility(reading, speed))
        speed = best[3]
        settled.append(best)
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
