"""A dense layer on each step by itself, as in networks without a sequence layer such as PilotNet (Bojarski, 2016)."""

from __future__ import annotations

from torch import Tensor, nn

from nacdrive.layers.windowed import WindowedLayer


class DenseLayer(WindowedLayer):
    """y_i = elu(W x_i + b): no other step is looked at, whatever the window. It has no use for heads or time."""

    past_sense = "bag"

    def build(self) -> None:
        self.dense = nn.Sequential(nn.Linear(self.in_features, self.d_model), nn.ELU())

    def project(self, x: Tensor) -> Tensor:
        y: Tensor = self.dense(x)
        return y

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        return u
