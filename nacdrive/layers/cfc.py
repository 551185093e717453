"""Closed-form continuous-time network (Hasani et al., 2022, equation 2), as ``CfCCell`` of the ncps package."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nacdrive.layers.windowed import WindowedLayer


class CfCLayer(WindowedLayer):
    """h_i = tanh(f) (1 - g) + tanh(k) g,  g = sigmoid(a dt + b),  with f, k, a, b linear in a shared backbone.

    The backbone is 1.7159 tanh(0.666 (W x_i + U h_{i-1} + c)) with ``backbone_units`` neurons.
    """

    time_sense = "gaps"

    def build(self, *, backbone_units: int = 128) -> None:
        in_features, d_model = self.in_features, self.d_model
        joint = nn.Linear(in_features + d_model, backbone_units)
        nn.init.xavier_uniform_(joint.weight)
        self.input = nn.Linear(in_features, backbone_units)
        self.recurrent = nn.Parameter(joint.weight[:, in_features:].detach().clone())
        self.input.weight.data = joint.weight[:, :in_features].detach().clone()
        self.heads = nn.Linear(backbone_units, 4 * d_model)
        for weight in self.heads.weight.chunk(4):
            nn.init.xavier_uniform_(weight)

    def project(self, x: Tensor) -> Tensor:
        u: Tensor = 0.666 * self.input(x)
        return u

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        recurrent, heads, bias = 0.666 * self.recurrent.t(), 1.7159 * self.heads.weight.t(), self.heads.bias
        h = u.new_zeros(len(u), self.d_model)
        states = []
        for u_i, dt_i in zip(u.unbind(1), dt.unsqueeze(-1).unbind(1), strict=True):
            mixed = torch.addmm(bias, torch.addmm(u_i, h, recurrent).tanh(), heads)
            f, k = mixed[:, : 2 * self.d_model].tanh().chunk(2, dim=1)
            a, b = mixed[:, 2 * self.d_model :].chunk(2, dim=1)
            h = torch.lerp(f, k, torch.addcmul(b, a, dt_i).sigmoid())
            states.append(h)
        return torch.stack(states, dim=1)
