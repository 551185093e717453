"""Attention whose weights are inner products of positive features, in time that grows linearly with the steps."""

from __future__ import annotations

import torch
from torch import Tensor

TINY = 1e-6
CHUNK = 128  # queries that see each other by a matrix; what came before is one sum


def kernel_attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool) -> Tensor:
    """sum_j (q_i . k_j) v_j / sum_j (q_i . k_j) over the keys that query i may see.

    Args:
        q: features of the queries, [B, H, Tq, M], none negative.
        k: features of the keys, [B, H, Tk, M], none negative.
        v: values, [B, H, Tk, D].
        seen: [B or 1, 1, Tq, Tk], True where a query may see a key; None for all.
        causal: whether each query sees just its past (then ``seen`` is None).

    Returns:
        [B, H, Tq, D]
    """
    # A value of 1 beside the others sums the weights.
    v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
    if causal:
        y = _causal(q, k, v)
    elif seen is None:
        y = q @ (k.transpose(-1, -2) @ v)
    else:
        y = (q @ k.transpose(-1, -2)).masked_fill(~seen, 0.0) @ v
    return y[..., :-1] / (y[..., -1:] + TINY)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    past = q.new_zeros((*q.shape[:2], k.shape[-1], v.shape[-1]))
    parts = []
    for q_c, k_c, v_c in zip(*(torch.split(s, CHUNK, dim=2) for s in (q, k, v)), strict=True):
        parts.append((q_c @ k_c.transpose(-1, -2)).tril() @ v_c + q_c @ past)
        past = past + k_c.transpose(-1, -2) @ v_c
    return torch.cat(parts, dim=2)
