"""Are the tests worth their time? Change one thing in the code at a time and see whether a test notices.

    make mutants                                                          # a sample, resumed where it was stopped
    python tools/mutants.py --sample 50 --seed 1 --minutes 20             # fifty others, or as many as that allows
    python tools/mutants.py --only nacdrive/datasets/writer.py            # of one file (or folder)

Mutations are cosmic-ray's (https://cosmic-ray.readthedocs.io); the places are drawn at random, so that a run on two
cores ends. A copy of the tree is changed, never the tree itself. Each mutant is a line of ``runs/mutants.jsonl``; a
survivor stands there with its diff, and is either a missing test or an equal program.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import importlib.util
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIRST = {
    "nacdrive/nac": (
        "tests/nac/test_limits.py tests/nac/test_against_reference.py tests/nac/test_layer.py tests/nac/test_stream.py "
        "tests/nac/test_laws.py"
    ),
    "nacdrive/drivers": "tests/drivers/test_safety_stop.py tests/drivers/test_speed_control.py",
    "nacdrive/datasets": "tests/datasets/test_recording_limits.py tests/datasets/test_udacity_log.py",
}
"""Tests of a room that are quick and notice much; those of the file's own name come before them, all others after."""
DAILY, ALL = "not nightly and not soak", "not soak"
"""Which tests look: those of every day, or all but the endless ones."""
EACH = 10
"""Places that are drawn of one room, at most."""
LEFT_OUT = ("nacdrive/nac/kernels/triton/", "nacdrive/datasets/downloads.py")
"""Kernels run in the interpreter for minutes; downloads need the network."""
NO_MUTANT = "no mutant"
"""Outcome of a place that could not be changed; it does not count."""
UNSOUND = "unsound"
"""Outcome where the test that failed fails without the change, too; it does not count."""
NOTHING_TO_RUN = 5
"""Pytest's exit code where marks leave no test of a file."""
TIMEOUT_S = 600
"""Of processor time, so that a busy machine kills no mutant; waiting for longer than an hour ends a run too."""
PRELOAD = ("torch", "numpy", "scipy.stats", "pyarrow.parquet", "hypothesis", "PIL.Image", "h5py", "pytest", "rich")
"""Imported once for all mutants: the import takes longer than most tests. Nothing of ours is among them."""


def places(path: Path) -> dict[tuple[int, int], list[tuple[str, int]]]:
    """Where ``path`` can be mutated: position -> (operator, occurrence); annotations, which nobody runs, left out."""
    import cosmic_ray.plugins
    from cosmic_ray.ast import ast_nodes, get_ast_from_path

    annotations = [span for node in ast.walk(ast.parse(path.read_text())) for span in annotated(node)]
    nodes = list(ast_nodes(get_ast_from_path(path)))
    result: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name in cosmic_ray.plugins.operator_names():
        operator = cosmic_ray.plugins.get_operator(name)
        if operator.arguments():
            continue
        positions = (place for node in nodes for place in operator().mutation_positions(node))
        for occurrence, (start, _) in enumerate(positions):
            if not any(first <= start <= last for first, last in annotations):
                result.setdefault(tuple(start), []).append((name, occurrence))
    return result


def annotated(node: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Spans of the annotations that belong to ``node``."""
    hints = [getattr(node, name, None) for name in ("annotation", "returns")]
    return [
        ((h.lineno, h.col_offset), (h.end_lineno or h.lineno, h.end_col_offset or 0))
        for h in hints
        if isinstance(h, ast.expr)
    ]


def sample(count: int, seed: int, only: str = "") -> list[tuple[str, str, int]]:
    """``count`` mutants (file, operator, occurrence) of all rooms: a place at random, then an operator that fits."""
    rooms: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "nacdrive").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if len(Path(name).parts) > 2 and not name.startswith(LEFT_OUT) and name.startswith(only):
            rooms.setdefault(room_of(name), []).append(path)
    rng = random.Random(seed)
    mutants = []
    for paths in rooms.values():
        # Long files have more places; to count them in all files would take minutes.
        for path in rng.choices(paths, [path.stat().st_size for path in paths], k=EACH):
            if candidates := sorted(places(path).items()):
                mutants.append((str(path.relative_to(ROOT)), *rng.choice(rng.choice(candidates)[1])))
    mutants = list(dict.fromkeys(mutants))
    return rng.sample(mutants, min(count, len(mutants)))


def room_of(path: str) -> str:
    """The room that a file lies in: a folder of nacdrive, or of its extras."""
    parts = Path(path).parts
    return "/".join(parts[: 3 if parts[1:2] == ("extras",) and len(parts) > 3 else 2])


def tests_for(path: str) -> list[str]:
    """Tests that must notice a change of ``path``: of its own name, importing it, of its room, of the public names."""
    folder = Path("tests") / Path(path).relative_to("nacdrive").parent
    own = [str(folder / f"test_{Path(path).name}")]
    room = str(Path("tests") / Path(room_of(path)).relative_to("nacdrive"))
    named = re.compile(rf"from {re.escape(module_of(path))} import|import {re.escape(module_of(path))}\b")
    files = sorted((ROOT / "tests").rglob("test_*.py"), key=lambda file: file.stat().st_size)
    importing = [str(file.relative_to(ROOT)) for file in files if named.search(file.read_text(encoding="utf-8"))]
    asked = (*own, *FIRST.get(room_of(path), "").split(), *importing, room, "tests/test_api.py")
    return [test for test in asked if (ROOT / test).exists()]


def module_of(path: str) -> str:
    """Name of the module in the file at ``path``."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def run_tests(tree: Path, tests: list[str], marks: str) -> tuple[str, str]:
    """``survived`` if all tests with ``marks`` pass in ``tree``, else ``killed`` or ``timeout``, and by which of
    ``tests``; in its own process.
    """
    noted = tree.parent / "running"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in PRELOAD if importlib.util.find_spec(name.partition(".")[0])])
    process = context.Process(target=test_process, args=(str(tree), tests, marks, str(noted)))
    process.start()
    process.join(3600)
    late = process.is_alive() or process.exitcode == -signal.SIGXCPU
    outcome = "timeout" if late else "survived" if process.exitcode == 0 else "killed"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)  # and whatever its tests started
    process.join()
    return outcome, noted.read_text()


