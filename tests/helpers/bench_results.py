"""Results of a bench as they stand in its file, worked out by hand."""

from __future__ import annotations

from typing import Any

from nacdrive.tasks import load_task

ACCURACY = load_task("emnist").metrics_of("emnist")[0]
SIZE = {"epochs": 8, "max_samples": None, "max_tests": None, "drive": 0}
CONFIG = {"protocol": "sequence", "size": SIZE, "folds": 1, "seed": 0}


def done(model: str, score: float, repeat: int = 0, train_s: float = 10.0, **more: Any) -> Any:
    key = f"emnist/{model}/0" + (f"/{repeat}" if repeat else "")
    return {
        "key": key, "task": "emnist", "model": model, "fold": 0, "repeat": repeat, "asked": ["emnist"], "made_up": [],
        "status": "done", "scores": {"emnist": {ACCURACY.key: score}}, "parameters": 12_345, "train_s": train_s,
        "wall_s": train_s + 1, "epochs": 8, "train_sequences": 100, "record": {"config": CONFIG},
    } | more  # fmt: skip
