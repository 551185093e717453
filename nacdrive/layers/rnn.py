"""Simple recurrent network (Elman, 1990)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from nacdrive.layers.windowed import WindowedLayer


class RNNLayer(WindowedLayer):
    """h_i = tanh(W x_i + U h_{i-1} + b) with ``d_model`` hidden units. It has no use for heads or time."""

    def __init__(self, in_features: int, d_model: int, num_heads: int, window: int, **options: Any) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        self.rnn = nn.RNN(in_features, d_model, batch_first=True)

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        """See ``WindowedLayer.scan``."""
        y: Tensor = self.rnn(u)[0]
        return y
