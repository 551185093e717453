"""Which head tells most: every head's best gate, measured on recorded laps."""

from __future__ import annotations

import math
from typing import Any

from nacdrive.common.paths import shipped
from nacdrive.datasets.recording import Recording
from nacdrive.extras.explain.sides import separations
from nacdrive.models.policy import Policy
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
