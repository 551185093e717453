"""Why a policy decides so: Grad-CAM, neuron states, wiring pictures. Arrays in, figures out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nacdrive.viz.saliency import GradCam
    from nacdrive.viz.trace import Trace, retrace

__all__ = ["GradCam", "Trace", "retrace"]

FILES = {"GradCam": "saliency", "Trace": "trace", "retrace": "trace"}


def __getattr__(name: str) -> Any:
    # Reports and videos are made without torch too.
    if name not in FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{FILES[name]}"), name)
