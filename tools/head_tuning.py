"""Measure which heads of the shipped policies tell left from right, and keep the tables beside the model files.

python tools/head_tuning.py [MODEL.pt ...]
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch

from nacdrive.common.files import write_text
from nacdrive.common.paths import shipped
from nacdrive.datasets.recording import Recording
from nacdrive.extras.explain.sides import separations
from nacdrive.models import load_policy
from nacdrive.models.policy import Policy
from nacdrive.models.tuning import checksum, tuning_file
from nacdrive.viz.trace import retrace


def main() -> None:
    torch.set_num_threads(1)
    models = [Path(name) for name in sys.argv[1:]] or sorted((shipped("agents") / "carracing").glob("nac_*.pt"))
    for model in models:
        table = tuning_table(load_policy(model))
        write_tuning(model, table)
        best = max(table, key=lambda one: one["strength"])
        print(f"{model}: head {best['head'] + 1} tells most ({best['name']}, {best['strength']:.2f})", flush=True)


def tuning_table(policy: Policy, laps: int | None = None) -> list[dict[str, Any]]:
    """Per head its gate that tells left from right best, over the ``laps`` (all) shipped with its task; plain JSON.

    Each entry: ``head`` (from 0), ``name`` (phi, omega, t or logits), its medians ``left``, ``straight`` and ``right``
    while the policy steers so, and ``strength`` (0 tells nothing, 1 separates perfectly). Empty where nothing can be
    measured. Takes several seconds, and forgets what the policy remembered.
    """
    folder = shipped("recordings") / f"{policy.task}-sample"
    if policy.circuit() is None or not folder.is_dir():
        return []
    recording = Recording.open(folder)
    looked = [retrace(policy, recording.load(i), number=i) for i in range(len(recording.episodes))[:laps]]
    best: dict[int, dict[str, Any]] = {}
    for one in separations(looked):
        medians = {name: getattr(one, name) for name in ("left", "straight", "right")}
        plain = {name: round(value, 4) if math.isfinite(value) else None for name, value in medians.items()}
        best.setdefault(one.head, {"head": one.head, "name": one.name, **plain, "strength": round(one.strength, 4)})
    return [best[head] for head in sorted(best)]


def write_tuning(model: Path, table: list[dict[str, Any]]) -> None:
    """Keep the table beside the model file, with the checksum of the model that it was measured on."""
    write_text(tuning_file(model), json.dumps({"model_sha256": checksum(model), "heads": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
