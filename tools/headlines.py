"""Headline numbers stand in docs/results/headlines.json; README, model cards and pages repeat them.

    python tools/headlines.py                       # what is stale: a page that does not say a number as it is
    python tools/headlines.py set NAME "898.2 ± 39.6"   # a new measurement: changes the file and every page of it

A headline has a ``value`` as pages write it, what was ``measured``, the ``command``, the page it comes ``from`` and all
pages ``in`` which it stands. Its numbers count, not what stands between them: "97.8 % (95.6 to 99.2)" in one page is
"**97.8%** [95.6%, 99.2%]" in a table of another.
"""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs/results/headlines.json"
NUMBER = re.compile(r"\d+(?:\.\d+)?")
IN_TEXT = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.]*\w)")
CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|arXiv [\d.]+", re.DOTALL)
VERSIONS = {"3.11", "3.12", "3.13", "3.14"}
"""Of Python."""


def read_headlines(file: Path = FILE) -> dict[str, dict[str, Any]]:
    """Name -> headline."""
    headlines: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return headlines


def pattern(value: str) -> re.Pattern[str]:
    """The numbers of ``value`` one after another, whatever a page writes between them; each gap is a group."""
    return re.compile(r"(?<![\d.])" + r"([^\d\n]{1,24})".join(map(re.escape, NUMBER.findall(value))) + r"(?!\.?\d)")


def stale(headlines: dict[str, dict[str, Any]], root: Path = ROOT) -> list[str]:
    """A line for each page that does not say its headline, and each number in README's text that is of none."""
    lines = []
    for name, headline in headlines.items():
        for page in (headline["from"], *headline["in"]):
            if not pattern(headline["value"]).search((root / page).read_text(encoding="utf-8")):
                lines.append(f"{page} does not say {headline['value']} ({name})")
    ours = [one for one in headlines.values() if "README.md" in one["in"]]
    known = {number for one in ours for number in NUMBER.findall(f"{one['value']} {one['measured']}")}
    text = CODE.sub(" ", (root / "README.md").read_text(encoding="utf-8"))
    lines += [
        f"README.md says {number}: no headline" for number in IN_TEXT.findall(text) if number not in known | VERSIONS
    ]
    return lines


def set_value(name: str, value: str, root: Path = ROOT) -> None:
    """Write ``value`` into the file and every page of headline ``name``.

    Raises:
        SystemExit: where another headline of a page has the same old value, so that pages must be edited by hand, or
            the new value has more or fewer numbers.
    """
    file = root / FILE.relative_to(ROOT)
    headlines = read_headlines(file)
    headline = headlines[name]
    pages = (headline["from"], *headline["in"])
    if len(NUMBER.findall(value)) != len(NUMBER.findall(headline["value"])):
        raise SystemExit(f"{name} is {headline['value']}: {value} has another count of numbers")
    for other, theirs in headlines.items():
        shared = set(pages) & {theirs["from"], *theirs["in"]}
        if other != name and theirs["value"] == headline["value"] and shared:
            raise SystemExit(f"{other} has the value of {name} in {', '.join(sorted(shared))}: edit by hand")
    for page in pages:
        path = root / page
        text = pattern(headline["value"]).sub(partial(_with_numbers, NUMBER.findall(value)), path.read_text("utf-8"))
        path.write_text(text, encoding="utf-8")
    headline["value"] = value
    file.write_text(json.dumps(headlines, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _with_numbers(numbers: list[str], match: re.Match[str]) -> str:
    """``numbers`` with what stands between them in ``match``."""
    return "".join(number + gap for number, gap in zip(numbers, (*match.groups(), ""), strict=True))


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
