"""Files as earlier versions wrote them, one function for each format; nothing else that reads files knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def run_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Of ``run.json``: options that had other names."""
    names = {"batch": "batch_size", "lr": "learning_rate", "teacher": "expert", "memory": "model", "n_epochs": "epochs",
             "clip": "clip_range", "value_weight": "vf_coef", "entropy": "ent_coef", "gradient_norm": "max_grad_norm",
             "average": "ema_decay"}  # fmt: skip
    return {name if names.get(name, name) in options else names.get(name, name): options[name] for name in options}


def series_tensors(tensors: dict[str, Tensor], gap_s: float | None, unit: str | None) -> dict[str, Tensor]:
    """Of a model file for series: without a ``unit``, the layer's time was in typical gaps of ``gap_s`` seconds."""
    name = "sequence.nac.time_scale"
    if unit == "seconds" or gap_s is None or name not in tensors:
        return tensors
    return {**tensors, name: tensors[name] * gap_s}


def camera_mount(meta: Mapping[str, Any], straight: str, scene: str) -> str:
    """How an episode's camera hung: where that is not said, ``straight`` on built-in tracks, which name their track."""
    return str(meta.get("camera_mount", straight if "track" in meta else scene))


def evaluation(stored: Mapping[str, Any], rule: str, disturbance: Mapping[str, Any]) -> dict[str, Any]:
    """What an evaluation is of: ``env``, ``rule`` and parts of the ``disturbance`` that are not said were the usual."""
    whole = {"env": "carracing", "rule": rule, **stored}
    if isinstance(given := stored.get("disturbance"), dict):
        whole["disturbance"] = {**disturbance, **given}
    return whole


ROW_NAMES = {"progress": "tiles_visited", "wheels_off": "grass_share"}
"""What rows of driven episodes call them today and in version 0.1; both are written, for readers of those."""


def row(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a driven episode: those of version 0.1 have the old names alone."""
    return {name: stored[old] for name, old in ROW_NAMES.items() if old in stored} | dict(stored)


def evaluated_environment(metrics: Mapping[str, Any]) -> str:
    """Title of what was driven for ``metrics.json``: where that is not said, CarRacing."""
    return str(metrics.get("env", "CarRacing-v3"))
