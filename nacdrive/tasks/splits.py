"""Ways to hold data out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
