"""Gated recurrent unit as an ODE (De Brouwer et al., 2019, equation 3, with the input in its gates)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nacdrive.layers.windowed import InputLayer


class GRUODELayer(InputLayer):
    """dh/ds = (1 - z)(g - h) over the gap before step i, with the gates of a GRU for the input x_i.

    r, z = sigmoid(W x_i + U h + b),  g = tanh(W' x_i + U' (r h) + b').  Solved in ``unfolds`` steps of exponential
    Euler, h <- g + (h - g) exp(-(1 - z) dt / unfolds): exact where z and g stand still, stable for every gap.
    """

    time_sense = "gaps"

    def build(self, *, unfolds: int = 4) -> None:
        d_model = self.d_model
        self.unfolds = unfolds
        self.input = nn.Linear(self.in_features, 3 * d_model)  # r, 1 - z, g
        self.gates = nn.Parameter(torch.empty(2 * d_model, d_model))
        self.candidate = nn.Parameter(torch.empty(d_model, d_model))
        for weight in (self.gates, self.candidate):
            nn.init.uniform_(weight, -1 / math.sqrt(d_model), 1 / math.sqrt(d_model))

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        gates, candidate = self.gates.t(), self.candidate.t()
        for_gates, for_candidate = torch.split(u, [2 * self.d_model, self.d_model], 2)
        h = u.new_zeros(len(u), self.d_model)
        states = []
        steps = (for_gates.unbind(1), for_candidate.unbind(1), (-dt / self.unfolds).unsqueeze(-1).unbind(1))
        for gates_i, candidate_i, minus_ds in zip(*steps, strict=True):
            for _ in range(self.unfolds):
                reset, rate = torch.addmm(gates_i, h, gates).sigmoid().chunk(2, dim=1)
                g = torch.addmm(candidate_i, reset * h, candidate).tanh()
                h = torch.lerp(g, h, (rate * minus_ds).exp())
            states.append(h)
        return torch.stack(states, dim=1)
