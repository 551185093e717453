"""Recurrences whose state moves over the gaps: CT-RNN, alone and behind an LSTM, and GRU-ODE; or opens by the clock."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nacdrive.layers.windowed import InputLayer, unfolds_of
from nacdrive.nac.validation import require


class Relaxation(nn.Module):
    """dh/ds = s tanh(z + U h) - h / tau over a gap, ``unfolds`` Euler steps; s and tau are one number per unit.

    A step is never longer than tau: explicit Euler oscillates beyond it and diverges beyond 2 tau, while a step of tau
    lands on the value towards which h decays, which is what a long gap means.
    """

    def __init__(self, units: int, unfolds: int) -> None:
        super().__init__()
        self.unfolds = unfolds_of(unfolds)
        self.recurrent = nn.Parameter(torch.empty(units, units))
        nn.init.orthogonal_(self.recurrent)
        self.scale, self.log_tau = nn.Parameter(torch.ones(units)), nn.Parameter(torch.zeros(units))

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
    """Continuous-time recurrent network (Funahashi & Nakamura, 1993).

    dh/ds = s tanh(W x_i + U h + b) - h / tau over the gap before step i, by explicit Euler.
    """

    time_sense = "gaps"

    def build(self, *, unfolds: int = 5) -> None:
        self.input = nn.Linear(self.in_features, self.d_model)
        self.relaxation = Relaxation(self.d_model, unfolds)

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        h, states = u.new_zeros(len(u), self.d_model), []
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
        self.flow, self.flow_bias = Relaxation(d_model, unfolds), nn.Parameter(torch.zeros(d_model))

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


class GRUODELayer(InputLayer):
    """Gated recurrent unit as an ODE (De Brouwer et al., 2019, equation 3, with the input in its gates).

    dh/ds = (1 - z)(g - h) over the gap before step i, with the gates of a GRU for the input x_i:
    r, z = sigmoid(W x_i + U h + b),  g = tanh(W' x_i + U' (r h) + b').  Solved in ``unfolds`` steps of exponential
    Euler, h <- g + (h - g) exp(-(1 - z) dt / unfolds): exact where z and g stand still, stable for every gap.
    """

    time_sense = "gaps"

    def build(self, *, unfolds: int = 4) -> None:
        d_model = self.d_model
        self.unfolds = unfolds_of(unfolds)
        self.input = nn.Linear(self.in_features, 3 * d_model)  # r, 1 - z, g
        self.gates = nn.Parameter(torch.empty(2 * d_model, d_model))
        self.candidate = nn.Parameter(torch.empty(d_model, d_model))
        for weight in (self.gates, self.candidate):
            nn.init.uniform_(weight, -1 / math.sqrt(d_model), 1 / math.sqrt(d_model))

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        gates, candidate = self.gates.t(), self.candidate.t()
        for_gates, for_candidate = torch.split(u, [2 * self.d_model, self.d_model], 2)
        h, states = u.new_zeros(len(u), self.d_model), []
        steps = (for_gates.unbind(1), for_candidate.unbind(1), (-dt / self.unfolds).unsqueeze(-1).unbind(1))
        for gates_i, candidate_i, minus_ds in zip(*steps, strict=True):
            for _ in range(self.unfolds):
                reset, rate = torch.addmm(gates_i, h, gates).sigmoid().chunk(2, dim=1)
                h = torch.lerp(torch.addmm(candidate_i, reset * h, candidate).tanh(), h, (rate * minus_ds).exp())
            states.append(h)
        return torch.stack(states, dim=1)


class PhasedLSTMLayer(InputLayer):
    """Phased LSTM (Neil et al., 2016, equations 2 to 10): an LSTM whose units open in turn, by the clock.

    c_i = k c' + (1 - k) c_{i-1},  h_i = k h' + (1 - k) h_{i-1}, where c', h' is one step of an LSTM.

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
        require(0 < begin < 1, "open_ratio", begin, "a share between 0 and 1")
        require(0 < min(periods) <= max(periods) < math.inf, "periods", periods, "two typical gaps or more above 0")
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
