"""Linear state spaces over real gaps: S4, and DeepState.

The recurrences of both, elementwise, have no autograd graph that grows with the steps.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from nacdrive.layers.windowed import InputLayer, WindowedLayer
from nacdrive.nac.validation import tracing, whole

EVEN = 1e-4  # gaps that differ from 1 by less count as even


class S4Layer(InputLayer):
    """Diagonal structured state space (S4D, Gu et al., 2022), stepped exactly over real gaps (S5, Smith et al., 2023).

    One linear system per channel, of ``state`` / 2 complex modes, then GELU and a gated mixing layer (GLU).

    dx/ds = A x + B u,  y = 2 Re(C x) + D u,  held constant over each gap (zero-order hold):
    x_i = exp(A delta dt_i) x_{i-1} + A^-1 (exp(A delta dt_i) - 1) u_i.  Even steps: a convolution by FFT.

    The cited S4 adds a low-rank correction to A; this is the diagonal form that became the standard, with the
    initialisation S4D-Lin (A = -1/2 + i pi n) and B = 1.
    """

    time_sense = "gaps"

    def build(self, *, state: int = 64) -> None:
        whole(state >= 2, "state", state, "2 or more")
        d_model = self.d_model
        modes = state // 2
        self.input = nn.Linear(self.in_features, d_model)
        self.log_decay = nn.Parameter(torch.full((d_model, modes), math.log(0.5)))
        self.frequency = nn.Parameter(math.pi * torch.arange(modes).repeat(d_model, 1))
        self.log_delta = nn.Parameter(torch.empty(d_model).uniform_(math.log(1e-3), math.log(1e-1)))
        # Real and imaginary part, so that every optimizer and every file format can hold it.
        self.C = nn.Parameter(torch.randn(d_model, modes, 2) * math.sqrt(0.5))
        self.D, self.out = nn.Parameter(torch.randn(d_model)), nn.Linear(d_model, 2 * d_model)

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        """See ``SequenceLayer.optimizer_options``; as the authors of S4 advise."""
        return {name: {"lr": 1e-3, "weight_decay": 0.0} for name in ("log_decay", "frequency", "log_delta")}

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        wide, dt = self._wide(u), self._wide(dt)
        if tracing() or dt.requires_grad:  # the others give times no gradient
            y = self.recur_real(wide, dt)
        else:
            y = self.convolve(wide) if bool(((dt - 1).abs() < EVEN).all()) else self.recur(wide, dt)
        return nn.functional.glu(self.out(nn.functional.gelu((y + self.D * wide).to(u.dtype))))

    def _system(self) -> tuple[Tensor, Tensor]:
        """A delta and C / A, [d_model, modes] complex."""
        decay, frequency, delta, C = map(self._wide, (self.log_decay, self.frequency, self.log_delta, self.C))
        A = torch.complex(-decay.exp(), frequency)
        return A * delta.exp().unsqueeze(-1), 2 * torch.view_as_complex(C) / A

    @staticmethod
    def _wide(x: Tensor) -> Tensor:
        """At least in single precision: there are no complex numbers of less."""
        return x.to(torch.promote_types(x.dtype, torch.float32))

    def convolve(self, u: Tensor) -> Tensor:
        """Steps of one gap each: u [N, L, d_model] -> y of the same shape."""
        L = u.shape[1]
        rate, readout = self._system()
        powers = torch.exp(rate.unsqueeze(-1) * torch.arange(L, device=u.device))
        kernel = torch.einsum("dn,dnl->ld", readout * torch.expm1(rate), powers).real
        spectrum = torch.fft.rfft(u, 2 * L, dim=1) * torch.fft.rfft(kernel, 2 * L, dim=0)
        return cast(Tensor, torch.fft.irfft(spectrum, 2 * L, dim=1)[:, :L])

    def recur(self, u: Tensor, dt: Tensor) -> Tensor:
        """Steps of gaps dt [N, L]: u [N, L, d_model] -> y of the same shape."""
        rate, readout = self._system()
        y: Tensor = _Recurrence.apply(u.transpose(0, 1), dt.t(), rate, readout)  # type: ignore[no-untyped-call]
        return y.transpose(0, 1)

    def recur_real(self, u: Tensor, dt: Tensor) -> Tensor:
        """``recur`` in plain real operations, which graphs for other runtimes can hold."""
        rate, readout = self._system()
        (a, b), (c, d) = (torch.view_as_real(s).unbind(-1) for s in (rate, readout))
        x = y = u.new_zeros(len(u), *a.shape)
        outputs = []
        for u_i, gap in zip(u.unsqueeze(-1).unbind(1), dt[..., None, None].unbind(1), strict=True):
            decay, angle = (a * gap).exp(), b * gap
            real, imaginary = decay * angle.cos(), decay * angle.sin()
            x, y = (x + u_i) * real - y * imaginary - u_i, (x + u_i) * imaginary + y * real
            outputs.append((x * c - y * d).sum(-1))
        return torch.stack(outputs, dim=1)


class _Recurrence(torch.autograd.Function):
    """z_i = e_i z_{i-1} + (e_i - 1) u_i with e_i = exp(rate gap_i),  y_i = Re(readout . z_i).

    u [L, N, d], gap [L, N] (no gradient), rate and readout [d, modes] complex -> y [L, N, d]. Step by step, so that
    what is worked on stays in the cache; autograd would make four times as many passes over it. Keeps all states.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, gap: Tensor, rate: Tensor, readout: Tensor) -> Tensor:
        z = rate.new_empty((len(u) + 1, u.shape[1], *rate.shape))
        z[0] = 0
        weight = torch.view_as_real(readout.conj().resolve_conj())
        y = torch.empty_like(u, memory_format=torch.contiguous_format)
        for i, u_i in enumerate(u.unsqueeze(-1).unbind(0)):
            torch.mul(z[i] + u_i, _decay(rate, gap[i]), out=z[i + 1]).sub_(u_i)
            torch.sum(torch.view_as_real(z[i + 1]) * weight, dim=(-2, -1), out=y[i])
        ctx.save_for_backward(u, gap, rate, readout, z)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
        if torch.is_grad_enabled():
            raise RuntimeError("s4: gradients of gradients are not computed")
        u, gap, rate, readout, z = ctx.saved_tensors
        grad_u = torch.empty_like(u, memory_format=torch.contiguous_format)
        grad_rate, grad_readout = torch.zeros_like(rate), torch.zeros_like(rate)
        turned = readout.conj().resolve_conj()
        grad_z = torch.zeros_like(z[0])
        for i in range(len(u) - 1, -1, -1):
            g, u_i = grad[i].unsqueeze(-1), u[i].unsqueeze(-1)
            grad_readout += (z[i + 1] * g).sum(dim=0)
            grad_z = torch.addcmul(grad_z, turned, g.to(turned.dtype))
            before = grad_z * _decay(rate.conj().resolve_conj(), gap[i])
            grad_u[i] = (before - grad_z).real.sum(dim=-1)
            grad_rate += (before * (z[i] + u_i).conj()).mul_(gap[i][:, None, None]).sum(dim=0)
            grad_z = before
        return grad_u, None, grad_rate, grad_readout.conj()


