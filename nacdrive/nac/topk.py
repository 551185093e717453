"""Which keys a query is paired with: all, the exact Top-K, or the Top-K of a square-root partition (Algorithm 2).

Keys are scored by q.k; choosing is not differentiated. Indices may name keys that a query may not see (when fewer than
K are allowed), and -1 marks a slot without a key; ``AttentionMask.allowed`` tells them apart.

What is chosen for a query depends on the layer's options, on where the query stands and on the keys that it may see,
never on the length that a batch happens to be padded to: else a later step would change an earlier output.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nacdrive.nac.mask import SCORES_AT_ONCE, AttentionMask, in_rows
from nacdrive.nac.validation import tracing

SELECTIONS = ("auto", "exact", "sqrt")
AUTO_EXACT_UP_TO = 1024  # keys; above it, scoring every pair costs more than the pairs themselves
SMALLEST_BLOCK = 4  # keys per block for the first queries of a causal sequence
WORTH_PACKING = 4096  # scores; with fewer the calls to torch take longer than the selecting
WORTH_A_LOOP = 16  # queries that search a block on average, from which on blocks are taken one by one
Chosen = tuple[Tensor | None, Tensor | None]
"""Slots ``[H, B, n]`` of a memory that its newest step is paired with, None for all; which of them hold a key."""


class Choice(NamedTuple):
    """How keys are chosen: arguments of ``NAC`` (``selection``, ``sqrt_blocks`` and ``sqrt_block``)."""

    topk: int
    method: str
    blocks: int | None = None
    block: int | None = None


def is_exact(method: str, keys: int) -> bool:
    """Whether a query of so many keys gets those with the highest scores, not those of a partition."""
    return method == "exact" or (method == "auto" and keys <= AUTO_EXACT_UP_TO)


def select(q: Tensor, k: Tensor, mask: AttentionMask, how: Choice | None) -> Tensor | None:
    """Key indices ``[H, B, Tq, n]`` (or broadcastable to it) for every query, or None for all keys.

    q is ``[H, B, Tq, D]``, k ``[H, B, Tk, D]``. Keys per block are by default the square root of their number (see
    ``spans``).
    """
    keys = k.shape[-2]
    if mask.causal and mask.window is not None and mask.window < keys:
        return _windowed(q, k, mask, mask.window, how)
    if how is None:
        return None
    exactly = is_exact(how.method, keys)
    if tracing() and exactly:
        return _exact(q, k, mask, how.topk)
    if how.topk >= keys:
        return None
    if exactly:
        return _choose(q, k, mask, how, None)
    packed = _pack(k, mask)
    if mask.causal:
        return packed.unpack(_causal(q, packed.k, packed.mask, how, packed.order is None))
    return packed.unpack(_any_order(q, packed.k, packed.mask, how))


class _Packed(NamedTuple):
    """Keys whose padding lies behind, the mask of these, and which key each was ``[B, Tk]``; None: as they were."""

    k: Tensor
    mask: AttentionMask
    order: Tensor | None

    def unpack(self, index: Tensor) -> Tensor:
        """The same keys before they were packed; -1 stays."""
        if self.order is None:
            return index
        order = self.order.unsqueeze(1).expand(*index.shape[:3], -1)
        return torch.where(index < 0, index, order.gather(-1, index.clamp(min=0)))


def _pack(k: Tensor, mask: AttentionMask) -> _Packed:
    """Padding in front or inside must not move the blocks: it goes behind, where it changes nothing."""
    padding = mask.padding
    if padding is None or not (tracing() or bool((padding[:, :-1] & ~padding[:, 1:]).any())):
        return _Packed(k, mask, None)
    real = (~padding).cumsum(1)
    place = torch.where(padding, real[:, -1:] + padding.cumsum(1), real) - 1
    order = torch.zeros_like(place).scatter(1, place, torch.arange(k.shape[2], device=k.device).expand_as(place))
    position = real.gather(1, mask.position).sub(1).clamp(min=0) if mask.causal else mask.position
    rows = order.unsqueeze(-1).expand(*k.shape)
    return _Packed(k.gather(2, rows), replace(mask, position=position, padding=padding.gather(1, order)), order)


def spans(keys: int, method: str, block: int | None) -> list[tuple[int, int, int | None]]:
    """How causal queries choose: (first, end, keys per block) of the queries at those positions; None is exact.

    A query at position i has i + 1 keys. Its blocks hold the next power of two from sqrt(i + 1) on, so that queries of
    neighbouring positions share a partition and none depends on what comes later.
    """
    parts: list[tuple[int, int, int | None]] = []
    first = 0
    if method != "sqrt":
        first = keys if method == "exact" else min(keys, AUTO_EXACT_UP_TO)
        parts.append((0, first, None))
    size = block or SMALLEST_BLOCK
    while first < keys:
        end = keys if block else min(keys, size * size)
        if end > first:
            parts.append((first, end, size))
            first = end
        size *= 2
    return parts


def _windowed(q: Tensor, k: Tensor, mask: AttentionMask, window: int, how: Choice | None) -> Tensor:
    """The Top-K of the last ``window`` keys, exact once there are more; before that as without a window."""
    band = _band(q, k, mask, window, None if how is None else how.topk)
    if how is None or how.topk >= window or is_exact(how.method, window):
        return band
    packed = _pack(k, mask)
    first = 0 if packed.order is None else packed.order[:, :1]
    early = mask.position - first < window  # no key lies before the window
    if not tracing() and not bool(early.any()):
        return band
    in_order = packed.order is None and mask.position.shape[1] > 1
    count = window if in_order else q.shape[2]
    near = packed.mask.part(0, count, window)
    chosen = packed.unpack(_causal(q[:, :, :count], packed.k[:, :, :window], near, how, in_order))
    return torch.cat([torch.where(early[:, :count].unsqueeze(-1), chosen, band[:, :, :count]), band[:, :, count:]], 2)


def _causal(q: Tensor, k: Tensor, mask: AttentionMask, how: Choice, in_order: bool) -> Tensor:
    """Each query by the rule of its position (``spans``), ``in_order`` if they are all; -1 fills up the slots."""
    keys = k.shape[2]
    in_order = in_order and q.shape[2] == keys
    parts = []
    result = q.new_full((*q.shape[:3], how.topk), -1, dtype=torch.int64) if not in_order else None
    for first, end, size in spans(keys, how.method, how.block):
        here = (first, end) if in_order else (0, q.shape[2])
        index = _choose(q[:, :, slice(*here)], k[:, :, :end], mask.part(*here, end), how, size)
        if result is None:
            parts.append(index)
        else:
            result = torch.where(((mask.position >= first) & (mask.position < end)).unsqueeze(-1), index, result)
    return torch.cat(parts, 2) if result is None else result


def _any_order(q: Tensor, k: Tensor, mask: AttentionMask, how: Choice) -> Tensor:
    """Queries that may see later keys too: the partition follows each sequence's own number of keys."""

    def size_of(keys: int) -> int | None:
        return None if is_exact(how.method, keys) else how.block or math.isqrt(max(keys, 1) - 1) + 1

    keys = k.shape[2]
    if mask.padding is None or tracing():
        return _choose(q, k, mask, how, size_of(keys))
    lengths = torch.where(mask.padding, 0, torch.arange(1, keys + 1, device=k.device)).amax(1)
    result = q.new_full((*q.shape[:3], how.topk), -1, dtype=torch.int64)
    for length in sorted(set(lengths.tolist())):
        if length:
            chosen = (lengths == length).nonzero()[:, 0]
            part = replace(mask, position=mask.position[chosen], padding=mask.padding[chosen, :length])
            result[:, chosen] = _choose(q[:, chosen], k[:, chosen, :length], part, how, size_of(length))
    return result


