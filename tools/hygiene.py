"""Find in files what should not be committed: CRLF, blanks at line ends, conflict marks, no last newline, size.

    python tools/hygiene.py FILE...        # without files: all that git tracks

Prints a line for each finding and ends with code 1 if there is one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 5_000_000
"""Bytes of the largest file that belongs into git: the shipped models have 4.7 MB."""
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".cff", ".txt", ".js", ".css", ".html", ".svg", ".sh", ""}
MARK = re.compile(rb"^(<{7}|>{7}|\|{7}) ", re.MULTILINE)


def findings(path: Path) -> Iterator[str]:
    """What is wrong with a file."""
    if path.stat().st_size > LARGEST:
        yield f"is larger than {LARGEST / 1e6:g} MB"
    if path.suffix not in TEXT:
        return
    data = path.read_bytes()
    if b"\r\n" in data:
        yield "has line ends of Windows"
    if data and not data.endswith(b"\n"):
        yield "has no newline at its end"
    if MARK.search(data):
        yield "has marks of a merge that is not finished"
    # In Markdown they mean a line break; figures are written by programs.
    if path.suffix not in (".md", ".svg"):
        for number, line in enumerate(data.splitlines(), 1):
            if line != line.rstrip():
                yield f"has blanks at the end of line {number}"
                break


def tracked() -> list[Path]:
    """All files that git tracks; none where this is no clone."""
    if not (ROOT / ".git").exists():
        return []
    said = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in said.decode().split("\0") if name]


def main() -> int:
    paths = [Path(name) for name in sys.argv[1:]] or tracked()
    found = [f"{path}: {finding}" for path in paths if path.is_file() for finding in findings(path)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
