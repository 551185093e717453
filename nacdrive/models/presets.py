"""Which network a driving policy gets for a name given to ``--model``; imports nothing heavy.

What drives must know when: a frame may be late or lost, and a memory that cannot tell its frames apart by their age is
a bag of them. So ``nac-exact``, ``nac-euler`` and ``nac-steady`` are here the three modes of ``nac-key``, whose circuit
reads the key and whose time is the true lag, over a window longer than the keys that it keeps; ``nac-pw`` keeps all. It
gets lags alone, no clock: a drive may last for hours. Every layer gets the same few features of a frame, so that
policies differ in the layer alone.

A model file names the layer itself and its options, so no name is looked up here again when it is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nacdrive.common.options import Options

LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    f"nac-{mode}": ("nac-key", {"mode": mode, "time_features": 0, "topk": 8}) for mode in ("exact", "euler", "steady")
} | {"nac-pw": ("nac-key", {"mode": "exact", "time_features": 0})}
"""Names that stand for another layer where something drives: that layer and its options."""
SIZES: dict[str, Any] = {"projection": 64, "d_model": 64, "num_heads": 4}
MEMORYLESS = "dense"
"""Judges each frame by itself, and is a projection already: the published network as it is (PilotNet)."""


@dataclass(frozen=True)
class DrivingForm:
    """What a name given to ``--model`` stands for: a sequence layer, its options, and more."""

    layer: str
    options: dict[str, Any] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)
    """Fields of ``PolicyConfig`` beside those of the task."""
    window: int = 4
    """Frames that a decision depends on where nobody says how many."""


class FormOption(Options):
    """How it is learnt."""

    paper_form: bool = False
    """The network as published: NAC names are the paper's layer, which hardly feels order and time, wide behind the
    convolutions; without, they are the three modes of nac-key, which knows how old each frame is."""


def driving_form(model: str, *, paper: bool = False) -> DrivingForm:
    """What ``model`` stands for where something drives; as ``paper`` published it, the registered layer itself."""
    if paper or model == MEMORYLESS:
        return DrivingForm(model)
    layer, options = LAYERS.get(model, (model, {}))
    return DrivingForm(layer, dict(options), dict(SIZES), window=12)