def test_process(tree: str, tests: list[str], marks: str, noted: str) -> None:
    """Run ``tests`` of ``tree`` up to the first part that fails, which the file ``noted`` names; the exit code is
    pytest's.
    """
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (TIMEOUT_S, TIMEOUT_S + 60))
    os.chdir(tree)
    os.environ["PYTHONPATH"] = tree
    sys.path.insert(0, tree)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    import pytest

    for part in dict.fromkeys(tests):
        # One after the other: collecting all would take longer than what most mutants die of.
        Path(noted).write_text(part)
        code = int(pytest.main(["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", marks, part]))
        if code not in (0, NOTHING_TO_RUN):
            sys.exit(code)


def judge(tree: Path, path: str, operator: str, occurrence: int, marks: str) -> dict[str, object]:
    """Apply one mutation in ``tree``, run the tests, put the file back."""
    from cosmic_ray.mutating import apply_mutation
    from cosmic_ray.plugins import get_operator

    file = tree / path
    before, by = file.read_text(), ""
    began = time.monotonic()
    try:
        try:
            _, mutated = apply_mutation(file, get_operator(operator)(), occurrence)
        except AttributeError:
            # cosmic-ray cannot replace an exception that is named with its module.
            mutated, outcome = before, NO_MUTANT
        else:
            outcome, by = run_tests(tree, tests_for(path), marks)
    finally:
        file.write_text(before)
    if outcome == "killed" and run_tests(tree, [by], marks)[0] != "survived":
        outcome = UNSOUND
    diff = "".join(difflib.unified_diff(before.splitlines(True), mutated.splitlines(True), path, path, n=0))
    return {
        "file": path,
        "operator": operator,
        "occurrence": occurrence,
        "outcome": outcome,
        "by": by,
        "seconds": round(time.monotonic() - began, 1),
        "diff": diff,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sample", type=int, default=100, help="mutants")
    options.add_argument("--seed", type=int, default=0, help="of the sample")
    options.add_argument("--out", type=Path, default=ROOT / "runs" / "mutants.jsonl", help="results, added to")
    options.add_argument("--only", default="", help="of this file or folder alone")
    options.add_argument("--minutes", type=float, default=float("inf"), help="begin no mutant after so long")
    options.add_argument("--nightly", action="store_true", help="let the nightly tests look too")
    given = options.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    until = time.monotonic() + 60 * given.minutes
    given.out.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    done = {(row["file"], row["operator"], row["occurrence"]) for row in known}
    mutants = sample(given.sample, given.seed, given.only)
    rows = [row for row in known if (row["file"], row["operator"], row["occurrence"]) in set(mutants)]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder) / "tree"
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, tracked.stdout.split("\0")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
        for mutant in mutants:
            if mutant in done:
                continue
            if time.monotonic() > until:
                break
            row = judge(tree, *mutant, ALL if given.nightly else DAILY)
            rows.append(row)
            with given.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(
                f"{len(rows)}/{len(mutants)} {row['outcome']:8} {row['seconds']:6} s {mutant[0]} {row['by']}",
                flush=True,
            )
            if row["outcome"] == "survived":
                print(row["diff"], flush=True)
    judged = [row["outcome"] for row in rows if row["outcome"] not in (NO_MUTANT, UNSOUND)]
    killed, trials = sum(outcome != "survived" for outcome in judged), len(judged)
    if trials:
        from scipy.stats import binomtest

        interval = binomtest(killed, trials).proportion_ci(0.95, method="wilson")
        print(f"{killed} of {trials} killed ({killed / trials:.1%}; 95 % {interval.low:.1%} to {interval.high:.1%})")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on")
