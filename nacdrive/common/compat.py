"""Files as earlier versions wrote them, one function for each format; nothing else that reads files knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


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
