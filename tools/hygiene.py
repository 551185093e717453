"""Find in files what should not be committed: CRLF, blanks at line ends, conflict marks, no last newline, size; in
tests also deadlines that a busy machine misses.

    python tools/hygiene.py FILE...        # without files: all that git tracks

Prints a line for each finding and ends with code 1 if there is one.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 5_000_000
"""Bytes of the largest file that belongs into git: the shipped models have 4.7 MB."""
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".cff", ".txt", ".js", ".css", ".html", ".svg", ".sh", ""}
PAUSE_S, DEADLINE_S = 3.0, 120.0
"""A test may wait up to the first for what must not come, and gives up what must come at the second or later."""
PATIENT = {"timeout", "timeout_s", "longest_s"}
"""Names of what says how long something may take."""
WAITS = {"join", "wait", "wait_for", "wait_for_viewer", "settimeout", "until", "holds", "create_connection"}
"""Functions whose last argument is that."""
REAL_TIME = "# real time"
"""Ends a line whose deadline is what is tested, of what happens on a real road at a real speed."""
CLOCKS = {"monotonic", "perf_counter", "time"}
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
    if path.suffix == ".py" and "tests" in path.parts:
        lines = data.decode().splitlines()
        for number in sorted(set(short_deadlines(data.decode()))):
            if REAL_TIME in lines[number - 1]:
                continue
            yield f"gives up after less than {DEADLINE_S:g} s in line {number}: a busy machine is slower than that"
    # In Markdown they mean a line break; figures are written by programs.
    if path.suffix not in (".md", ".svg"):
        for number, line in enumerate(data.splitlines(), 1):
            if line != line.rstrip():
                yield f"has blanks at the end of line {number}"
                break


def short_deadlines(source: str) -> Iterator[int]:
    """Numbers of the lines of a test that give up, by the clock on the wall, between ``PAUSE_S`` and ``DEADLINE_S``."""
    for node in ast.walk(ast.parse(source)):
        limits: list[ast.expr] = []
        if isinstance(node, ast.Call):
            limits += [keyword.value for keyword in node.keywords if keyword.arg in PATIENT]
            if called(node) in WAITS:
                limits += node.args[-1:]
        elif isinstance(node, ast.FunctionDef):
            names = node.args.posonlyargs + node.args.args
            pairs = [*zip(names[::-1], node.args.defaults[::-1], strict=False)]
            pairs += [pair for pair in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if pair[1]]
            limits += [default for name, default in pairs if name.arg in PATIENT]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and called(node.left) in CLOCKS:
            limits.append(node.right)
        elif isinstance(node, ast.Compare) and isinstance(node.left, ast.BinOp) and called(node.left.left) in CLOCKS:
            # Of what must take long the clock may be asked.
            limits += [
                limit for sign, limit in zip(node.ops, node.comparators, strict=True) if isinstance(sign, ast.Lt)
            ]
        for limit in limits:
            value = limit.value if isinstance(limit, ast.Constant) else None
            if isinstance(value, int | float):
                # Playwright counts in milliseconds.
                seconds = value / 1000 if value >= 1000 else value
                if PAUSE_S <= seconds < DEADLINE_S:
                    yield limit.lineno


def called(node: ast.expr) -> str:
    """Name of the function or method that ``node`` calls; empty if it is no call."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "attr", "") or getattr(function, "id", "")


def tracked() -> list[Path]:
    """All files that git tracks; none where this is no clone."""
    if not (ROOT / ".git").exists():
        return []
    output = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in output.decode().split("\0") if name]


def main() -> int:
    paths = [Path(name) for name in sys.argv[1:]] or tracked()
    lines = [f"{path}: {finding}" for path in paths if path.is_file() for finding in findings(path)]
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
