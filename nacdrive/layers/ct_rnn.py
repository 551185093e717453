"""Continuous-time recurrent network (Funahashi & Nakamura, 1993) by explicit Euler, alone and behind an LSTM."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nacdrive.layers.windowed import InputLayer


class Relaxation(nn.Module):
    """dh/ds = s tanh(z + U h) - h / tau over a gap, ``unfolds`` Euler steps; s and tau are one number per unit.

    A step is never longer than tau: explicit Euler oscillates beyond it and diverges beyond 2 tau, while a step of tau
    lands on the value towards which h decays, which is what a long gap means.
    """

    def __init__(self, units: int, unfolds: int) -> None:
        super().__init__()
        self.unfolds = unfolds
        self.recurrent = nn.Parameter(torch.empty(units, units))
        nn.init.orthogonal_(self.recurrent)
        self.scale = nn.Parameter(torch.ones(units))
        self.log_tau = nn.Parameter(torch.zeros(units))

    def shares(self, dt: Tensor) -> Tensor:
        """Share of tau that one Euler step takes, [..., units], for gaps dt [...]."""
        return (dt.unsqueeze(-1) / (self.unfolds * self.log_tau.exp())).clamp(max=1.0)

    def forward(self, h: Tensor, drive: Tensor, share: Tensor) -> Tensor:
        """State h [N, units] after a gap of ``shares``, under the drive z ([N, units] or [units])."""
        recurrent, target = self.recurrent.t(), self.scale * self.log_tau.exp()
        for _ in range(self.unfolds):
            h = torch.lerp(h, target * torch.addmm(drive, h, recurrent).tanh(), share)
        return h


class CTRNNLayer(InputLayer):
    """dh/ds = s tanh(W x_i + U h + b) - h / tau over the gap before step i, by explicit Euler."""

    time_sense = "gaps"

    def build(self, *, unfolds: int = 5) -> None:
        self.input = nn.Linear(self.in_features, self.d_model)
        self.relaxation = Relaxation(self.d_model, unfolds)

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        h = u.new_zeros(len(u), self.d_model)
        states = []
        for u_i, share in zip(u.unbind(1), self.relaxation.shares(dt).unbind(1), strict=True):
            h = self.relaxation(h, u_i, share)
            states.append(h)
        return torch.stack(states, dim=1)


class MMRNNLayer(InputLayer):
    """Mixed-memory recurrent network, or ODE-LSTM (Lechner & Hasani, 2020, algorithm 1).

    (c_i, h') = LSTM(x_i, c_{i-1}, h_{i-1});  h_i = h' carried over the gap before step i by an ODE.

    The memory c is not touched by the ODE, so gradients pass long gaps. The ODE is that of a CT-RNN without input,
    dh/ds = s tanh(U h + b) - h / tau, whose decay keeps h bounded over any gap.
    """

    time_sense = "gaps"

    def build(self, *, unfolds: int = 4) -> None:
        d_model = self.d_model
        self.input = nn.Linear(self.in_features, 4 * d_model)  # in, forget, out, candidate
        self.recurrent = nn.Parameter(torch.empty(4 * d_model, d_model))
        nn.init.uniform_(self.recurrent, -1 / math.sqrt(d_model), 1 / math.sqrt(d_model))
        with torch.no_grad():
            self.input.bias[d_model : 2 * d_model] += 3.0  # forget little at first, as the authors' code does
        self.flow = Relaxation(d_model, unfolds)
        self.flow_bias = nn.Parameter(torch.zeros(d_model))

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        recurrent = self.recurrent.t()
        c = h = u.new_zeros(len(u), self.d_model)
        states = []
        for u_i, share in zip(u.unbind(1), self.flow.shares(dt).unbind(1), strict=True):
            mixed = torch.addmm(u_i, h, recurrent)
            gate, forget, out = mixed[:, : 3 * self.d_model].sigmoid().chunk(3, dim=1)
            c = torch.addcmul(forget * c, gate, mixed[:, 3 * self.d_model :].tanh())
            h = self.flow(out * c.tanh(), self.flow_bias, share)
            states.append(h)
        return torch.stack(states, dim=1)
