"""JSON that somebody else may have written: bounded in length and depth, without numbers that are none."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from nacdrive.common.errors import UserError, instead_of, quoted

MAX_JSON_BYTES = 2**26
"""Of a JSON file; the longest that a data set has of its own are a few megabytes."""
MAX_DEPTH = 64
"""Lists and objects within each other: deeper ones exhaust the stack of whoever walks through them."""


def parse(text: Any) -> Any:
    """What JSON stands for, text or UTF-8; ``ValueError`` if it is none, too deep, or a number in it is not finite."""
    with quoted("", "", RecursionError, TypeError, kind=ValueError):
        value = json.loads(text, parse_float=finite, parse_constant=finite)
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [part for branch in level for part in parts_of(branch)]
        if not level:
            return value
    raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


def finite(text: str) -> float:
    """A number of a JSON text; ``ValueError`` for one that is infinite, as 1e999, or none."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


def parts_of(value: Any) -> Iterable[Any]:
    """What lies directly in a list or object; nothing in anything else."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


def parse_object(text: Any) -> dict[str, Any]:
    """A JSON object from a text."""
    value = parse(text)
    if not isinstance(value, dict):
        raise ValueError(f"{str(text)[:40]!r} is no JSON object")
    return value


def read_json(path: Path) -> Any:
    """What a JSON file holds; ``UserError`` if it is missing, no regular file, too long or damaged."""
    if not path.is_file():
        what = "is no regular file" if path.exists() else "does not exist"
        raise UserError(f"{path} {what}: check the path.")
    if path.stat().st_size > MAX_JSON_BYTES:
        raise UserError(f"{path} is longer than {MAX_JSON_BYTES >> 20} MiB, which no description of a data set is.")
    with quoted(f"{path} is not readable as JSON (", "): it is damaged or another kind of file.", ValueError):
        return parse(path.read_bytes())


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object that a file holds."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise UserError(f"{path} holds no JSON object: it is damaged or another kind of file.")
    return value


def read_lines(path: Path) -> list[Any]:
    """What each line of a file stands for; one that a crash cut short is left out. ``UserError`` if it is no text."""
    if not path.is_file():
        return []
    rows = []
    with instead_of(UnicodeDecodeError, f"{path} is no text: it is damaged or another kind of file."):
        lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        with suppress(ValueError):
            rows.append(parse(line))
    return rows
