r"""Steering errors on a recorded drive: each model trained anew, in the same way, for each of five held-out parts.

    OMP_NUM_THREADS=1 python tools/udacity_offline.py --data DIR --out runs/udacity-offline

DIR is a log of the simulator or a recording. Each model's rows are kept as soon as they are there; running the same
command again goes on. Prints the table of docs/results/udacity.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from nacdrive.common.files import read_json, write_json
from nacdrive.common.runs import plain, run_record, seed_everything
from nacdrive.common.statistics import summary
from nacdrive.extras.verdict.log_verdict import Errors, errors, predict, summarise
from nacdrive.models import Policy, load_policy
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.splits import block_folds
from nacdrive.tasks.udacity import Udacity, center_alone, with_sides
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import fit

TASK = Udacity()
MODELS = ("nac-steady", "nac-exact", "nac-euler", "lstm", "dense")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/udacity-offline"))
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--window", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--vision", type=Path, help="policy whose convolutions every network begins with")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--chunk", type=int, default=4)
    parser.add_argument("--class-weights", type=float, default=0.0)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--sides", action="store_true", help="learn from the side cameras too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = FitConfig(
        epochs=options.epochs,
        learning_rate=options.learning_rate,
        batch_size=options.batch,
        chunk=options.chunk,
        class_weights=options.class_weights,
        precision=options.precision,
        average=0.98,
        patience=0,
    )
    vision = load_policy(options.vision, expect_task="udacity") if options.vision else None
    samples = TASK.load([options.data])
    options.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for model in options.models:
        path = options.out / f"{model}-window-{options.window}.json"
        asked = {"config": plain(config), "vision": str(options.vision), "sides": options.sides}
        if path.exists():
            refuse_others(path, asked)
        else:
            show = Progress(model)
            folds = cross_validate(
                samples, model, options.window, config, sides=options.sides, vision=vision, on_fold=show
            )
            write_json(path, {**run_record(config), **asked, "folds": folds, "window": options.window})
        results[model] = read_json(path)["folds"]
    table(results)


def refuse_others(path: Path, asked: dict[str, Any]) -> None:
    """Ends the program if the errors in ``path`` are of networks that were trained with other options."""
    kept = read_json(path)
    others = [name for name, value in asked.items() if kept.get(name, value) != value]
    if others:
        raise SystemExit(f"{path} was made with another {' and '.join(others)}: give another --out.")


def cross_validate(
    samples: Sequence[Sample],
    model: str,
    window: int,
    config: FitConfig,
    *,
    sides: bool,
    vision: Policy | None = None,
    on_fold: Callable[[int, list[Errors]], None] = lambda fold, rows: None,
) -> list[list[Errors]]:
    """Errors on every block of ``samples``, each judged by a network that was trained without it: rows of each fold.

    The parts are contiguous blocks a second apart; no epoch is chosen by what is reported, for the last one is kept.
    With ``vision`` every network begins with the convolutions of that policy, which must not know ``samples``.
    """
    result = []
    for number, (train, test) in enumerate(block_folds(samples)):
        seed_everything(config.seed)
        policy = Policy.new(TASK.policy_config(model, window, samples), model)
        if vision is not None:
            policy.network.vision.load_state_dict(vision.network.vision.state_dict())
        with tempfile.TemporaryDirectory() as folder:
            fit(policy.network, TASK, with_sides(train) if sides else center_alone(train), [], config, Path(folder))
        mean = float(torch.cat([sample.fields["target"] for sample in train]).mean())
        rows = [errors(predict(policy, sample), sample.fields["target"], mean) for sample in center_alone(test)]
        result.append(rows)
        on_fold(number, rows)
    return result


class Progress:
    """One line for each part that is done."""

    def __init__(self, model: str) -> None:
        self.model = model

    def __call__(self, number: int, rows: list[Errors]) -> None:
        print(f"{self.model} part {number}: MSE {summarise(rows)['mse']['mean']:.4f}", flush=True)


def table(results: dict[str, list[list[Errors]]]) -> None:
    """One row a model: mean over the blocks, 95 % interval, and the paired difference from predicting the mean."""
    print("| predicts | MSE | 95 % | MAE | 95 % | MSE less than the mean's by |\n|---|---|---|---|---|---|")
    blocks = {model: [row for fold in folds for row in fold] for model, folds in results.items()}
    first = next(iter(blocks.values()))
    for name in ("zero_", "mean_"):
        print(line({"zero_": "always 0", "mean_": "always the mean"}[name], first, name))
    for model, rows in blocks.items():
        gain = summary([row["mean_mse"] - row["mse"] for row in rows])
        low, high = gain["interval95"]
        print(line(model, rows, "") + f" {gain['mean']:.4f} ({low:.4f} to {high:.4f}) |")


def line(name: str, rows: list[Errors], prefix: str) -> str:
    """The cells of a row, but for the last."""
    cells = []
    for measure in ("mse", "mae"):
        s = summary([row[prefix + measure] for row in rows])
        cells += [f"{s['mean']:.4f}", f"{s['interval95'][0]:.4f} to {s['interval95'][1]:.4f}"]
    return f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
