"""Multi-head attention (Vaswani et al., 2017) over the past: scaled dot products, no notion of time or order."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nacdrive.layers.base import SequenceLayer, visible


class Cache(NamedTuple):
    """Keys and values [B, heads, steps, d_head] of the last steps of the window."""

    window: int
    keys: Tensor | None = None
    values: Tensor | None = None


class MHALayer(SequenceLayer):
    """softmax(Q K' / sqrt(d)) V per head, over the last ``window`` steps; keys and values are kept while streaming.

    Raises:
        ValueError: if the heads do not divide ``d_model``.
    """

    def __init__(
        self, in_features: int, d_model: int, num_heads: int, window: int, dropout: float = 0.0, **options: Any
    ) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        if d_model % num_heads:
            raise ValueError(f"d_model {d_model} is not divisible by {num_heads} heads")
        self.qkv = nn.Linear(in_features, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.dropout = dropout
        nn.init.xavier_uniform_(self.qkv.weight)
        nn.init.zeros_(self.qkv.bias)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool) -> Tensor:
        """Weighted values [B, heads, Tq, d_head].

        Args:
            q: queries, [B, heads, Tq, d_head].
            k: keys, [B, heads, Tk, d_head].
            v: values, [B, heads, Tk, d_head].
            seen: what each query may see, [B or 1, 1, Tq, Tk], never nothing; None for all.
            causal: whether each query sees just its past (then ``seen`` is None).
        """
        dropout = self.dropout if self.training else 0.0
        return nn.functional.scaled_dot_product_attention(q, k, v, seen, dropout, is_causal=causal)

    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """See ``SequenceLayer.forward``."""
        if padding is not None:
            x = x.masked_fill(padding.unsqueeze(-1), 0.0)  # not even NaN in padding may matter
        seen = visible(x.shape[1], self.window, padding, x.device)
        return self.merge(self.attend(*self._heads(x), seen, causal=seen is None))

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v, each [B, heads, T, d_head]."""
        B, T, _ = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        return q, k, v

    def merge(self, y: Tensor) -> Tensor:
        """[B, heads, T, d_head] -> [B, T, d_model]."""
        merged: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return merged

    def init_state(self, batch_size: int, window: int | None = None) -> Cache:
        """Nothing seen yet."""
        return Cache(window or self.window)

    def step(self, x: Tensor, t: Tensor | None, state: Cache) -> tuple[Tensor, Cache]:
        """See ``SequenceLayer.step``."""
        window, keys, values = state
        q, k, v = self._heads(x.unsqueeze(1))
        if keys is not None and values is not None:
            k, v = torch.cat([keys, k], dim=2)[:, :, -window:], torch.cat([values, v], dim=2)[:, :, -window:]
        return self.merge(self.attend(q, k, v, None, causal=False))[:, 0], Cache(window, k, v)
