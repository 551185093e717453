"""Continuous-time recurrent network (Funahashi & Nakamura, 1993), solved by explicit Euler."""

from __future__ import annotations

from typing import Any

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

    def __init__(
        self, in_features: int, d_model: int, num_heads: int, window: int, unfolds: int = 5, **options: Any
    ) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        self.input = nn.Linear(in_features, d_model)
        self.relaxation = Relaxation(d_model, unfolds)

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        h = u.new_zeros(len(u), self.d_model)
        states = []
        for u_i, share in zip(u.unbind(1), self.relaxation.shares(dt).unbind(1), strict=True):
            h = self.relaxation(h, u_i, share)
            states.append(h)
        return torch.stack(states, dim=1)
