"""New inputs and outputs for a trained circuit (paper, section 2.2): synapses that stay possible are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from nacdrive.nac.layer import NAC

Map = int | Sequence[int | None]


def rewire(layer: NAC, in_features: Map | None = None, out_features: Map | None = None) -> NAC:
    """See ``NAC.rewire``."""
    inputs = _sources("in_features", in_features, layer.in_features)
    outputs = _sources("out_features", out_features, layer.out_features)
    options = {**layer.configuration, "in_features": len(inputs), "out_features": len(outputs)}
    fresh = type(layer)(**options).to(layer.out_proj.weight)
    state = fresh.state_dict()
    for name, old in layer.state_dict().items():
        if name.startswith(("q_gate.", "k_gate.", "v_gate.")) and not name.endswith("bias"):
            # The synapses of an input that stays, mask and sign included: the circuit stays, not only its numbers.
            _take(state[name], old, inputs, dim=old.ndim - 2)
        elif name.startswith("out_proj."):
            _take(state[name], old, outputs, dim=0)
        else:
            state[name] = old
    fresh.load_state_dict(state)
    return fresh.train(layer.training)


def _sources(name: str, wanted: Map | None, present: int) -> list[int | None]:
    if wanted is None:
        return list(range(present))
    sources = [i if i < present else None for i in range(wanted)] if isinstance(wanted, int) else list(wanted)
    if not sources or any(i is not None and not 0 <= i < present for i in sources):
        raise ValueError(f"{name}={wanted!r}; allowed is 1 or more, or a list of 0 to {present - 1} and None (= new)")
    return sources


def _take(new: Tensor, old: Tensor, sources: list[int | None], dim: int) -> None:
    with torch.no_grad():
        for target, source in enumerate(sources):
            if source is not None:
                new.select(dim, target).copy_(old.select(dim, source))
