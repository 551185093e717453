"""Deep state space model (Rangapuram et al., 2018) as a representation: an LSTM sets a linear system at each step.

Its recurrence h_i = a_i h_{i-1} + b_i, elementwise, has no autograd graph that grows with the steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.layers.windowed import WindowedLayer

# Below this many elements a step, calling costs more than computing, and log2(steps) calls on everything are faster.
WIDE = 512


class DeepStateLayer(WindowedLayer):
    """l_i = F_i l_{i-1} + g_i e_i,  y_i = a_i l_i + b_i, all diagonal, with d_model states.

    An LSTM over the inputs gives F_i = exp(-rate_i dt_i), g_i, a_i and b_i of every step. The original forecasts a
    single series and takes e_i as noise to be filtered out; as a layer, it takes e_i = W x_i instead, and forgets over
    the real gap.
    """

    time_sense = "gaps"

    def build(self) -> None:
        self.lstm = nn.LSTM(self.in_features, self.d_model, batch_first=True)
        self.system = nn.Linear(self.d_model, 4 * self.d_model)  # rate, gain, readout, offset
        self.innovation = nn.Linear(self.in_features, self.d_model, bias=False)

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        rate, gain, readout, offset = self.system(self.lstm(u)[0]).chunk(4, dim=2)
        decay = torch.exp(-nn.functional.softplus(rate) * dt.unsqueeze(-1))
        driven = gain * self.innovation(u)
        level = linear_scan(decay.transpose(0, 1), driven.transpose(0, 1)).transpose(0, 1)
        return torch.addcmul(offset, readout, level)


def linear_scan(a: Tensor, b: Tensor) -> Tensor:
    """h [L, ...] of h_i = a_i h_{i-1} + b_i with h_{-1} = 0; a and b are alike, [L, ...], real or complex."""
    h: Tensor = _LinearScan.apply(a, b)  # type: ignore[no-untyped-call]
    return h


def sequential(a: Tensor, b: Tensor) -> Tensor:
    """One fused operation per step."""
    h = b.clone(memory_format=torch.contiguous_format)
    steps = h.unbind(0)
    for i, a_i in enumerate(a.unbind(0)[1:]):
        steps[i + 1].addcmul_(a_i, steps[i])
    return h


def parallel(a: Tensor, b: Tensor) -> Tensor:
    """log2(L) operations over all steps (Hillis & Steele, 1986), each joining spans twice as long.

    Products of decays underflow to 0 where they should; nothing grows, as a quotient of cumulative products would.
    """
    a, h = a.clone(), b.clone()
    span = 1
    while span < len(h):
        joined = torch.addcmul(h[span:], a[span:], h[:-span])
        a[span:] = a[span:] * a[:-span]
        h[span:] = joined
        span *= 2
    return h


def _run(a: Tensor, b: Tensor) -> Tensor:
    return sequential(a, b) if a.device.type == "cpu" and a[0].numel() >= WIDE else parallel(a, b)


class _LinearScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        h = _run(a, b)
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, h = ctx.saved_tensors
        # The gradient of b obeys the same recurrence, backwards in time.
        later = torch.cat([torch.zeros_like(a[:1]), a.conj().resolve_conj()[1:].flip(0)])
        grad_b = _run(later, grad.flip(0)).flip(0)
        before = torch.cat([torch.zeros_like(h[:1]), h[:-1]])
        return grad_b * before.conj(), grad_b
