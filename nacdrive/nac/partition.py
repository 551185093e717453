"""The Top-K of a square-root partition (paper, Algorithm 2): best blocks by their centroids, best keys inside them."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from nacdrive.nac.mask import SCORES_AT_ONCE, Rules, in_rows
from nacdrive.nac.ranking import top_k

WORTH_A_LOOP = 16  # queries that search a block on average, from which on blocks are taken one by one


def by_partition(q: Tensor, k: Tensor, rules: Rules, topk: int, size: int, count: int) -> Tensor:
    """Keys ``[H, B, Tq, n]`` among the best ``count`` blocks of ``size`` keys; -1 marks a slot without a key.

    The last block is padded, never dropped. ``q`` is ``[H, B, Tq, D]``, ``k`` is ``[H, B, Tk, D]``.
    """
    heads, batch, keys, depth = k.shape
    total = -(-keys // size)
    count = min(count, total)
    topk = min(topk, count * size)
    tiles = F.pad(k, (0, 0, 0, total * size - keys)).view(heads, batch, total, size, depth)
    present = torch.ones(batch, keys, dtype=torch.bool, device=k.device) if rules.padding is None else ~rules.padding
    present = F.pad(present, (0, total * size - keys)).view(batch, total, size)
    # Padding takes no part in a centroid, so that padded keys cannot pull a block up or down.
    amounts = present.sum(-1, keepdim=True)
    centroids = (tiles * present.unsqueeze(-1)).sum(-2) / amounts.clamp(min=1)
    empty = amounts.squeeze(-1) == 0

    def blocks(part: Tensor, r: Rules) -> Tensor:
        return best_blocks(part, centroids, empty, r, size, count)

    if k.device.type == "cpu" and not torch.compiler.is_compiling() and q.shape[2] * count >= WORTH_A_LOOP * total:
        return inside_by_block(q, tiles, in_rows(q, rules, total, blocks), rules, topk, keys)
    per_query = count * size * depth
    return in_rows(q, rules, per_query, lambda p, r: inside_by_query(p, tiles, blocks(p, r), r, topk, keys))


def best_blocks(q: Tensor, centroids: Tensor, empty: Tensor, rules: Rules, size: int, count: int) -> Tensor:
    """The ``count`` blocks ``[H, B, Tq, count]`` with the best centroids ``[H, B, blocks, D]``."""
    scores = q @ centroids.transpose(-1, -2)
    scores = scores.masked_fill(empty.unsqueeze(1), -math.inf)
    if rules.causal:
        number = torch.arange(centroids.shape[2], device=q.device)
        own = (rules.position // size).unsqueeze(-1)
        # The centroid of the query's own block holds future keys: it is searched whatever it scores.
        scores = scores.masked_fill(number > own, -math.inf).masked_fill(number == own, math.inf)
    return top_k(scores, count)


def inside_by_query(q: Tensor, tiles: Tensor, best: Tensor, rules: Rules, topk: int, keys: int) -> Tensor:
    """The ``topk`` best keys in the blocks ``best``: each query gathers its blocks."""
    heads, batch, total, size, depth = tiles.shape
    found = (best.unsqueeze(-1) * size + torch.arange(size, device=q.device)).flatten(-2)
    found = torch.where(found < keys, found, -1)
    flat = best + (torch.arange(heads * batch, device=q.device) * total).view(heads, batch, 1, 1)
    rows = tiles.reshape(heads * batch * total, size * depth)[flat].view(*found.shape, depth)
    scores = (rows @ q.unsqueeze(-1)).squeeze(-1).masked_fill(~rules.allowed(found), -math.inf)
    return found.gather(-1, top_k(scores, topk))


def inside_by_block(q: Tensor, tiles: Tensor, best: Tensor, rules: Rules, topk: int, keys: int) -> Tensor:
    """The same: each block scores all queries that search it, in one product, and names its best keys to them."""
    heads, batch, total, size, depth = tiles.shape
    count = best.shape[3]
    queries = batch * q.shape[2]
    every = heads * batch * total
    block, visits = (best + (torch.arange(heads * batch) * total).view(heads, batch, 1, 1)).flatten().sort()
    ends = torch.bincount(block, minlength=every).cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    query = torch.div(visits, count, rounding_mode="floor")
    rows, columns = q.reshape(-1, depth), tiles.reshape(every, size, depth).transpose(1, 2)
    keep = min(topk, size)
    scores = q.new_empty(len(visits), keep)
    found = torch.empty(len(visits), keep, dtype=torch.int64)
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
        if not rules.open or total * size > keys:
            key = number + torch.arange(size)
            key = torch.where(key < keys, key, -1)
            inside.masked_fill_(~rules.allowed_of(query[here] % queries, key), -math.inf)
        chosen = top_k(inside, keep)
        scores[visits[here]] = inside.gather(1, chosen)
        found[visits[here]] = chosen + number
        first = last
    shape = (*best.shape[:3], count * keep)
    index = found.view(shape).gather(-1, top_k(scores.view(shape), topk))
    return torch.where(index < keys, index, -1)
