"""Which lever of NAC does what: each alone and together, beside other layers, over tasks and seeds.

    OMP_NUM_THREADS=1 python tools/nac_levers.py run [--tasks ...] [--tables ...] [--seeds 3] [--data DIR]
    python tools/nac_levers.py report

``run`` appends a line to docs/results/nac_levers.jsonl for every training that is done, and leaves out those that the
file holds: stop it when you like (Ctrl-C), start it again to go on. It goes table by table, and within a table seed by
seed, so that what is there is whole as far as it goes. ``report`` makes docs/results/nac_levers.md and its picture
from the file. E-MNIST needs real MNIST in DIR/mnist (see docs/data.md); the synthetic tasks need nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nacdrive.training.log import read_rows

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs/results/nac_levers.jsonl"
PAGE = ROOT / "docs/results/nac_levers.md"
PICTURE = ROOT / "docs/figures/nac/levers.svg"
SYNTHETIC = ("synthetic-decay", "synthetic-since", "synthetic-recall", "synthetic-recall-decay", "synthetic-xor")
EMNIST = "emnist"
SHARP = {"logit_scale": 8.0}
LEVERS: dict[str, dict[str, Any]] = {
    "normalised tokens": {"input_norm": True},
    "time features": {"time_features": 16},
    "logit scale": SHARP,
    "elapsed time": {"time_input": "elapsed"},
}
ALL_KEYS = "nac-pw"


class Row(NamedTuple):
    """One layer with its options, in one house."""

    name: str
    model: str
    options: dict[str, Any]
    rival: bool = False


def in_block(name: str, layer: str, options: dict[str, Any], rival: bool = False) -> Row:
    """One pre-norm block with feed-forward around the layer, the same time features for all."""
    given = {"layer": layer, "layer_options": options, "depth": 1, "time_features": 16}
    return Row(name, "stack", given, rival)


PEER = Row("torch-nac 0.0.2 (its own layer, Top-8)", "torch_nac_layer:TorchNAC", {}, rival=True)
RIVALS = ("lstm", "gru", "cfc", "mtan", "mha", "s4")
TABLES: dict[str, tuple[Row, ...]] = {
    "plain": (
        Row("nac-pw (all keys, as published)", ALL_KEYS, {}),
        Row("nac-lag (norm, features, scale)", "nac-lag", {}),
        Row("nac-elapsed (elapsed, scale)", "nac-elapsed", {}),
        *(Row(name, name, {}, rival=True) for name in RIVALS),
    ),
    "levers": (
        *(Row(f"nac-pw + {name}", ALL_KEYS, options) for name, options in LEVERS.items()),
        Row("nac-pw + all four", ALL_KEYS, {k: v for options in LEVERS.values() for k, v in options.items()}),
        Row("nac-exact (Top-8, as published)", "nac-exact", {}),
        Row("nac-lag-8k (Top-8, norm, features, scale)", "nac-lag-8k", {}),
        Row("nac-gated (the same, gated score)", "nac-gated", {}),
    ),
    "score": tuple(
        Row(f"Top-2, score_gradient={kind}", "nac-exact", {"topk": 2, "input_norm": True, **SHARP, **option})
        for kind, option in (
            ("none", {}),
            *((kind, {"score_gradient": kind}) for kind in ("straight-through", "gated")),
        )
    ),
    "block": (
        in_block("block: nac-pw", ALL_KEYS, {}),
        in_block("block: nac-pw + scale", ALL_KEYS, SHARP),
        in_block("block: nac-pw + elapsed, scale", ALL_KEYS, {**SHARP, "time_input": "elapsed"}),
        *(in_block(f"block: {name}", name, {}, rival=True) for name in RIVALS),
    ),
    "peer": (PEER,),
}
MEANING = {
    "plain": "Presets and rivals, each as its name builds it",
    "levers": "Each lever alone, all together, and Top-8",
    "score": "How the score that chooses two keys is trained (normalised tokens, scale 8)",
    "block": "The same block, time features and feed-forward around every layer",
    "peer": "The published implementation in the same place",
}


class Job(NamedTuple):
    """One training."""

    table: str
    seed: int
    task: str
    row: Row

    @property
    def key(self) -> tuple[str, str, int]:
        """Names it in the file of results."""
        return self.task, self.row.name, self.seed


def jobs(tasks: Sequence[str], tables: Sequence[str], seeds: int) -> Iterator[Job]:
    """The synthetic tasks table by table, then E-MNIST; seed by seed within a table."""
    for group in ([t for t in tasks if t != EMNIST], [t for t in tasks if t == EMNIST]):
        for table in tables:
            for seed in range(seeds):
                for task in group:
                    for row in TABLES[table]:
                        yield Job(table, seed, task, row)


def compute(job: Job, data: Path, most: int | None) -> dict[str, Any]:
    """Train, on ``most`` sequences if given, and test."""
    from nacdrive.common.runs import package_versions, seed_everything
    from nacdrive.extras.bench.machine import machine_state
    from nacdrive.tasks import load_task
    from nacdrive.tasks.base import Size
    from nacdrive.training.config import FitConfig
    from nacdrive.training.fit import fit
    from nacdrive.training.predict import outputs

    emnist = job.task == EMNIST
    task = load_task(job.task)
    size = Size(8, 4000) if emnist else task.sizes["cpu"]
    size = size if most is None else replace(size, max_samples=most)
    # Every seed has training data of its own; all are tested on the same.
    fold = task.folds({EMNIST: data / "mnist"} if emnist else {}, 1, job.seed, size)[0]
    seed_everything(job.seed)
    network = task.network(job.row.model, fold.train, **job.row.options)
    config = FitConfig(**{**task.settings, "epochs": size.epochs}, seed=job.seed)
    began, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        fit(network, task, fold.train, fold.valid, config, Path(folder))
    spent = {"train_cpu_s": round(time.process_time() - cpu, 2), "train_s": round(time.perf_counter() - began, 2)}
    test = fold.tests[job.task]
    scores = dict(task.score(job.task, outputs(network, task, test, batch=256), test))
    return {
        "task": job.task, "row": job.row.name, "seed": job.seed, "table": job.table, "model": job.row.model,
        "options": job.row.options, "scores": scores, "parameters": sum(p.numel() for p in network.parameters()),
        "train_sequences": len(fold.train), "test_sequences": len(test), "epochs": config.epochs,
        "batch": config.batch_size, "learning_rate": config.learning_rate, **spent,
        **machine_state(), "versions": package_versions(),
    }  # fmt: skip


def run(args: argparse.Namespace) -> None:
    """Compute what is missing."""
    import torch

    from nacdrive.common.files import write_text

    torch.set_num_threads(1)
    # What a shell starts in the background ignores Ctrl-C's signal unless it is asked for.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    kept = read_rows(args.results)
    done = {(row["task"], row["row"], row["seed"]) for row in kept}
    wanted = [job for job in jobs(args.tasks, args.tables, args.seeds) if job.key not in done]
    print(f"{len(wanted)} trainings", flush=True)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    # A line that was cut short must not swallow the next.
    write_text(args.results, "".join(json.dumps(row) + "\n" for row in kept))
    try:
        for number, job in enumerate(wanted, 1):
            row = compute(job, args.data, args.most)
            with args.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            scores = ", ".join(f"{name} {value:.4g}" for name, value in row["scores"].items())
            print(f"{number} {job.task} {job.row.name} seed {job.seed}: {scores} ({row['train_cpu_s']} s)", flush=True)
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)


def score_of(row: dict[str, Any]) -> float:
    """R2, or the accuracy in percent."""
    scores = row["scores"]
    return float(scores["r2"] if "r2" in scores else scores["accuracy"])


def interval(differences: Sequence[float]) -> tuple[float, float] | None:
    """Student's 95 % interval of the mean; None for a single value."""
    from scipy.stats import t

    n = len(differences)
    if n < 2:
        return None
    mean = sum(differences) / n
    error = math.sqrt(sum((d - mean) ** 2 for d in differences) / (n - 1) / n)
    half = float(t.ppf(0.975, n - 1)) * error
    return mean - half, mean + half


