"""Gated recurrent unit (Cho et al., 2014)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from nacdrive.layers.windowed import WindowedLayer


class GRULayer(WindowedLayer):
    """One GRU with ``d_model`` hidden units. It has no use for heads or time.

    h_i = (1 - z) n + z h_{i-1},  n = tanh(W x_i + r (U h_{i-1} + b)),  gates r, z sigmoid of the same inputs.
    """

    def __init__(self, in_features: int, d_model: int, num_heads: int, window: int, **options: Any) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        self.gru = nn.GRU(in_features, d_model, batch_first=True)

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        """See ``WindowedLayer.scan``."""
        y: Tensor = self.gru(u)[0]
        return y