def _choose(q: Tensor, k: Tensor, mask: AttentionMask, how: Choice, size: int | None) -> Tensor:
    """The exact Top-K (``size`` None) or that of blocks of ``size`` keys, in ``topk`` slots."""
    keys, topk = k.shape[2], how.topk
    if topk >= keys:
        index = torch.arange(keys, device=k.device).expand(*q.shape[:3], keys)
    elif size is None:
        index = in_rows(q, mask, keys, lambda part, r: _exact(part, k, r, topk))
    else:
        index = by_partition(q, k, mask, topk, min(size, keys), max(how.blocks or 0, math.ceil(topk / size) + 1))
    return F.pad(index, (0, topk - index.shape[-1]), value=-1)


def _exact(q: Tensor, k: Tensor, mask: AttentionMask, topk: int) -> Tensor:
    scores = q @ k.transpose(-1, -2)
    if not mask.open:
        every = torch.arange(k.shape[-2], device=k.device).expand(*mask.position.shape, -1)
        scores = scores.masked_fill(~mask.allowed(every), -math.inf)
    if not tracing():
        return top_k(scores, topk)
    # A graph may run later on sequences shorter than K: slots of its own make sure that there are K to choose from.
    keys = k.shape[-2]
    index = F.pad(scores, (0, topk), value=-math.inf).topk(topk, dim=-1).indices
    return torch.where(index < keys, index, -1)


