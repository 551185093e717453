"""Scaled dot-product attention with one head (Vaswani et al., 2017, equation 1)."""

from __future__ import annotations

from typing import Any

from nacdrive.layers.mha import MHALayer


class AttentionLayer(MHALayer):
    """softmax(Q K' / sqrt(d_model)) V; ``num_heads`` is ignored."""

    def __init__(self, in_features: int, d_model: int, num_heads: int, window: int, **options: Any) -> None:
        super().__init__(in_features, d_model, 1, window, **options)