def number(task: str, value: float) -> str:
    """With as many digits as mean something."""
    return f"{value:.1f}" if task in ("synthetic-xor", EMNIST) else f"{value:.3f}"


Scores = dict[str, dict[int, float]]


def scores_by_row(rows: Sequence[dict[str, Any]], task: str) -> Scores:
    """Score by row's name and seed."""
    result: Scores = {}
    for row in rows:
        if row["task"] == task:
            result.setdefault(row["row"], {})[row["seed"]] = score_of(row)
    return result


def mean_of(values: dict[int, float]) -> float:
    """Mean over seeds."""
    return sum(values.values()) / len(values)


def cell(task: str, values: dict[int, float] | None) -> str:
    """Mean ± sample deviation, and the number of seeds where it is not three."""
    if not values:
        return "-"
    n, mean = len(values), mean_of(values)
    text = number(task, mean)
    if n > 1:
        text += f" ± {number(task, math.sqrt(sum((v - mean) ** 2 for v in values.values()) / (n - 1)))}"
    return text + ("" if n == 3 else f" ({n})")


def verdict(task: str, ours: dict[int, float], scores: Scores, rivals: Sequence[str]) -> str:
    """The paired difference to the best rival, and whether it shows anything."""
    # Over the seeds that both have: a rival that lacks the last seed may still be the best.
    shared = {name: set(ours) & set(scores[name]) for name in rivals if set(ours) & set(scores.get(name, {}))}
    if not shared:
        return "-"
    best = max(shared, key=lambda name: mean_of({s: scores[name][s] for s in shared[name]}))
    differences = [ours[s] - scores[best][s] for s in sorted(shared[best])]
    text = f"{sum(differences) / len(differences):+.3f}" if task not in ("synthetic-xor", EMNIST) else ""
    text = text or f"{sum(differences) / len(differences):+.1f}"
    bounds = interval(differences)
    if bounds is None:
        return f"{best} {text}, one seed"
    shown = "" if bounds[0] > 0 or bounds[1] < 0 else ", not shown"
    return f"{best} {text} [{number(task, bounds[0])}, {number(task, bounds[1])}]{shown}"


