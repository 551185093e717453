"""A weight-tied transformer block stepped as an ODE: what the authors' code runs under the name ODEFormer.

The citation (d'Ascoli et al., 2023) is another thing, a transformer that writes the formula of an observed ODE.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nacdrive.layers.attention import MHALayer
from nacdrive.layers.windowed import InputLayer


class ODEFormerLayer(InputLayer):
    """dh/ds = A(h) + M(h + A(h)) over the depth s in [0, 1], in ``unfolds`` Euler steps.

    It begins at h(0) = W x_i + E log(1 + dt_i) + b. A is causal multi-head attention and M a two-layer perceptron, each
    behind a layer norm, as in a pre-norm transformer block. Depth is no time; the gap enters by its embedding E.
    """

    time_sense = "gaps"

    def build(self, *, unfolds: int = 4) -> None:
        d_model = self.d_model
        self.unfolds = unfolds
        self.input = nn.Linear(self.in_features, d_model)
        self.gap = nn.Linear(1, d_model, bias=False)
        self.attention = MHALayer(d_model, d_model, self.num_heads, self.window)
        self.norms = nn.ModuleList([nn.LayerNorm(d_model), nn.LayerNorm(d_model)])
        self.perceptron = nn.Sequential(nn.Linear(d_model, 2 * d_model), nn.GELU(), nn.Linear(2 * d_model, d_model))

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        h: Tensor = u + self.gap(torch.log1p(dt).unsqueeze(-1))
        for _ in range(self.unfolds):
            change = self.attention(self.norms[0](h))
            h = h + (change + self.perceptron(self.norms[1](h + change))) / self.unfolds
        return h
