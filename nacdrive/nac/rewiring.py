"""New inputs and outputs for a trained circuit (paper, section 2.2): which old synapses each of them takes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Map = int | Sequence[int | None]


def sources_of(name: str, wanted: Map | None, present: int) -> list[int | None]:
    """For each new input or output the old one whose synapses it takes; None for fresh ones."""
    if wanted is None:
        return list(range(present))
    sources = [i if i < present else None for i in range(wanted)] if isinstance(wanted, int) else list(wanted)
    if not sources or any(i is not None and not 0 <= i < present for i in sources):
        raise ValueError(f"{name}={wanted!r}; allowed is 1 or more, or a list of 0 to {present - 1} and None (= new)")
    return sources


def take(new: Tensor, old: Tensor, sources: list[int | None], dim: int) -> None:
    """Copy the slices of ``old`` that ``sources`` names to ``new``, in their order."""
    with torch.no_grad():
        for target, source in enumerate(sources):
            if source is not None:
                new.select(dim, target).copy_(old.select(dim, source))
