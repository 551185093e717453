"""Liquid time-constant network (Hasani et al., 2021), as ``LTCCell`` of the ncps package with full wiring."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import softplus

from nacdrive.layers.windowed import WindowedLayer, unfolds_of
from nacdrive.nac.wiring import Wiring

CHUNK = 2**18  # synapses times samples that are computed at once, to stay in the cache


class LTCLayer(WindowedLayer):
    """C dv/ds = g (v_l - v) + sum_j w_j sigmoid(sigma_j (v_j - mu_j)) (E_j - v) over all neurons and inputs j.

    Semi-implicit Euler, ``unfolds`` steps over the gap before each step; written so that a gap of 0 changes nothing:
    v <- (C v + ds (g v_l + sum w E s)) / (C + ds (g + sum w s)). Weights, C and g are positive by softplus.
    """

    time_sense = "gaps"

    def build(self, *, unfolds: int = 6, wiring: Wiring | None = None) -> None:
        """``wiring``: which synapses exist, with ``d_model`` motor neurons; all of ``d_model`` neurons by default."""
        in_features, d_model = self.in_features, self.d_model
        self.unfolds = unfolds_of(unfolds)
        self.units = d_model if wiring is None else wiring.units
        self.input_weight = nn.Parameter(torch.ones(in_features))
        self.input_bias = nn.Parameter(torch.zeros(in_features))
        self.sensory = Synapses(in_features, self.units, None if wiring is None else wiring.sensory_adjacency)
        self.recurrent = Synapses(self.units, self.units, None if wiring is None else wiring.adjacency)
        self.leak = nn.Parameter(torch.empty(self.units).uniform_(0.001, 1.0))
        self.resting = nn.Parameter(torch.empty(self.units).uniform_(-0.2, 0.2))
        self.capacity = nn.Parameter(torch.empty(self.units).uniform_(0.4, 0.6))
        self.output_weight, self.output_bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def project(self, x: Tensor) -> Tensor:
        """Leak and sensory currents, which a gap does not change: [..., 2 * units], numerator and denominator."""
        inputs = torch.addcmul(self.input_bias, x, self.input_weight)
        leak = softplus(self.leak)
        fixed = torch.stack([leak * self.resting, leak])
        return cast(Tensor, (self.sensory(inputs.flatten(0, -2)) + fixed).reshape(*x.shape[:-1], -1))

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        u = u.view(*u.shape[:2], 2, self.units)
        ds, capacity = (dt / self.unfolds)[..., None, None], softplus(self.capacity)
        parameters = self.recurrent.parameters_of_currents()
        v, states = u.new_zeros(len(u), self.units), []
        for u_i, ds_i in zip(u.unbind(1), ds.unbind(1), strict=True):
            for _ in range(self.unfolds):
                above, below = (ds_i * (u_i + currents(v, *parameters))).unbind(1)
                v = torch.addcmul(above, capacity, v) / (capacity + below)
            states.append(v)
        return torch.addcmul(self.output_bias, torch.stack(states, dim=1)[..., : self.d_model], self.output_weight)


class Synapses(nn.Module):
    """Synapses from sources to targets: weight, slope sigma, threshold mu and reversal potential E.

    ``adjacency [sources, targets]`` in -1, 0, 1 says which there are and begins E; None: all, of random sign.
    """

    mask: Tensor

    def __init__(self, sources: int, targets: int, adjacency: NDArray[np.int32] | None = None) -> None:
        super().__init__()
        shape = (targets, sources)
        self.weight = nn.Parameter(torch.empty(shape).uniform_(0.001, 1.0))
        self.sigma = nn.Parameter(torch.empty(shape).uniform_(3.0, 8.0))
        self.mu = nn.Parameter(torch.empty(shape).uniform_(0.3, 0.8))
        self.sparse = adjacency is not None
        if adjacency is None:
            # One synapse in three inhibits, as in ncps.
            self.reversal = nn.Parameter(torch.where(torch.rand(shape) < 1 / 3, -1.0, 1.0))
        else:
            sign = torch.from_numpy(adjacency.T.copy()).to(self.weight)
            self.reversal = nn.Parameter(sign)
            self.register_buffer("mask", sign != 0)

    def parameters_of_currents(self) -> tuple[Tensor, Tensor, Tensor]:
        """sigma, -sigma mu, and (w E, w) as [targets, sources, 2]."""
        weight = softplus(self.weight)
        if self.sparse:
            weight = weight * self.mask
        return self.sigma, -self.sigma * self.mu, torch.stack([weight * self.reversal, weight], dim=2)

    def forward(self, v: Tensor) -> Tensor:
        """Potentials v [N, sources] -> sum w E s and sum w s, [N, 2, targets]."""
        return currents(v, *self.parameters_of_currents())


def currents(v: Tensor, sigma: Tensor, shift: Tensor, weight: Tensor) -> Tensor:
    """Potentials v [N, sources] -> sum_j W_ijk sigmoid(sigma_ij v_j + shift_ij), [N, k, targets]."""
    return cast(Tensor, _Currents.apply(v, sigma, shift, weight))  # type: ignore[no-untyped-call]


class _Currents(torch.autograd.Function):
    """``currents``, forming the sigmoids again on the way back: they would be all of the memory."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, sigma: Tensor, shift: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(v, sigma, shift, weight)
        parts = [torch.bmm(_open(part, sigma, shift), weight) for part in _chunks(v, sigma)]
        return torch.cat(parts, dim=1).permute(1, 2, 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        v, sigma, shift, weight = ctx.saved_tensors
        grad_v, grad_sigma = torch.empty_like(v), torch.zeros_like(sigma)
        grad_shift, grad_weight = torch.zeros_like(shift), torch.zeros_like(weight)
        back = weight.transpose(1, 2).contiguous()
        for part, grad_y, grad_part in zip(*(_chunks(x, sigma) for x in (v, grad, grad_v)), strict=True):
            g = grad_y.permute(2, 0, 1).contiguous()
            opened = _open(part, sigma, shift)
            grad_weight += torch.bmm(opened.transpose(1, 2), g)
            grad_z = torch.ops.aten.sigmoid_backward(torch.bmm(g, back), opened)
            grad_shift += grad_z.sum(dim=1)
            torch.mul(grad_z, part, out=opened)
            grad_sigma += opened.sum(dim=1)
            grad_part.copy_(grad_z.mul_(sigma.unsqueeze(1)).sum(dim=0))
        return grad_v, grad_sigma, grad_shift, grad_weight


def _chunks(v: Tensor, sigma: Tensor) -> tuple[Tensor, ...]:
    return torch.split(v, max(1, CHUNK // sigma.numel()))


def _open(v: Tensor, sigma: Tensor, shift: Tensor) -> Tensor:
    """[targets, N, sources]"""
    return torch.addcmul(shift.unsqueeze(1), v, sigma.unsqueeze(1)).sigmoid_()
