"""Diagonal structured state space (S4D, Gu et al., 2022), stepped exactly over real gaps (S5, Smith et al., 2023)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nacdrive.sequence.linear_scan import linear_scan
from nacdrive.sequence.windowed import WindowedLayer

EVEN = 1e-4  # gaps that differ from 1 by less count as even
CHUNK = 2**19  # complex states that are held at once between irregular steps


class S4Layer(WindowedLayer):
    """One linear system per channel, of ``state`` / 2 complex modes, then GELU and a mixing layer.

    dx/ds = A x + B u,  y = 2 Re(C x) + D u,  held constant over each gap (zero-order hold):
    x_i = exp(A delta dt_i) x_{i-1} + A^-1 (exp(A delta dt_i) - 1) u_i.  Even steps: a convolution by FFT.

    The cited S4 adds a low-rank correction to A; this is the diagonal form that became the standard, with the
    initialisation S4D-Lin (A = -1/2 + i pi n) and B = 1.
    """

    time_sense = "gaps"

    def __init__(
        self, in_features: int, d_model: int, num_heads: int, window: int, state: int = 64, **options: Any
    ) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        modes = state // 2
        self.input = nn.Linear(in_features, d_model)
        self.log_decay = nn.Parameter(torch.full((d_model, modes), math.log(0.5)))
        self.frequency = nn.Parameter(math.pi * torch.arange(modes).float().repeat(d_model, 1))
        self.log_delta = nn.Parameter(torch.empty(d_model).uniform_(math.log(1e-3), math.log(1e-1)))
        # Real and imaginary part, so that every optimizer and every file format can hold it.
        self.C = nn.Parameter(torch.randn(d_model, modes, 2) * math.sqrt(0.5))
        self.D = nn.Parameter(torch.randn(d_model))
        self.out = nn.Linear(d_model, d_model)

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        """See ``SequenceLayer.optimizer_options``; as the authors of S4 advise."""
        return {name: {"lr": 1e-3, "weight_decay": 0.0} for name in ("log_decay", "frequency", "log_delta")}

    def project(self, x: Tensor) -> Tensor:
        """See ``WindowedLayer.project``."""
        u: Tensor = self.input(x)
        return u

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        """See ``WindowedLayer.scan``."""
        even = bool(((dt - 1).abs() < EVEN).all())
        y = self.convolve(u) if even else self.recur(u, dt)
        mixed: Tensor = self.out(nn.functional.gelu(y + self.D * u))
        return mixed

    def _system(self) -> tuple[Tensor, Tensor]:
        """A delta and C / A, [d_model, modes] complex."""
        A = torch.complex(-self.log_decay.exp(), self.frequency)
        return A * self.log_delta.exp().unsqueeze(-1), 2 * torch.view_as_complex(self.C) / A

    def convolve(self, u: Tensor) -> Tensor:
        """Steps of one gap each: u [N, L, d_model] -> y of the same shape."""
        L = u.shape[1]
        rate, readout = self._system()
        powers = torch.exp(rate.unsqueeze(-1) * torch.arange(L, device=u.device))
        kernel = torch.einsum("dn,dnl->ld", readout * torch.expm1(rate), powers).real
        spectrum = torch.fft.rfft(u, 2 * L, dim=1) * torch.fft.rfft(kernel, 2 * L, dim=0)
        y: Tensor = torch.fft.irfft(spectrum, 2 * L, dim=1)[:, :L]
        return y

    def recur(self, u: Tensor, dt: Tensor) -> Tensor:
        """Steps of gaps dt [N, L]: u [N, L, d_model] -> y of the same shape."""
        rate, readout = self._system()
        state = torch.zeros((len(u), *rate.shape), dtype=rate.dtype, device=u.device)
        steps = max(1, CHUNK // state.numel())
        outputs = []
        for u_c, dt_c in zip(torch.split(u, steps, 1), torch.split(dt, steps, 1), strict=True):
            # States are computed again on the way back: kept, they would take 2 * modes times the memory of u.
            y, state = checkpoint(_recur_chunk, u_c, dt_c, state, rate, readout, use_reentrant=False)
            outputs.append(y)
        return torch.cat(outputs, dim=1)


def _recur_chunk(u: Tensor, dt: Tensor, state: Tensor, rate: Tensor, readout: Tensor) -> tuple[Tensor, Tensor]:
    """z = A x over some steps from ``state`` [N, d, modes]: y [N, steps, d] and the last z."""
    gap = dt.t()[..., None, None]
    decay = torch.polar((rate.real * gap).exp(), rate.imag * gap)
    drive = (decay - 1) * u.transpose(0, 1).unsqueeze(-1)
    drive = torch.cat([torch.addcmul(drive[:1], decay[:1], state), drive[1:]])
    z = linear_scan(decay, drive)
    y = torch.einsum("lbdn,dn->bld", z, readout).real
    return y, z[-1]
