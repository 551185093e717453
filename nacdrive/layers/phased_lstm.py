"""Phased LSTM (Neil et al., 2016, equations 2 to 10): an LSTM whose units open in turn, by the clock."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nacdrive.layers.windowed import InputLayer


class PhasedLSTMLayer(InputLayer):
    """c_i = k c' + (1 - k) c_{i-1},  h_i = k h' + (1 - k) h_{i-1}, where c', h' is one step of an LSTM.

    The openness k of a unit follows its phase p = ((t - shift) mod tau) / tau: 2 p / r while p < r / 2, 2 - 2 p / r
    while p < r, and alpha p after that; alpha is ``leak`` in training and 0 in evaluation. tau, shift and r are
    learned, tau beginning log-uniform in ``periods`` (typical gaps), r at ``open_ratio``. By default both begin so that
    a unit opens within the window: tau between 1 and the window, at most the original's exp(3) = 20; r so that about
    four steps of a window are open, between the original's 0.05 and one half. With the original's numbers and a window
    of 4, as policies have it, four units of five never open and answer zero.
    """

    time_sense = "clock"

    def build(
        self, *, open_ratio: float | None = None, leak: float = 0.001, periods: tuple[float, float] | None = None
    ) -> None:
        d_model, window = self.d_model, self.window
        self.leak = leak
        periods = periods or (1.0, float(min(max(window, 2), 20)))
        begin = min(max(4 / window, 0.05), 0.5) if open_ratio is None else open_ratio
        self.input = nn.Linear(self.in_features, 4 * d_model)  # in, forget, out, candidate
        self.recurrent = nn.Parameter(torch.empty(4 * d_model, d_model))
        nn.init.uniform_(self.recurrent, -1 / math.sqrt(d_model), 1 / math.sqrt(d_model))
        with torch.no_grad():
            self.input.bias[d_model : 2 * d_model] += 2.0  # forget little at first, as the authors' code does
        self.peephole = nn.Parameter(torch.empty(3, d_model).uniform_(-1 / math.sqrt(d_model), 1 / math.sqrt(d_model)))
        self.open_logit = nn.Parameter(torch.full((d_model,), math.log(begin / (1 - begin))))
        self.log_tau = nn.Parameter(torch.empty(d_model).uniform_(*(math.log(p) for p in periods)))
        self.shift = nn.Parameter(torch.rand(d_model) * self.log_tau.detach().exp())

    def openness(self, t: Tensor) -> Tensor:
        """k [..., d_model] at times t [...] in typical gaps."""
        cycles = (t.unsqueeze(-1) - self.shift) / self.log_tau.exp()
        phase = cycles - cycles.detach().floor()
        open_ratio = self.open_logit.sigmoid()
        rising = 2 * phase / open_ratio
        leak = self.leak if self.training else 0.0
        return torch.where(phase < open_ratio, torch.minimum(rising, 2 - rising), leak * phase)

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        recurrent, d = self.recurrent.t(), self.d_model
        inwards, outwards = self.peephole[:2].flatten(), self.peephole[2]
        c = h = u.new_zeros(len(u), d)
        states = []
        for u_i, k in zip(u.unbind(1), self.openness(t).unbind(1), strict=True):
            mixed = torch.addmm(u_i, h, recurrent)
            gate, forget = torch.addcmul(mixed[:, : 2 * d], c.repeat(1, 2), inwards).sigmoid().chunk(2, dim=1)
            proposed = torch.addcmul(forget * c, gate, mixed[:, 3 * d :].tanh())
            out = torch.addcmul(mixed[:, 2 * d : 3 * d], proposed, outwards).sigmoid()
            c, h = torch.lerp(c, proposed, k), torch.lerp(h, out * proposed.tanh(), k)
            states.append(h)
        return torch.stack(states, dim=1)
