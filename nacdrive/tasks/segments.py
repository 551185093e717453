"""Long recordings cut into segments that overlap just enough for every answer to be that on the whole recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from nacdrive.tasks.base import Sample


def segments(name: str, fields: Mapping[str, Tensor], *, judged: int, context: int) -> list[Sample]:
    """Consecutive segments of a recording: up to ``context`` steps that are only looked at, then ``judged`` steps.

    Args:
        name: of the recording; every segment carries it.
        fields: tensors [steps, ...] of one length.
        judged: steps of a segment that count.
        context: steps before them, as many as an answer may depend on.

    Returns:
        Samples with the further field ``judged`` [T], True where a step counts.
    """
    steps = len(next(iter(fields.values())))
    found = []
    for first in range(0, steps, judged):
        begin, end = max(0, first - context), min(steps, first + judged)
        counts = torch.arange(begin, end) >= first
        found.append(Sample(name, {**{key: value[begin:end] for key, value in fields.items()}, "judged": counts}))
    return found


def joined(samples: Sequence[Sample], values: Sequence[Tensor]) -> dict[str, Tensor]:
    """The judged steps of ``values`` [T, ...], one per segment, put together again by recording."""
    pieces: dict[str, list[Tensor]] = {}
    for sample, value in zip(samples, values, strict=True):
        pieces.setdefault(sample.name, []).append(value[sample.fields["judged"]])
    return {name: torch.cat(found) for name, found in pieces.items()}


def field_of(samples: Sequence[Sample], field: str) -> dict[str, Tensor]:
    """A field of every recording, whole."""
    return joined(samples, [sample.fields[field] for sample in samples])