def report(args: argparse.Namespace) -> None:
    """Write the tables between the markers of the page, and the picture."""
    rows = read_rows(args.results)
    tasks = [t for t in (*SYNTHETIC, EMNIST) if any(row["task"] == t for row in rows)]
    lines: list[str] = []
    for table, members in TABLES.items():
        names = [row.name for row in members]
        if not any(row["row"] in names for row in rows):
            continue
        lines += [f"### {MEANING[table]}", "", "| row | " + " | ".join(tasks) + " |", "|---|" + "---|" * len(tasks)]
        by_task = {task: scores_by_row(rows, task) for task in tasks}
        for row in members:
            cells = [cell(task, by_task[task].get(row.name)) for task in tasks]
            lines.append(f"| {row.name}{' (rival)' if row.rival else ''} | " + " | ".join(cells) + " |")
        lines.append("")
        if all(row.rival for row in members):
            continue
        rivals = [row.name for row in TABLES["block" if table == "block" else "plain"] if row.rival]
        lines += ["Paired difference to the best rival of that task:", ""]
        lines += ["| row | " + " | ".join(tasks) + " |", "|---|" + "---|" * len(tasks)]
        for row in members:
            if not row.rival:
                cells = [
                    verdict(task, by_task[task][row.name], by_task[task], rivals) if row.name in by_task[task] else "-"
                    for task in tasks
                ]
                lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
        lines.append("")
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition("<!-- tables -->")
    _, _, tail = rest.partition("<!-- /tables -->")
    PAGE.write_text(head + "<!-- tables -->\n\n" + "\n".join(lines) + "\n<!-- /tables -->" + tail, encoding="utf-8")
    draw(rows, tasks)
    print("\n".join(lines))


def draw(rows: Sequence[dict[str, Any]], tasks: Sequence[str]) -> None:
    """A bar per row and a dot per seed, a panel per task."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "nacdrive", "font.size": 8})
    names = [row for members in TABLES.values() for row in members if any(r["row"] == row.name for r in rows)]
    figure, axes = plt.subplots(1, len(tasks), figsize=(2.1 * len(tasks) + 2.6, 0.2 * len(names) + 0.8), sharey=True)
    for axis, task in zip([axes] if len(tasks) == 1 else axes, tasks, strict=True):
        scores = scores_by_row(rows, task)
        for place, row in enumerate(names):
            values = scores.get(row.name)
            if values:
                axis.barh(place, mean_of(values), color="#b8b8b8" if row.rival else "#4c78a8", height=0.7)
                axis.plot(list(values.values()), [place] * len(values), "k.", markersize=3)
        axis.set_title(task.removeprefix("synthetic-") + (", %" if task in ("synthetic-xor", EMNIST) else ", R2"))
        if task in ("synthetic-xor", EMNIST):
            axis.axvline(50 if task == "synthetic-xor" else 10, color="k", linewidth=0.5, linestyle=":")
        else:
            axis.set_xlim(-0.05, 1.05)
        axis.set_yticks(range(len(names)), [row.name for row in names])
        axis.invert_yaxis()
    figure.tight_layout()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """The two commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    running = verbs.add_parser("run", help="train what is missing")
    running.add_argument("--tasks", nargs="+", choices=[*SYNTHETIC, EMNIST], default=list(SYNTHETIC))
    running.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    running.add_argument("--seeds", type=int, default=3)
    running.add_argument("--most", type=int, help="sequences to learn from and validate on (then also --results)")
    running.add_argument("--data", type=Path, default=Path("data"), help="folder that holds mnist/")
    running.set_defaults(verb=run)
    reporting = verbs.add_parser("report", help="make the page and its picture")
    reporting.set_defaults(verb=report)
    for sub in (running, reporting):
        sub.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    args.verb(args)


if __name__ == "__main__":
    main()
