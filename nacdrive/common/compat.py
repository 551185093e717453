"""Files as earlier versions wrote them, one function for each format; nothing else that reads files knows of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def ppo_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of a PPO checkpoint: names that were others, and what was fixed before it could be chosen."""
    names = {"n_epochs": "epochs", "lr": "learning_rate", "memory": "model", "clip": "clip_range",
             "value_weight": "vf_coef", "entropy": "ent_coef", "gradient_norm": "max_grad_norm",
             "average": "ema_decay"}  # fmt: skip
    fixed = {"model": "none", "memory_window": 16, "memory_width": 64, "memory_heads": 4, "memory_options": "{}",
             "sequence_length": 32, "reward_scale": 1.0}  # fmt: skip
    return {**fixed, **{names.get(name, name): value for name, value in settings.items()}}


def run_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Of ``run.json``: options of a training or an imitation that had other names."""
    names = {"batch": "batch_size", "lr": "learning_rate", "teacher": "expert", "memory": "model"}
    return {name if names.get(name, name) in options else names.get(name, name): options[name] for name in options}


def training_progress(progress: Mapping[str, Any]) -> dict[str, Any]:
    """Of a training's checkpoint: the best measure was called accuracy."""
    return {"best_measure" if name == "best_accuracy" else name: value for name, value in progress.items()}


def series_tensors(tensors: dict[str, Tensor], gap_s: float | None, unit: str | None) -> dict[str, Tensor]:
    """Of a model file for series: without a ``unit``, the layer's time was in typical gaps of ``gap_s`` seconds."""
    name = "sequence.nac.time_scale"
    if unit == "seconds" or gap_s is None or name not in tensors:
        return tensors
    return {**tensors, name: tensors[name] * gap_s}


def phased_lstm_tensors(tensors: dict[str, Tensor], prefix: str) -> None:
    """Of a PhasedLSTM without peepholes and with an open ratio of 0.05, which was no weight: adds both."""
    tau = tensors.get(f"{prefix}log_tau")
    if tau is not None:
        tensors.setdefault(f"{prefix}peephole", tau.new_zeros(3, len(tau)))
        tensors.setdefault(f"{prefix}open_logit", tau.new_full((len(tau),), math.log(0.05 / 0.95)))


def is_s4_without_gates(tensors: Mapping[str, Tensor], prefix: str, d_model: int) -> bool:
    """Of an S4 whose mixing layer had no gates, and so half as many outputs."""
    mixing = tensors.get(f"{prefix}out.weight")
    return mixing is not None and len(mixing) == d_model


def camera_mount(meta: Mapping[str, Any], straight: str, scene: str) -> str:
    """How an episode's camera hung: where that is not said, ``straight`` on built-in tracks, which name their track."""
    return str(meta.get("camera_mount", straight if "track" in meta else scene))


def evaluation(stored: Mapping[str, Any], rule: str, disturbance: Mapping[str, Any]) -> dict[str, Any]:
    """What an evaluation is of: a ``rule`` or a part of the ``disturbance`` that is not said was the usual one."""
    whole = (
        {"disturbance": {**disturbance, **stored["disturbance"]}} if isinstance(stored.get("disturbance"), dict) else {}
    )
    return {"rule": rule, **stored, **whole}


def evaluated_environment(metrics: Mapping[str, Any]) -> str:
    """Title of what was driven for ``metrics.json``: where that is not said, CarRacing."""
    return str(metrics.get("env", "CarRacing-v3"))
