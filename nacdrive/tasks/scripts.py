"""Protocol ``scripts``: what the authors' public k-fold scripts do where they contradict the paper's Table 4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nacdrive.tasks.base import Task
from nacdrive.tasks.driving import DrivingTask


@dataclass(frozen=True)
class Script:
    """What differs from ``paper``."""

    settings: Mapping[str, Any]  # options of FitConfig
    nac: Mapping[str, Any] = field(default_factory=dict)  # options of NAC, where a row does not name others
    policy: Mapping[str, Any] = field(default_factory=dict)  # fields of PolicyConfig
    kept: str = ""  # what is not the script's here either


SCRIPTS = {
    "emnist": Script({"epochs": 75}),
    "par": Script({"epochs": 100}),
    "carracing": Script(
        {"epochs": 70}, {"sparsity": 0.7, "topk": 10, "delta_t": 1.5},
        kept=" The script's row NAC-Euler is the exact mode; here it is Euler's.",
    ),
    "udacity": Script(
        {}, {"sparsity": 0.7, "topk": 10}, {"d_model": 64, "num_heads": 16},
        kept=" The script has no dense layer before the answer; here it stays.",
    ),
    "pronostia": Script(
        {"epochs": 50, "batch_size": 64, "optimizer": "rmsprop", "weight_decay": 0.0},
        {"sparsity": 0.7, "topk": 10, "delta_t": 1.5}, kept=" The script's circuits have ReLU; here tanh.",
    ),
}  # fmt: skip


def follow_script(task: Task) -> None:
    """Make ``task``, under ``paper``, what its script does."""
    script = SCRIPTS.get(task.name)
    if script is None:
        return
    changed = {"epochs": task.settings.get("epochs"), **script.settings, **script.nac, **script.policy}
    task.settings = {**task.settings, **script.settings}
    task.nac_options = script.nac
    if isinstance(task, DrivingTask):
        task.policy_config = partial(task.policy_config, **script.policy)  # type: ignore[method-assign]
    listed = ", ".join(f"{name} {value}" for name, value in changed.items())
    task.script_note = f"As the authors' script, where it contradicts Table 4: {listed}.{script.kept}"
