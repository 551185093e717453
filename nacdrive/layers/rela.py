"""Rectified linear attention (Zhang et al., 2021): what the paper cites where it says linear attention."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.layers.mha import MHALayer

EPS = 1e-6


class ReLALayer(MHALayer):
    """y = sigmoid(w z) g z / rms(z),  z_i = sum_j relu(q_i . k_j / sqrt(d)) v_j, over all heads together.

    The scores are not normalised; the gated RMS norm (gain g, gate weight w per channel) keeps the outputs in scale.
    It feels no time.
    """

    def __init__(self, in_features: int, d_model: int, num_heads: int, window: int, **options: Any) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        self.gain = nn.Parameter(torch.ones(d_model))
        self.gate = nn.Parameter(torch.ones(d_model))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, causal: bool) -> Tensor:
        """See ``MHALayer.attend``."""
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).relu()
        if causal:
            scores = scores.tril()
        elif seen is not None:
            scores = scores.masked_fill(~seen, 0.0)
        return scores @ v

    def merge(self, y: Tensor) -> Tensor:
        """See ``MHALayer.merge``; the norm stands before the last projection."""
        z = y.transpose(1, 2).flatten(2)
        normed = nn.functional.rms_norm(z, z.shape[-1:], self.gain, EPS)
        merged: Tensor = self.out((self.gate * z).sigmoid() * normed)
        return merged
