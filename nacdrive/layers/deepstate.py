"""Deep state space model (Rangapuram et al., 2018) as a representation: an LSTM sets a linear system at each step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.layers.linear_scan import linear_scan
from nacdrive.layers.windowed import WindowedLayer


class DeepStateLayer(WindowedLayer):
    """l_i = F_i l_{i-1} + g_i e_i,  y_i = a_i l_i + b_i, all diagonal, with d_model states.

    An LSTM over the inputs gives F_i = exp(-rate_i dt_i), g_i, a_i and b_i of every step. The original forecasts a
    single series and takes e_i as noise to be filtered out; as a layer, it takes e_i = W x_i instead, and forgets over
    the real gap.
    """

    time_sense = "gaps"

    def __init__(self, in_features: int, d_model: int, num_heads: int, window: int, **options: Any) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        self.lstm = nn.LSTM(in_features, d_model, batch_first=True)
        self.system = nn.Linear(d_model, 4 * d_model)  # rate, gain, readout, offset
        self.innovation = nn.Linear(in_features, d_model, bias=False)

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        rate, gain, readout, offset = self.system(self.lstm(u)[0]).chunk(4, dim=2)
        decay = torch.exp(-nn.functional.softplus(rate) * dt.unsqueeze(-1))
        driven = gain * self.innovation(u)
        level = linear_scan(decay.transpose(0, 1), driven.transpose(0, 1)).transpose(0, 1)
        return torch.addcmul(offset, readout, level)
