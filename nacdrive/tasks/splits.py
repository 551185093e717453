"""Ways to hold data out, at random, by class and by blocks of a drive, and to cut long recordings into segments."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.tasks.sample import Sample

Split = tuple[list[int], list[int]]
"""Indices to learn from, and indices that are held out."""
BLOCK_S = 8.0
"""Length of a block of a drive in seconds. Neighbouring frames are nearly alike, so whole blocks are held out."""
GAP_S = 1.0
"""What is left out of the training beside a block that is held out, in seconds."""
STRETCH = 64
"""Most steps of a stretch that is drawn at random."""
DRAWN = 2
"""Times that a step of few is drawn: what is shown again and again is learnt by heart."""
T = TypeVar("T")


def evenly(items: Sequence[T], most: int | None) -> list[T]:
    """At most ``most`` of ``items``, evenly spread; all if None."""
    if most is None or most >= len(items):
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, most).round().astype(int)]


def rotate(count: int, parts: int, seed: int) -> list[Split]:
    """Each of ``parts`` random parts of 0 .. count-1 held out once."""
    order = np.random.default_rng(seed).permutation(count)
    return [held_out(order, held) for held in np.array_split(order, min(parts, count))]


def stratified(labels: NDArray[Any], parts: int, seed: int) -> list[Split]:
    """Like ``rotate``, with every class spread evenly over the parts."""
    random = np.random.default_rng(seed)
    held: list[list[int]] = [[] for _ in range(parts)]
    first = 0
    for label in np.unique(labels):
        members = random.permutation(np.flatnonzero(labels == label))
        for k, piece in enumerate(np.array_split(members, parts)):
            # Classes begin with different parts, or the first would get every class's remainder.
            held[(k + first) % parts] += piece.tolist()
        first += len(members) % parts
    return [held_out(np.arange(len(labels)), np.asarray(part)) for part in held]


def held_out(everything: NDArray[Any], held: NDArray[Any]) -> Split:
    """Everything but ``held``, and ``held``; each in ascending order."""
    return sorted(set(everything.tolist()) - set(held.tolist())), sorted(held.tolist())


def split_samples(samples: Sequence[Sample], valid_share: float, seed: int) -> tuple[list[Sample], list[Sample]]:
    """Training and validation samples: whole ones, chosen at random, never steps of one sample in both."""
    wanted = max(1, round(valid_share * len(samples))) if valid_share > 0 else 0
    if wanted >= len(samples):
        what = f"{len(samples)} episodes cannot be split with --valid-share {valid_share:g}"
        raise UserError(f"{what}: record more of them, or give --valid-share 0.")
    held = set(torch.randperm(len(samples), generator=seeded(seed, 0)).tolist()[:wanted])
    train = [sample for i, sample in enumerate(samples) if i not in held]
    return train, [sample for i, sample in enumerate(samples) if i in held]


@dataclass(frozen=True)
class Block:
    """Steps ``start`` to ``stop`` of one sample."""

    sample: int
    start: int
    stop: int


def blocks_of(samples: Sequence[Sample], seconds: float = BLOCK_S) -> list[Block]:
    """All samples cut into blocks of about ``seconds``, in their order."""
    blocks = []
    for k, sample in enumerate(samples):
        t = sample.fields["t"]
        count = max(1, round(float(t[-1] - t[0]) / seconds))
        edges = np.linspace(0, len(sample), count + 1).round().astype(int).tolist()
        blocks += [Block(k, a, b) for a, b in pairwise(edges) if b > a]
    return blocks


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
        kept += [slice_sample(sample, a, b) for a, b in true_intervals(free)]
    return kept, [slice_sample(samples[blocks[i].sample], blocks[i].start, blocks[i].stop) for i in sorted(held)]


def block_folds(samples: Sequence[Sample], count: int = 5) -> list[tuple[list[Sample], list[Sample]]]:
    """Each of ``count`` parts held out once; block i is of part i mod ``count``, so that parts are spread evenly."""
    blocks = blocks_of(samples)
    if len(blocks) < count:
        what = f"the data last for {len(blocks)} blocks of {BLOCK_S:g} s, which cannot be cut into {count} parts"
        raise UserError(f"{what}: give more data.")
    return [hold_out(samples, blocks, range(part, len(blocks), count)) for part in range(count)]


def fingerprint(samples: Iterable[Sample]) -> str:
    """The same for sequences of the same names, lengths and sums of values (pictures aside) in the same order."""
    rows = [
        (sample.name, len(sample), *(f"{float(x.double().nansum()):.6g}" for x in values_of(sample)))
        for sample in samples
    ]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def values_of(sample: Sample) -> list[Tensor]:
    """Fields and labels of a sample but for its pictures."""
    return [x for x in (*sample.fields.values(), *sample.labels.values()) if x.dtype != torch.uint8]


def slice_sample(sample: Sample, start: int, stop: int) -> Sample:
    """Some consecutive steps of a sample."""
    fields = {name: value[start:stop] for name, value in sample.fields.items()}
    return Sample(f"{sample.name} from frame {start}", fields)


def mix(old: Sequence[Sample], lessons: Sequence[Sample], frames: int, *seed: int) -> list[Sample]:
    """About ``frames`` steps (0: all) in random stretches: half ``lessons``, each twice at most, the rest ``old``."""
    if not frames:
        return [*old, *lessons]
    shown = min(frames // 2, DRAWN * sum(map(len, lessons)))
    generator = seeded(*seed)
    return stretches(old, frames - shown, generator) + stretches(lessons, shown, generator)


def stretches(samples: Sequence[Sample], steps: int, generator: torch.Generator) -> list[Sample]:
    """Stretches of ``samples``, drawn until they have ``steps`` together; each step is as likely as any other."""
    # A stretch may begin before its sample and end behind it: the ends are in as many as the middle.
    ends = torch.tensor([len(sample) + STRETCH - 1 for sample in samples]).cumsum(0)
    drawn: list[Sample] = []
    while sum(map(len, drawn)) < steps:
        place = int(torch.randint(int(ends[-1]), (), generator=generator))
        sample = samples[k := int(torch.searchsorted(ends, place, right=True))]
        stop = place - int(ends[k]) + len(sample) + STRETCH
        drawn.append(slice_sample(sample, max(0, stop - STRETCH), min(stop, len(sample))))
    return drawn


def true_intervals(free: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Stretches [start, stop) of True."""
    edges = np.flatnonzero(np.diff(np.r_[False, free, False].astype(np.int8)))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def segments(name: str, fields: Mapping[str, Tensor], *, scored: int, context: int) -> list[Sample]:
    """Consecutive segments of a recording: up to ``context`` steps that are only seen, then ``scored`` steps.

    They overlap just enough for every answer to be that on the whole recording (of layers that feel no clock). A
    further field ``scored`` [T] is True where a step counts; every segment has the recording's name.
    """
    steps = len(next(iter(fields.values())))
    parts = []
    for first in range(0, steps, scored):
        begin, end = max(0, first - context), min(steps, first + scored)
        counts = torch.arange(begin, end) >= first
        parts.append(Sample(name, {**{key: value[begin:end] for key, value in fields.items()}, "scored": counts}))
    return parts


def joined(samples: Sequence[Sample], values: Sequence[Tensor]) -> dict[str, Tensor]:
    """The scored steps of ``values`` [T, ...], one per segment, put together again by recording."""
    pieces: dict[str, list[Tensor]] = {}
    for sample, value in zip(samples, values, strict=True):
        pieces.setdefault(sample.name, []).append(value[sample.fields["scored"]])
    return {name: torch.cat(parts) for name, parts in pieces.items()}


def field_of(samples: Sequence[Sample], field: str) -> dict[str, Tensor]:
    """A field of every recording, whole."""
    return joined(samples, [sample.fields[field] for sample in samples])


def seeded(*numbers: int) -> torch.Generator:
    """A random generator that depends on all of ``numbers``."""
    mixed = 0x9E3779B97F4A7C15
    for number in numbers:
        mixed = ((mixed ^ (number + 0x7F4A7C15)) * 0xBF58476D1CE4E5B9) % 2**64
        mixed ^= mixed >> 29
    return torch.Generator().manual_seed(mixed % 2**63)
