"""Ways to hold data out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nacdrive.common.errors import UserError
from nacdrive.tasks.base import Sample

Split = tuple[list[int], list[int]]
"""Indices to learn from, and indices that are held out."""


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
    everything = np.arange(len(labels))
    return [held_out(everything, np.asarray(part)) for part in held]


def held_out(everything: NDArray[Any], held: NDArray[Any]) -> Split:
    """Everything but ``held``, and ``held``; each in ascending order."""
    return sorted(set(everything.tolist()) - set(held.tolist())), sorted(held.tolist())


def split_samples(samples: Sequence[Sample], valid_share: float, seed: int) -> tuple[list[Sample], list[Sample]]:
    """Training and validation samples: whole ones, chosen at random, never steps of one sample in both.

    Raises:
        UserError: if there are fewer than two samples and some are wanted for validation.
    """
    wanted = max(1, round(valid_share * len(samples))) if valid_share > 0 else 0
    if wanted >= len(samples):
        raise UserError(f"{len(samples)} episodes cannot be split into training and validation: record more of them.")
    order = torch.randperm(len(samples), generator=seeded(seed, 0)).tolist()
    held = set(order[:wanted])
    train = [sample for i, sample in enumerate(samples) if i not in held]
    return train, [sample for i, sample in enumerate(samples) if i in held]


def seeded(*numbers: int) -> torch.Generator:
    """A random generator that depends on all of ``numbers``."""
    mixed = 0x9E3779B97F4A7C15
    for number in numbers:
        mixed = ((mixed ^ (number + 0x7F4A7C15)) * 0xBF58476D1CE4E5B9) % 2**64
        mixed ^= mixed >> 29
    return torch.Generator().manual_seed(mixed % 2**63)
