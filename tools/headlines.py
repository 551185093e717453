"""Headline numbers stand in docs/results/headlines.json; README, model cards and pages repeat them.

    python tools/headlines.py                       # what is stale: a page that does not say a number as it is
    python tools/headlines.py set NAME "898.2 ± 39.6"   # a new measurement: changes the file and every page of it

A headline has a ``value`` as pages write it, what was ``measured``, the ``command``, the page it comes ``from`` and all
pages ``in`` which it stands. In YAML "±" is written "+/-".
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs/results/headlines.json"
SPREAD = re.compile(r"\d+\.\d ± \d+\.\d")
"""A mean with its deviation, as README writes one."""


def read_headlines(file: Path = FILE) -> dict[str, dict[str, Any]]:
    """Name -> headline."""
    headlines: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return headlines


def spellings(value: str) -> tuple[str, ...]:
    """``value`` as text, as bold text with its deviation outside, in two cells of a table, and as in YAML."""
    mean, mark, spread = value.partition(" ± ")
    return (value, f"**{mean}**{mark}{spread}", f"{mean} | {spread}", f"{mean} +/- {spread}") if mark else (value,)


def stale(headlines: dict[str, dict[str, Any]], root: Path = ROOT) -> list[str]:
    """A line for each page that does not say its headline, and each mean ± deviation of README that is none."""
    lines = []
    for name, headline in headlines.items():
        for page in (headline["from"], *headline["in"]):
            text = (root / page).read_text(encoding="utf-8")
            if not any(spelling in text for spelling in spellings(headline["value"])):
                lines.append(f"{page} does not say {headline['value']} ({name})")
    known = {headline["value"] for headline in headlines.values() if "README.md" in headline["in"]}
    readme = (root / "README.md").read_text(encoding="utf-8").replace("**", "")
    lines += [f"README.md says {number}: no headline" for number in SPREAD.findall(readme) if number not in known]
    return lines


def set_value(name: str, value: str, root: Path = ROOT) -> None:
    """Write ``value`` into the file and every page of headline ``name``.

    Raises:
        SystemExit: where another headline of a page has the same old value, so that a page must be edited by hand.
    """
    file = root / FILE.relative_to(ROOT)
    headlines = read_headlines(file)
    headline = headlines[name]
    pages = (headline["from"], *headline["in"])
    for other, theirs in headlines.items():
        shared = set(pages) & {theirs["from"], *theirs["in"]}
        if other != name and theirs["value"] == headline["value"] and shared:
            raise SystemExit(f"{other} has the value of {name} in {', '.join(sorted(shared))}: edit by hand")
    for page in pages:
        path = root / page
        text = path.read_text(encoding="utf-8")
        for old, new in zip(spellings(headline["value"]), spellings(value), strict=True):
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    headline["value"] = value
    file.write_text(json.dumps(headlines, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """See the top of this file."""
    if len(arguments) == 3 and arguments[0] == "set":
        set_value(arguments[1], arguments[2])
    elif arguments:
        raise SystemExit(__doc__)
    lines = stale(read_headlines())
    print(*lines, sep="\n", end="\n" if lines else "")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
