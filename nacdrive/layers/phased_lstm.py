"""Phased LSTM (Neil et al., 2016, equations 2 to 10): an LSTM whose units open in turn, by the clock."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.layers.windowed import WindowedLayer


class PhasedLSTMLayer(WindowedLayer):
    """c_i = k c' + (1 - k) c_{i-1},  h_i = k h' + (1 - k) h_{i-1}, where c', h' is one step of an LSTM.

    The openness k of a unit follows its phase p = ((t - shift) mod tau) / tau: 2 p / r while p < r / 2, 2 - 2 p / r
    while p < r, and alpha p after that; alpha is ``leak`` in training and 0 in evaluation. tau and shift are learned,
    tau beginning log-uniform in ``periods`` (typical gaps; the original's exp(U(0, 3))); r is fixed. Without the
    original's peepholes.
    """

    time_sense = "clock"

    def __init__(
        self,
        in_features: int,
        d_model: int,
        num_heads: int,
        window: int,
        open_ratio: float = 0.05,
        leak: float = 0.001,
        periods: tuple[float, float] = (1.0, 20.0),
        **options: Any,
    ) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        self.open_ratio, self.leak = open_ratio, leak
        self.input = nn.Linear(in_features, 4 * d_model)  # in, forget, out, candidate
        self.recurrent = nn.Parameter(torch.empty(4 * d_model, d_model))
        nn.init.uniform_(self.recurrent, -1 / math.sqrt(d_model), 1 / math.sqrt(d_model))
        self.log_tau = nn.Parameter(torch.empty(d_model).uniform_(*(math.log(p) for p in periods)))
        self.shift = nn.Parameter(torch.rand(d_model) * self.log_tau.detach().exp())

    def project(self, x: Tensor) -> Tensor:
        """See ``WindowedLayer.project``."""
        u: Tensor = self.input(x)
        return u

    def openness(self, t: Tensor) -> Tensor:
        """k [..., d_model] at times t [...] in typical gaps."""
        cycles = (t.unsqueeze(-1) - self.shift) / self.log_tau.exp()
        phase = cycles - cycles.detach().floor()
        rising = 2 * phase / self.open_ratio
        leak = self.leak if self.training else 0.0
        return torch.where(phase < self.open_ratio, torch.minimum(rising, 2 - rising), leak * phase)

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        """See ``WindowedLayer.scan``."""
        recurrent = self.recurrent.t()
        c = h = u.new_zeros(len(u), self.d_model)
        states = []
        for u_i, k in zip(u.unbind(1), self.openness(t).unbind(1), strict=True):
            mixed = torch.addmm(u_i, h, recurrent)
            gate, forget, out = mixed[:, : 3 * self.d_model].sigmoid().chunk(3, dim=1)
            proposed = torch.addcmul(forget * c, gate, mixed[:, 3 * self.d_model :].tanh())
            c, h = torch.lerp(c, proposed, k), torch.lerp(h, out * proposed.tanh(), k)
            states.append(h)
        return torch.stack(states, dim=1)