def _band(q: Tensor, k: Tensor, mask: AttentionMask, window: int, topk: int | None) -> Tensor:
    """The Top-K among the last ``window`` keys; nothing outside the band is ever scored."""
    offsets = torch.arange(window, device=k.device)

    def band(r: AttentionMask) -> Tensor:
        return r.position.unsqueeze(-1) - offsets

    if topk is None or topk >= window:
        return band(mask).unsqueeze(0)

    def choose(part: Tensor, r: AttentionMask) -> Tensor:
        keys = band(r)
        rows = k[:, torch.arange(k.shape[1], device=k.device).view(-1, 1, 1), keys.clamp(min=0)]
        best = top_k((rows @ part.unsqueeze(-1)).squeeze(-1).masked_fill(~r.allowed(keys), -math.inf), topk)
        return r.position.unsqueeze(-1) - best

    return in_rows(q, mask, window * k.shape[-1], choose)


def by_partition(q: Tensor, k: Tensor, mask: AttentionMask, topk: int, size: int, count: int) -> Tensor:
    """Keys ``[H, B, Tq, n]`` among the best ``count`` blocks of ``size`` keys; -1 marks a slot without a key.

    The last block is padded, never dropped. ``q`` is ``[H, B, Tq, D]``, ``k`` is ``[H, B, Tk, D]``.
    """
    heads, batch, keys, depth = k.shape
    total = -(-keys // size)
    count = min(count, total)
    topk = min(topk, count * size)
    tiles = F.pad(k, (0, 0, 0, total * size - keys)).view(heads, batch, total, size, depth)
    present = torch.ones(batch, keys, dtype=torch.bool, device=k.device) if mask.padding is None else ~mask.padding
    present = F.pad(present, (0, total * size - keys)).view(batch, total, size)
    # Padding takes no part in a centroid, so that padded keys cannot pull a block up or down.
    amounts = present.sum(-1, keepdim=True)
    centroids = (tiles * present.unsqueeze(-1)).sum(-2) / amounts.clamp(min=1)
    empty = amounts.squeeze(-1) == 0

    def blocks(part: Tensor, r: AttentionMask) -> Tensor:
        return best_blocks(part, centroids, empty, r, size, count)

    if k.device.type == "cpu" and not tracing() and q.shape[2] * count >= WORTH_A_LOOP * total:
        return inside_by_block(q, tiles, in_rows(q, mask, total, blocks), mask, topk, keys)
    return in_rows(q, mask, count * size * depth, lambda p, r: inside_by_query(p, tiles, blocks(p, r), r, topk, keys))


def best_blocks(q: Tensor, centroids: Tensor, empty: Tensor, mask: AttentionMask, size: int, count: int) -> Tensor:
    """The ``count`` blocks ``[H, B, Tq, count]`` with the best centroids ``[H, B, blocks, D]``."""
    scores = q @ centroids.transpose(-1, -2)
    scores = scores.masked_fill(empty.unsqueeze(1), -math.inf)
    if mask.causal:
        number = torch.arange(centroids.shape[2], device=q.device)
        own = (mask.position // size).unsqueeze(-1)
        # The centroid of the query's own block holds future keys: it is searched whatever it scores.
        scores = scores.masked_fill(number > own, -math.inf).masked_fill(number == own, math.inf)
    return top_k(scores, count)


def inside_by_query(q: Tensor, tiles: Tensor, best: Tensor, mask: AttentionMask, topk: int, keys: int) -> Tensor:
    """The ``topk`` best keys in the blocks ``best``: each query gathers its blocks."""
    heads, batch, total, size, depth = tiles.shape
    candidates = (best.unsqueeze(-1) * size + torch.arange(size, device=q.device)).flatten(-2)
    candidates = torch.where(candidates < keys, candidates, -1)
    flat = best + (torch.arange(heads * batch, device=q.device) * total).view(heads, batch, 1, 1)
    rows = tiles.reshape(heads * batch * total, size * depth)[flat].view(*candidates.shape, depth)
    scores = (rows @ q.unsqueeze(-1)).squeeze(-1).masked_fill(~mask.allowed(candidates), -math.inf)
    return candidates.gather(-1, top_k(scores, topk))


def inside_by_block(q: Tensor, tiles: Tensor, best: Tensor, mask: AttentionMask, topk: int, keys: int) -> Tensor:
    """The same: each block scores all queries that search it, in one product, and names its best keys to them."""
    heads, batch, total, size, depth = tiles.shape
    count, queries, every = best.shape[3], batch * q.shape[2], heads * batch * total
    block, visits = (best + (torch.arange(heads * batch) * total).view(heads, batch, 1, 1)).flatten().sort()
    ends = torch.bincount(block, minlength=every).cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    query = torch.div(visits, count, rounding_mode="floor")
    rows, columns = q.reshape(-1, depth), tiles.reshape(every, size, depth).transpose(1, 2)
    keep = min(topk, size)
    scores = q.new_empty(len(visits), keep)
    winners = torch.empty(len(visits), keep, dtype=torch.int64)
    first = 0
    while first < every:
        last = first + 1
        while last < every and (ends[last] - starts[first]) * size <= SCORES_AT_ONCE:
            last += 1
        here = slice(starts[first], ends[last - 1])
        mine = rows.index_select(0, query[here])
        inside = q.new_empty(len(mine), size)
        for b in range(first, last):
            part = slice(starts[b] - here.start, ends[b] - here.start)
            torch.mm(mine[part], columns[b], out=inside[part])
        number = (block[here] % total * size).unsqueeze(1)
        if not mask.open or total * size > keys:
            key = number + torch.arange(size)
            key = torch.where(key < keys, key, -1)
            inside.masked_fill_(~mask.allowed_of(query[here] % queries, key), -math.inf)
        chosen = top_k(inside, keep)
        scores[visits[here]], winners[visits[here]] = inside.gather(1, chosen), chosen + number
        first = last
    shape = (*best.shape[:3], count * keep)
    index = winners.view(shape).gather(-1, top_k(scores.view(shape), topk))
    return torch.where(index < keys, index, -1)


def _largest(scores: Tensor, k: int) -> Tensor:
    n = scores.shape[-1]
    if scores.device.type != "cpu" or n > 256:
        return scores.topk(k, dim=-1, sorted=False).indices
    # numpy selects in short rows several times faster than torch, and values twice as fast as indices.
    if scores.dtype != torch.float32 or scores.numel() < WORTH_PACKING:
        return torch.from_numpy(np.argpartition(scores.numpy(), n - k, axis=-1)[..., n - k :])
    # A float32 leaves 29 bits of a float64 empty: room for its index, which then travels along.
    limits = torch.finfo(torch.float32)
    packed = scores.clamp(limits.min, limits.max).to(torch.float64)  # an infinity with an index would be a NaN
    numbered = packed.view(torch.int64).bitwise_or_(torch.arange(n))
    packed.numpy().partition(n - k, axis=-1)
    return numbered[..., n - k :] & ((1 << (n - 1).bit_length()) - 1)


def top_k(scores: Tensor, k: int) -> Tensor:
    """Indices of the ``k`` largest of the last axis, in no particular order (exact).

    The k largest lie in the k groups with the largest maxima. Selecting is slow and a maximum is fast, so the
    number of groups is cut down first. A group is every (n/group)-th score: then the maximum runs along
    contiguous memory.
    """
    n = scores.shape[-1]
    if tracing():
        return scores.topk(k, dim=-1, sorted=False).indices
    group = 8 if n >= 32 * k else 4
    groups = n // group
    if n % group or groups < 4 * k:
        return _largest(scores, k)
    tiles = scores.view(*scores.shape[:-1], group, groups)
    best = top_k(tiles.amax(-2), k)
    chosen = _largest(tiles.gather(-1, best.unsqueeze(-2).expand(*best.shape[:-1], group, k)).flatten(-2), k)
    return best.gather(-1, chosen % k) + torch.div(chosen, k, rounding_mode="floor") * groups
