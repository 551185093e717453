"""Which keys a query is paired with: all, the exact Top-K, or the Top-K of a square-root partition (Algorithm 2).

Keys are scored by the dot product of the sensory projections q and k. Choosing is not differentiated. Indices
may name keys that a query may not see (when fewer than K are allowed); ``Rules.allowed`` tells them apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

SELECTIONS = ("auto", "exact", "sqrt")
AUTO_EXACT_UP_TO = 1024  # keys; above it, scoring every pair costs more than the pairs themselves
SCORES_AT_ONCE = 1 << 19  # scores held at a time: 2 MiB in float32, which caches hold


@dataclass(frozen=True)
class Rules:
    """Which key each query may see.

    Attributes:
        position: ``[B, Tq]`` index of each query among the keys (used by ``causal``).
        padding: ``[B, Tk]``, True = not a key; or None.
        causal: only keys at or before the query.
        window: with ``causal``, only the last ``window`` of those; or None.
    """

    position: Tensor
    padding: Tensor | None
    causal: bool
    window: int | None

    @property
    def open(self) -> bool:
        """True if every query sees every key."""
        return self.padding is None and not self.causal

    def rows(self, first: int, last: int) -> Rules:
        """The rules of queries ``first`` to ``last`` of each sequence."""
        return Rules(self.position[:, first:last], self.padding, self.causal, self.window)

    def allowed(self, keys: Tensor) -> Tensor:
        """True where query i of sequence b may see key ``keys[..., b, i, :]``; ``keys`` is ``[..., B, Tq, n]``."""
        sequence = torch.arange(self.position.shape[0], device=keys.device).view(-1, 1, 1)
        return self._allowed(keys, self.position.unsqueeze(-1), sequence)

    def allowed_flat(self, keys: Tensor, first: int) -> Tensor:
        """The same for queries ``first``, ... of all sequences laid end to end; ``keys`` is ``[..., queries, n]``."""
        last = first + keys.shape[-2]
        sequence = torch.arange(first, last, device=keys.device).unsqueeze(-1) // self.position.shape[1]
        return self._allowed(keys, self.position.reshape(-1)[first:last].unsqueeze(-1), sequence)

    def _allowed(self, keys: Tensor, position: Tensor, sequence: Tensor) -> Tensor:
        seen = keys >= 0
        if self.causal:
            seen = seen & (keys <= position)
            if self.window is not None:
                seen = seen & (keys > position - self.window)
        if self.padding is not None:
            flat = keys.clamp(min=0) + sequence * self.padding.shape[1]
            seen = seen & ~self.padding.reshape(-1)[flat]
        return seen


def _largest(scores: Tensor, k: int) -> Tensor:
    """Indices of the ``k`` largest of the last axis."""
    n = scores.shape[-1]
    if scores.device.type == "cpu" and n <= 256 and not torch.compiler.is_compiling():
        # numpy selects in short rows two to three times faster than torch.
        return torch.from_numpy(np.argpartition(scores.numpy(), n - k, axis=-1)[..., n - k :])
    return scores.topk(k, dim=-1, sorted=False).indices


def top_k(scores: Tensor, k: int, group: int = 8) -> Tensor:
    """Indices of the ``k`` largest of the last axis, in no particular order (exact).

    The k largest lie in the k groups with the largest maxima. Selecting is slow and a maximum is fast, so the
    number of groups is cut down first. A group is every (n/group)-th score: then the maximum runs along
    contiguous memory.
    """
    n = scores.shape[-1]
    groups = n // group
    if n % group or groups < 4 * k:
        return _largest(scores, k)
    tiles = scores.view(*scores.shape[:-1], group, groups)
    best = top_k(tiles.amax(-2), k, 4)
    inside = tiles.gather(-1, best.unsqueeze(-2).expand(*best.shape[:-1], group, k)).flatten(-2)
    chosen = _largest(inside, k)
    index: Tensor = best.gather(-1, chosen % k) + torch.div(chosen, k, rounding_mode="floor") * groups
    return index


def select(
    q: Tensor,
    k: Tensor,
    rules: Rules,
    topk: int | None,
    method: str,
    blocks: int | None = None,
    block: int | None = None,
) -> Tensor | None:
    """Key indices ``[H, B, Tq, n]`` (or broadcastable to it) for every query, or None for all keys.

    Args:
        q: ``[H, B, Tq, D]``.
        k: ``[H, B, Tk, D]``.
        rules: who may see whom.
        topk: keys per query; None pairs a query with every key it may see.
        method: ``exact``, ``sqrt`` or ``auto``.
        blocks: for ``sqrt``, number of blocks that are searched; at least ceil(topk / block) + 1 by default.
        block: for ``sqrt``, keys per block; ceil(sqrt(Tk)) by default.
    """
    keys = k.shape[-2]
    if rules.causal and rules.window is not None and rules.window < keys:
        return _band(q, k, rules, rules.window, topk)
    if topk is None or topk >= keys:
        return None
    if method == "exact" or (method == "auto" and keys <= AUTO_EXACT_UP_TO):
        return _in_rows(q, rules, keys, lambda part, r: _exact(part, k, r, topk))
    size = block or math.isqrt(keys - 1) + 1
    count = max(blocks or 0, math.ceil(topk / size) + 1)
    return _sqrt(q, k, rules, topk, min(size, keys), count)


def _in_rows(q: Tensor, rules: Rules, scores_per_query: int, choose: Callable[[Tensor, Rules], Tensor]) -> Tensor:
    """``choose`` applied to as many queries at a time as keep the scores within ``SCORES_AT_ONCE``."""
    heads, batch, queries, _ = q.shape
    step = max(1, SCORES_AT_ONCE // (heads * batch * scores_per_query))
    if step >= queries or torch.compiler.is_compiling():
        return choose(q, rules)
    parts = [choose(q[:, :, i : i + step], rules.rows(i, i + step)) for i in range(0, queries, step)]
    return torch.cat(parts, dim=2)


def _exact(q: Tensor, k: Tensor, rules: Rules, topk: int) -> Tensor:
    scores = q @ k.transpose(-1, -2)
    if not rules.open:
        every = torch.arange(k.shape[-2], device=k.device).expand(*rules.position.shape, -1)
        scores = scores.masked_fill(~rules.allowed(every), -math.inf)
    return top_k(scores, topk)


def _band(q: Tensor, k: Tensor, rules: Rules, window: int, topk: int | None) -> Tensor:
    """The Top-K among the last ``window`` keys; nothing outside the band is ever scored."""
    offsets = torch.arange(window, device=k.device)

    def band(r: Rules) -> Tensor:
        return r.position.unsqueeze(-1) - offsets

    if topk is None or topk >= window:
        return band(rules).unsqueeze(0)

    def choose(part: Tensor, r: Rules) -> Tensor:
        keys = band(r)
        rows = k[:, torch.arange(k.shape[1], device=k.device).view(-1, 1, 1), keys.clamp(min=0)]
        scores = (rows @ part.unsqueeze(-1)).squeeze(-1)
        best = top_k(scores.masked_fill(~r.allowed(keys), -math.inf), topk)
        return r.position.unsqueeze(-1) - best

    return _in_rows(q, rules, window * k.shape[-1], choose)


def _sqrt(q: Tensor, k: Tensor, rules: Rules, topk: int, size: int, count: int) -> Tensor:
    """Score block centroids, then the keys of the best ``count`` blocks. The last block is padded, never dropped."""
    heads, batch, keys, depth = k.shape
    total = -(-keys // size)
    count = min(count, total)
    present = torch.ones(batch, keys, dtype=torch.bool, device=k.device) if rules.padding is None else ~rules.padding
    present = torch.nn.functional.pad(present, (0, total * size - keys)).view(batch, total, size)
    tiles = torch.nn.functional.pad(k, (0, 0, 0, total * size - keys)).view(heads, batch, total, size, depth)
    # Padding takes no part in a centroid, so that padded keys cannot pull a block up or down.
    amounts = present.sum(-1, keepdim=True)
    centroids = (tiles * present.unsqueeze(-1)).sum(-2) / amounts.clamp(min=1)
    empty = amounts.squeeze(-1) == 0
    number = torch.arange(total, device=k.device)
    inside = torch.arange(size, device=k.device)

    def choose(part: Tensor, r: Rules) -> Tensor:
        coarse = part @ centroids.transpose(-1, -2)
        coarse = coarse.masked_fill(empty.unsqueeze(1), -math.inf)
        if r.causal:
            own = (r.position // size).unsqueeze(-1)
            # The centroid of the query's own block holds future keys: it is searched whatever it scores.
            coarse = coarse.masked_fill(number > own, -math.inf).masked_fill(number == own, math.inf)
        best = top_k(coarse, count)
        found = (best.unsqueeze(-1) * size + inside).flatten(-2)
        found = torch.where(found < keys, found, -1)
        flat = best + (torch.arange(heads * batch, device=k.device) * total).view(heads, batch, 1, 1)
        rows = tiles.reshape(heads * batch * total, size * depth)[flat].view(*found.shape, depth)
        scores = (rows @ part.unsqueeze(-1)).squeeze(-1).masked_fill(~r.allowed(found), -math.inf)
        return found.gather(-1, top_k(scores, min(topk, count * size)))

    return _in_rows(q, rules, count * size * depth, choose)
