"""Sequences in memory: what tasks make of their data, and what is learnt from."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

Batch = dict[str, Tensor]
"""Named tensors: fields [B, T, ...], labels [B, ...], and ``padding`` [B, T], True where a step is padding."""


@dataclass(frozen=True)
class Sample:
    """One sequence in memory, such as an episode."""

    name: str
    """For messages: where it came from."""
    fields: dict[str, Tensor]
    """Named tensors [steps, ...] of one length."""
    labels: dict[str, Tensor] = field(default_factory=dict)
    """Named tensors [...] that hold for the sequence as a whole, such as its class; such sequences are never cut."""

    def __len__(self) -> int:
        return len(next(iter(self.fields.values())))
