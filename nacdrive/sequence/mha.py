"""Multi-head attention (Vaswani et al., 2017) over the past: scaled dot products, no notion of time or order."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nacdrive.sequence.contract import SequenceLayer, window_mask


class MHALayer(SequenceLayer):
    """Causal multi-head attention over the last ``window`` steps, with keys and values kept while streaming."""

    def __init__(self, in_features: int, d_model: int, num_heads: int, window: int, dropout: float = 0.0) -> None:
        super().__init__(in_features, d_model, num_heads, window)
        if d_model % num_heads:
            raise ValueError(f"d_model {d_model} is not divisible by {num_heads} heads")
        self.qkv = nn.Linear(in_features, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.dropout = dropout
        nn.init.xavier_uniform_(self.qkv.weight)
        nn.init.zeros_(self.qkv.bias)

    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """See ``SequenceLayer.forward``."""
        T = x.shape[1]
        q, k, v = self._heads(x)
        hidden = window_mask(T, self.window, x.device)[None, None]
        if padding is not None:
            hidden = hidden | padding[:, None, None, :]
        return self._attend(q, k, v, hidden)

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v, each [B, heads, T, d_head]."""
        B, T, _ = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        return q, k, v

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> Tensor:
        B, H, T, D = q.shape
        logits = q @ k.transpose(-1, -2) / math.sqrt(D)
        if hidden is not None:
            logits = logits.masked_fill(hidden, -torch.inf)
            # A row that may see nothing (padding before the first step) gives zeros, not NaN.
            logits = logits.masked_fill(hidden.all(dim=-1, keepdim=True), 0.0)
        weights = nn.functional.dropout(logits.softmax(dim=-1), self.dropout, self.training)
        y: Tensor = self.out((weights @ v).transpose(1, 2).reshape(B, T, H * D))
        return y

    def init_state(self, batch_size: int, window: int | None = None) -> tuple[int, Tensor | None, Tensor | None]:
        """(window, keys, values) with nothing seen yet."""
        return (window or self.window, None, None)

    def step(
        self, x: Tensor, t: Tensor | None, state: tuple[int, Tensor | None, Tensor | None]
    ) -> tuple[Tensor, tuple[int, Tensor | None, Tensor | None]]:
        """See ``SequenceLayer.step``."""
        window, keys, values = state
        q, k, v = self._heads(x.unsqueeze(1))
        keys = k if keys is None else torch.cat([keys, k], dim=2)
        values = v if values is None else torch.cat([values, v], dim=2)
        keys, values = keys[:, :, -window:], values[:, :, -window:]
        return self._attend(q, keys, values, None)[:, 0], (window, keys, values)


def build(in_features: int, d_model: int, num_heads: int, window: int, dropout: float = 0.0) -> MHALayer:
    """Build the layer (see ``registry.build``)."""
    return MHALayer(in_features, d_model, num_heads, window, dropout)
