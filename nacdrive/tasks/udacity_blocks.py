"""Hold out contiguous stretches of drives: neighbouring frames are nearly alike, so none may be on both sides."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nacdrive.common.errors import UserError
from nacdrive.tasks.base import Sample

BLOCK_S = 8.0
"""Length of a block in seconds."""
GAP_S = 1.0
"""What is left out of the training beside a block that is held out, in seconds."""


@dataclass(frozen=True)
class Block:
    """Steps ``start`` to ``stop`` of one sample."""

    sample: int
    start: int
    stop: int


def blocks_of(samples: Sequence[Sample], seconds: float = BLOCK_S) -> list[Block]:
    """All samples cut into blocks of about ``seconds``, in their order."""
    found = []
    for k, sample in enumerate(samples):
        t = sample.fields["t"]
        count = max(1, round(float(t[-1] - t[0]) / seconds))
        edges = np.linspace(0, len(sample), count + 1).round().astype(int).tolist()
        found += [Block(k, a, b) for a, b in pairwise(edges) if b > a]
    return found


def hold_out(
    samples: Sequence[Sample], blocks: Sequence[Block], held: Collection[int], gap_s: float = GAP_S
) -> tuple[list[Sample], list[Sample]]:
    """What is left to learn from, ``gap_s`` away from what is held out, and the blocks ``held``."""
    kept: list[Sample] = []
    for k, sample in enumerate(samples):
        t = sample.fields["t"].numpy()
        free = np.ones(len(sample), dtype=bool)
        for i in held:
            if blocks[i].sample == k:
                first, last = t[blocks[i].start] - gap_s, t[blocks[i].stop - 1] + gap_s
                free &= (t < first) | (t > last)
        kept += [part(sample, a, b) for a, b in runs(free)]
    return kept, [part(samples[blocks[i].sample], blocks[i].start, blocks[i].stop) for i in sorted(held)]


def folds(
    samples: Sequence[Sample], count: int = 5, seconds: float = BLOCK_S
) -> list[tuple[list[Sample], list[Sample]]]:
    """Each of ``count`` parts held out once; block i belongs to part i mod ``count``, so that parts are spread evenly.

    Raises:
        UserError: if there are fewer blocks than parts.
    """
    blocks = blocks_of(samples, seconds)
    if len(blocks) < count:
        raise UserError(
            f"the data last for {len(blocks)} blocks of {seconds:g} s, which cannot be cut into {count} parts: "
            "give more data."
        )
    return [hold_out(samples, blocks, range(part_, len(blocks), count)) for part_ in range(count)]


def part(sample: Sample, start: int, stop: int) -> Sample:
    """Some consecutive steps of a sample."""
    fields = {name: value[start:stop] for name, value in sample.fields.items()}
    return Sample(f"{sample.name} from frame {start}", fields)


def runs(free: np.ndarray) -> list[tuple[int, int]]:
    """Stretches [start, stop) of True."""
    edges = np.flatnonzero(np.diff(np.r_[False, free, False].astype(np.int8)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]
