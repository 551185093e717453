"""Names of sequence layers, and how each is built. A layer's file is imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from nacdrive.base.errors import unknown_name
from nacdrive.nac import VARIANTS
from nacdrive.sequence.contract import SequenceLayer

# name -> (module, options that the name stands for)
LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("nacdrive.sequence.nac", options) for name, options in VARIANTS.items()},
    "lstm": ("nacdrive.sequence.lstm", {}),
    "mha": ("nacdrive.sequence.mha", {}),
}


def names() -> list[str]:
    """All registered names, sorted."""
    return sorted(LAYERS)


def build(
    name: str, d_model: int, num_heads: int, window: int, *, in_features: int | None = None, **options: Any
) -> SequenceLayer:
    """Build the sequence layer ``name``.

    Args:
        name: a registered name, such as ``nac-steady``.
        d_model: width of the output.
        num_heads: attention heads; a layer without heads ignores them.
        window: how many steps, the present one included, an output may depend on.
        in_features: width of the input; ``d_model`` if not given.
        options: the layer's own options; they override what the name stands for.

    Raises:
        UserError: if the name is unknown; the sentence suggests the nearest.
    """
    if name not in LAYERS:
        raise unknown_name("model", name, LAYERS)
    module, preset = LAYERS[name]
    make: Callable[..., SequenceLayer] = import_module(module).build
    return make(in_features or d_model, d_model, num_heads, window, **{**preset, **options})
