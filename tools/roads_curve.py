r"""Autonomy on roads that no training saw over the number of roads that were learnt from.

    OMP_NUM_THREADS=1 python tools/roads_curve.py --models nac-steady dense --seeds 0

For each number N of training roads one recording of the same number of frames is made (``nacdrive record --track
random --roads N``); each model learns from it with the same number of epochs; each policy drives the same unseen roads.
All is kept under --out, each cell of the table as a line of --results as soon as it is there; the same command goes on
where it was stopped. ``--draw FIGURE`` draws the lines that are there and prints the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nacdrive.common.files import atomic_path
from nacdrive.common.statistics import summary

ROADS = (1, 3, 10, 30, 100)
MODELS = ("nac-steady", "dense", "gru", "nac-exact", "mha")
FRAMES, LEAST_EPISODES, EPOCHS = 4500, 30, 4
"""Of each recording, least episodes in it, and epochs of each training."""
FIT = "--paper-form --window 4 --batch-size 4 --chunk 8 --precision bfloat16 --class-weights 0.25 --epochs"
JUDGED, LAPS, SPEED = 12, 0.4, 25
"""Unseen roads, laps on each, miles per hour."""
DECISION_FRAMES = 4
"""Simulated frames from one recorded picture to the next."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/roads-curve"))
    parser.add_argument("--results", type=Path, default=Path("docs/results/roads_curve.jsonl"))
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--roads", nargs="+", type=int, default=list(ROADS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--draw", type=Path, help="draw what --results holds, and do nothing else")
    options = parser.parse_args()
    if options.draw is not None:
        rows = read(options.results)
        if not rows:
            sys.exit(f"{options.results} holds no result: run without --draw first.")
        draw(rows, options.draw)
        print("\n".join(table(rows)))
        return
    for seed in options.seeds:
        for roads in options.roads:
            for model in options.models:
                known = {(row["model"], row["roads"], row["seed"]) for row in read(options.results)}
                if (model, roads, seed) not in known:
                    row = measured(options.out, model, roads, seed)
                    with options.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(row) + "\n")
                    print(f"{model}, {roads} roads, seed {seed}: autonomy {np.mean(row['autonomy']):.2f} %", flush=True)


def measured(out: Path, model: str, roads: int, seed: int) -> dict[str, Any]:
    """One cell: recorded, trained, judged."""
    data, run = out / f"recorded-{roads}", out / f"{model}-{roads}-seed-{seed}"
    episodes = max(LEAST_EPISODES, roads)
    frames = DECISION_FRAMES * round(FRAMES / episodes)
    recorded = ["--roads", roads, "--episodes", episodes, "--max-frames", frames, "--no-sides", "--workers", 1]
    nacdrive("record", "--sim", "udacity", "--track", "random", *recorded, "--out", data, "--resume")
    file = run / "train" / f"{model.replace('-', '_')}.pt"
    if not file.exists():
        learnt = [*FIT.split(), EPOCHS, "--seed", seed]
        nacdrive("train", "--task", "udacity", "--model", model, "--data", data, *learnt,
                 "--out", file.parent, "--overwrite")  # fmt: skip
    driven = ["--track", "random", "--episodes", JUDGED, "--laps", LAPS, "--speed", SPEED, "--workers", 1]
    nacdrive("eval", "--sim", "udacity", "--model", file, *driven, "--expert", "none", "--no-videos",
             "--out", run / "eval", "--resume")  # fmt: skip
    drives = read(run / "eval" / "random.jsonl")
    measures = ("autonomy", "interventions", "off_road_events", "offset_mean_m", "seed")
    results = {f"{name}s" if name == "seed" else name: [row[name] for row in drives] for name in measures}
    settings = {"frames": FRAMES, "epochs": EPOCHS, "laps": LAPS, "speed_mph": SPEED}
    return {"model": model, "roads": roads, "seed": seed, **settings, **results}


def nacdrive(*arguments: object) -> None:
    """Run a verb; what it prints is shown only if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "nacdrive", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"nacdrive {' '.join(map(str, arguments))}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; none if it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def cell(rows: Sequence[dict[str, Any]], model: str, roads: int, measure: str) -> dict[str, Any] | None:
    """Mean over training seeds and drives, and its interval over drives (each road's mean over the seeds)."""
    values = [row[measure] for row in rows if row["model"] == model and row["roads"] == roads]
    if not values:
        return None
    return {**summary(np.mean(values, axis=0).tolist()), "seeds": len(values)}


def models_of(rows: Sequence[dict[str, Any]]) -> list[str]:
    """In the order of ``MODELS``."""
    there = {row["model"] for row in rows}
    return [model for model in MODELS if model in there] + sorted(there - set(MODELS))


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Markdown: autonomy in %, with 95 % intervals over the judged roads, and training seeds in brackets."""
    numbers = sorted({row["roads"] for row in rows})
    lines = [f"| learnt from | {' | '.join(f'N = {n}' for n in numbers)} |", "|---|" + "---|" * len(numbers)]
    for model in models_of(rows):
        line = []
        for n in numbers:
            result = cell(rows, model, n, "autonomy")
            if result is None:
                line.append("")
                continue
            low, high = result["interval95"] or (result["mean"],) * 2
            line.append(f"{result['mean']:.1f} ({low:.1f} to {high:.1f}) [{result['seeds']}]")
        lines.append(f"| {model} | {' | '.join(line)} |")
    return lines


def draw(rows: Sequence[dict[str, Any]], target: Path) -> None:
    """Autonomy over the number of roads, a line for each model."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, measure, title in zip(
        axes, ("autonomy", "offset_mean_m"), ("autonomy, %", "from the middle, mean, m"), strict=True
    ):
        for model in models_of(rows):
            points = [(n, c) for n in sorted({r["roads"] for r in rows}) if (c := cell(rows, model, n, measure))]
            means = np.array([c["mean"] for _, c in points])
            ends = np.array([c["interval95"] or (c["mean"],) * 2 for _, c in points]).T
            apart = 1 + 0.03 * models_of(rows).index(model)
            axis.errorbar([n * apart for n, _ in points], means, abs(ends - means), marker="o", capsize=2, label=model)
        axis.set_xscale("log")
        axis.set_xticks(ROADS, [str(n) for n in ROADS])
        axis.set_xlabel("roads learnt from, equal frames")
        axis.set_ylabel(title)
        axis.grid(alpha=0.3)
    axes[0].legend()
    with atomic_path(target) as partial:
        figure.savefig(partial, dpi=110, format=target.suffix[1:])
    pyplot.close(figure)


if __name__ == "__main__":
    main()
