"""Which head tells most: every head's best gate, measured on recorded laps and kept in a file beside the model."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from nacdrive.common.files import atomic_path
from nacdrive.common.paths import shipped
from nacdrive.datasets.recording import Recording
from nacdrive.models.policy import Policy
from nacdrive.viz.sides import separations
from nacdrive.viz.trace import retrace


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


def tuning_file(model: Path) -> Path:
    """Where the table of a model file is kept."""
    return model.with_suffix(".tuning.json")


def write_tuning(model: Path, table: list[dict[str, Any]]) -> None:
    """Keep the table beside the model file, with the checksum of the model that it was measured on."""
    with atomic_path(tuning_file(model)) as partial:
        partial.write_text(json.dumps({"model_sha256": checksum(model), "heads": table}, indent=1) + "\n")


def read_tuning(model: Path) -> list[dict[str, Any]]:
    """The table kept beside a model file; empty where there is none, or it is of another model."""
    try:
        kept = json.loads(tuning_file(model).read_text(encoding="utf-8"))
        return list(kept["heads"]) if kept["model_sha256"] == checksum(model) else []
    except (OSError, ValueError, KeyError, TypeError):
        # A page without a table measures it on the drive.
        return []


def checksum(model: Path) -> str:
    """SHA-256 of a model file."""
    return hashlib.sha256(model.read_bytes()).hexdigest()
