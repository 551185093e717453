"""A dense layer on each step by itself, as in networks without a sequence layer such as PilotNet (Bojarski, 2016)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from nacdrive.layers.windowed import WindowedLayer


class DenseLayer(WindowedLayer):
    """y_i = elu(W x_i + b): no other step is looked at, whatever the window. It has no use for heads or time."""

    past_sense = "bag"

    def __init__(self, in_features: int, d_model: int, num_heads: int, window: int, **options: Any) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        self.dense = nn.Sequential(nn.Linear(in_features, d_model), nn.ELU())

    def project(self, x: Tensor) -> Tensor:
        y: Tensor = self.dense(x)
        return y

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        return u
