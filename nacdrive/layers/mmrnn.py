"""Mixed-memory recurrent network, or ODE-LSTM (Lechner & Hasani, 2020, algorithm 1)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.layers.ct_rnn import Relaxation
from nacdrive.layers.windowed import InputLayer


class MMRNNLayer(InputLayer):
    """(c_i, h') = LSTM(x_i, c_{i-1}, h_{i-1});  h_i = h' carried over the gap before step i by an ODE.

    The memory c is not touched by the ODE, so gradients pass long gaps. The ODE is that of a CT-RNN without input,
    dh/ds = s tanh(U h + b) - h / tau, whose decay keeps h bounded over any gap.
    """

    time_sense = "gaps"

    def __init__(
        self, in_features: int, d_model: int, num_heads: int, window: int, unfolds: int = 4, **options: Any
    ) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        self.input = nn.Linear(in_features, 4 * d_model)  # in, forget, out, candidate
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
