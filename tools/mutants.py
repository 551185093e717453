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
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCOPE = {
    "nacdrive/nac": (
        "tests/nac/test_limits.py tests/nac/test_against_reference.py tests/nac/test_layer.py tests/nac/test_stream.py "
        "tests/nac/test_laws.py tests/nac/test_wiring.py tests/nac/test_partition.py tests/nac/test_pruning.py "
        "tests/nac/test_robustness.py tests/nac/test_theory_attention.py tests/nac/test_theory_dynamics.py "
        "tests/nac/test_theory_frozen.py tests/models"
    ),
    "nacdrive/common/statistics.py": "tests/common/test_statistics.py",
    "nacdrive/common/emergency_stop.py": "tests/common/test_emergency_stop.py tests/drivers/test_safety_stop.py",
    "nacdrive/drivers/safety_stop.py": "tests/drivers/test_safety_stop.py tests/drivers/test_human.py",
    "nacdrive/drivers/speed_control.py": "tests/drivers/test_speed_control.py tests/drivers/test_wrappers.py",
    "nacdrive/tasks/splits.py": (
        "tests/tasks/test_splits.py tests/training/test_batches.py tests/tasks/test_udacity_task.py"
    ),
    "nacdrive/envs/udacity/telemetry.py": "tests/envs/udacity/test_telemetry.py tests/envs/udacity/test_env.py",
    "nacdrive/extras/exchange": "tests/extras/exchange",
    "nacdrive/extras/bearings": "tests/extras/bearings tests/datasets/test_data_verb.py",
    "nacdrive/datasets": (
        "tests/datasets/test_recording_limits.py tests/datasets/test_udacity_log.py tests/datasets/test_recording.py "
        "tests/datasets"
    ),
    "nacdrive/training": "tests/training",
}
"""What is mutated, and the tests that must notice, quick ones first."""
LEFT_OUT = ("nacdrive/nac/kernels/triton/", "nacdrive/datasets/downloads.py")
"""Kernels run in the interpreter for minutes; downloads need the network."""
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
    found: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for name in cosmic_ray.plugins.operator_names():
        operator = cosmic_ray.plugins.get_operator(name)
        if operator.arguments():
            continue
        positions = (place for node in nodes for place in operator().mutation_positions(node))
        for occurrence, (start, _) in enumerate(positions):
            if not any(first <= start <= last for first, last in annotations):
                found.setdefault(tuple(start), []).append((name, occurrence))
    return found


def annotated(node: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Spans of the annotations that belong to ``node``."""
    hints = [getattr(node, name, None) for name in ("annotation", "returns")]
    return [
        ((h.lineno, h.col_offset), (h.end_lineno or h.lineno, h.end_col_offset or 0))
        for h in hints
        if isinstance(h, ast.expr)
    ]


def sample(count: int, seed: int, only: str = "") -> list[tuple[str, str, int]]:
    """``count`` mutants (file, operator, occurrence): a place at random, then an operator that fits there."""
    paths = (
        path
        for scope in SCOPE
        for path in ([ROOT / scope] if scope.endswith(".py") else sorted((ROOT / scope).rglob("*.py")))
    )
    where = [
        (str(path.relative_to(ROOT)), operators)
        for path in dict.fromkeys(paths)  # a folder holds files that are named beside it
        if not (name := str(path.relative_to(ROOT))).startswith(LEFT_OUT) and name.startswith(only)
        for _, operators in sorted(places(path).items())
    ]
    rng = random.Random(seed)
    chosen = rng.sample(where, min(count, len(where)))
    return [(path, *rng.choice(operators)) for path, operators in chosen]


def tests_for(path: str) -> list[str]:
    """Tests that must notice a change of ``path``: the file of its own name before the others."""
    tests = next(tests for scope, tests in SCOPE.items() if path.startswith(scope)).split()
    own = ROOT / "tests" / Path(path).relative_to("nacdrive").parent / f"test_{Path(path).name}"
    return ([str(own.relative_to(ROOT))] if own.exists() else []) + tests


def run_tests(tree: Path, tests: list[str]) -> str:
    """``survived`` if all tests pass in ``tree``, else ``killed`` or ``timeout``; in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in PRELOAD if importlib.util.find_spec(name.partition(".")[0])])
    process = context.Process(target=test_process, args=(str(tree), tests))
    process.start()
    process.join(3600)
    late = process.is_alive() or process.exitcode == -signal.SIGXCPU
    outcome = "timeout" if late else "survived" if process.exitcode == 0 else "killed"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)  # and whatever its tests started
    process.join()
    return outcome


def test_process(tree: str, tests: list[str]) -> None:
    """Run ``tests`` of ``tree`` up to the first file that fails; the exit code is pytest's."""
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
        code = int(pytest.main(["-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", part]))
        if code:
            sys.exit(code)


def judge(tree: Path, path: str, operator: str, occurrence: int) -> dict[str, object]:
    """Apply one mutation in ``tree``, run the tests, put the file back."""
    from cosmic_ray.mutating import apply_mutation
    from cosmic_ray.plugins import get_operator

    file = tree / path
    before = file.read_text()
    began = time.monotonic()
    try:
        _, mutated = apply_mutation(file, get_operator(operator)(), occurrence)
        outcome = run_tests(tree, tests_for(path))
    finally:
        file.write_text(before)
    diff = "".join(difflib.unified_diff(before.splitlines(True), mutated.splitlines(True), path, path, n=0))
    return {
        "file": path,
        "operator": operator,
        "occurrence": occurrence,
        "outcome": outcome,
        "seconds": round(time.monotonic() - began, 1),
        "diff": diff,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sample", type=int, default=200, help="mutants")
    options.add_argument("--seed", type=int, default=0, help="of the sample")
    options.add_argument("--out", type=Path, default=ROOT / "runs" / "mutants.jsonl", help="results, added to")
    options.add_argument("--only", default="", help="of this file or folder alone")
    options.add_argument("--minutes", type=float, default=float("inf"), help="begin no mutant after so long")
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
            row = judge(tree, *mutant)
            rows.append(row)
            with given.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{len(rows)}/{len(mutants)} {row['outcome']:8} {row['seconds']:6} s {mutant[0]}", flush=True)
            if row["outcome"] == "survived":
                print(row["diff"], flush=True)
    killed, trials = sum(row["outcome"] != "survived" for row in rows), len(rows)
    if trials:
        from scipy.stats import binomtest

        interval = binomtest(killed, trials).proportion_ci(0.95, method="wilson")
        print(f"{killed} of {trials} killed ({killed / trials:.1%}; 95 % {interval.low:.1%} to {interval.high:.1%})")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped; the same command goes on")
