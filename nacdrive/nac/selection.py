"""Which keys a query is paired with: all, the exact Top-K, or the Top-K of a square-root partition (Algorithm 2).

Keys are scored by the dot product of the sensory projections q and k. Choosing is not differentiated. Indices
may name keys that a query may not see (when fewer than K are allowed); ``Rules.allowed`` tells them apart.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nacdrive.nac.mask import Rules, in_rows
from nacdrive.nac.partition import by_partition
from nacdrive.nac.ranking import top_k

SELECTIONS = ("auto", "exact", "sqrt")
AUTO_EXACT_UP_TO = 1024  # keys; above it, scoring every pair costs more than the pairs themselves


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
        return in_rows(q, rules, keys, lambda part, r: _exact(part, k, r, topk))
    size = block or math.isqrt(keys - 1) + 1
    count = max(blocks or 0, math.ceil(topk / size) + 1)
    return by_partition(q, k, rules, topk, min(size, keys), count)


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

    return in_rows(q, rules, window * k.shape[-1], choose)