def _decay(rate: Tensor, gap: Tensor) -> Tensor:
    """exp(rate gap), [N, d, modes]."""
    gap = gap[:, None, None]
    return torch.polar((rate.real * gap).exp_(), rate.imag * gap)


# Below this many elements a step, calling costs more than computing, and log2(steps) calls on everything are faster.
WIDE = 512


class DeepStateLayer(WindowedLayer):
    """Deep state space model (Rangapuram et al., 2018) as a representation: an LSTM sets a linear system at each step.

    l_i = F_i l_{i-1} + g_i e_i,  y_i = a_i l_i + b_i, all diagonal, with d_model states.

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
        level = linear_scan(decay.transpose(0, 1), (gain * self.innovation(u)).transpose(0, 1)).transpose(0, 1)
        return torch.addcmul(offset, readout, level)


def linear_scan(a: Tensor, b: Tensor) -> Tensor:
    """h [L, ...] of h_i = a_i h_{i-1} + b_i with h_{-1} = 0; a and b are alike, [L, ...], real or complex."""
    return cast(Tensor, _LinearScan.apply(a, b))  # type: ignore[no-untyped-call]


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
        grad_b = _run(torch.cat([torch.zeros_like(a[:1]), a.conj().resolve_conj()[1:].flip(0)]), grad.flip(0)).flip(0)
        return grad_b * torch.cat([torch.zeros_like(h[:1]), h[:-1]]).conj(), grad_b
