"""CfC networks, and LTC and CfC with the sparse wiring of Neural Circuit Policies (Lechner et al., 2020), as in ncps.

Unlike there, every sequence of a batch has times of its own.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from nacdrive.layers.ltc import LTCLayer
from nacdrive.layers.windowed import WindowedLayer
from nacdrive.nac.validation import whole
from nacdrive.nac.wiring import DEFAULT_SEED, Wiring, auto_ncp


def wiring_of(in_features: int, d_model: int, units: int | None, sparsity: float, seed: int) -> Wiring:
    """AutoNCP with ``d_model`` motor neurons; by default d_model / 0.6 neurons beside these."""
    return auto_ncp(in_features, units or d_model + max(3, int(d_model / 0.6)), d_model, sparsity, seed)


class LTCNCPLayer(LTCLayer):
    """``LTCLayer`` in which only the synapses of the wiring exist; the output is that of the ``d_model`` motor neurons.

    There are ``units`` neurons in all; ``sparsity`` is the share of absent synapses, 0.1 to 0.9.
    """

    def build(
        self, *, units: int | None = None, sparsity: float = 0.5, seed: int = DEFAULT_SEED, **options: Any
    ) -> None:
        super().build(wiring=wiring_of(self.in_features, self.d_model, units, sparsity, seed), **options)


class CfCLayer(WindowedLayer):
    """Closed-form continuous-time network (Hasani et al., 2022, equation 2), as ``CfCCell`` of the ncps package.

    h_i = tanh(f) (1 - g) + tanh(k) g,  g = sigmoid(a dt + b),  with f, k, a, b linear in a shared backbone.

    The backbone is 1.7159 tanh(0.666 (W x_i + U h_{i-1} + c)) with ``backbone_units`` neurons.
    """

    time_sense = "gaps"

    def build(self, *, backbone_units: int = 128) -> None:
        whole(backbone_units >= 1, "backbone_units", backbone_units, "1 or more")
        in_features, d_model = self.in_features, self.d_model
        joint = nn.Linear(in_features + d_model, backbone_units)
        nn.init.xavier_uniform_(joint.weight)
        self.input = nn.Linear(in_features, backbone_units)
        self.recurrent = nn.Parameter(joint.weight[:, in_features:].detach().clone())
        self.input.weight.data = joint.weight[:, :in_features].detach().clone()
        self.heads = nn.Linear(backbone_units, 4 * d_model)
        for weight in self.heads.weight.chunk(4):
            nn.init.xavier_uniform_(weight)

    def project(self, x: Tensor) -> Tensor:
        return cast(Tensor, 0.666 * self.input(x))

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        recurrent, heads, bias = 0.666 * self.recurrent.t(), 1.7159 * self.heads.weight.t(), self.heads.bias
        h, states = u.new_zeros(len(u), self.d_model), []
        for u_i, dt_i in zip(u.unbind(1), dt.unsqueeze(-1).unbind(1), strict=True):
            mixed = torch.addmm(bias, torch.addmm(u_i, h, recurrent).tanh(), heads)
            f, k = mixed[:, : 2 * self.d_model].tanh().chunk(2, dim=1)
            a, b = mixed[:, 2 * self.d_model :].chunk(2, dim=1)
            h = torch.lerp(f, k, torch.addcmul(b, a, dt_i).sigmoid())
            states.append(h)
        return torch.stack(states, dim=1)


class CfCNCPLayer(WindowedLayer):
    """Three CfC cells in a row, inter, command and motor neurons, joined by the synapses of the wiring.

    Each: h_i = tanh(f) (1 - g) + tanh(k) g, g = sigmoid(a dt + b), with f, k, a, b linear in what the group before
    gives and in h_{i-1}; absent synapses are left out of f and k (``WiredCfCCell`` of ncps). No backbone.
    ``units``, ``sparsity`` and ``seed`` are those of ``LTCNCPLayer``.
    """

    time_sense = "gaps"

    def build(self, *, units: int | None = None, sparsity: float = 0.5, seed: int = DEFAULT_SEED) -> None:
        wiring = wiring_of(self.in_features, self.d_model, units, sparsity, seed)
        groups = [wiring.neurons(group) for group in ("inter", "command", "motor")]
        between = [wiring.adjacency[np.ix_(sources, targets)] for sources, targets in pairwise(groups)]
        blocks = [wiring.sensory_adjacency[:, groups[0]], *between]
        self.cells = nn.ModuleList(_Cell(torch.from_numpy(np.abs(present))) for present in blocks)

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        for cell in self.cells:
            u = cell(u, dt)
        return u


class _Cell(nn.Module):
    """One group of neurons over a whole sequence: a group needs nothing of those behind it."""

    mask: Tensor

    def __init__(self, present: Tensor) -> None:
        """``present``: 0/1 ``[sources, neurons]``."""
        super().__init__()
        sources, self.neurons = present.shape
        self.linear = nn.Linear(sources + self.neurons, 4 * self.neurons)
        for weight in self.linear.weight.chunk(4):
            nn.init.xavier_uniform_(weight)
        present = present.to(self.linear.weight)
        whole = torch.cat([present, torch.ones(self.neurons, self.neurons)])  # of a group all meet all
        free = torch.ones_like(whole)
        self.register_buffer("mask", torch.cat([whole, whole, free, free], 1).T.bool().contiguous())

    def forward(self, x: Tensor, dt: Tensor) -> Tensor:
        """``[N, L, sources]`` and gaps ``[N, L]`` to ``[N, L, neurons]``."""
        weight, sources = self.linear.weight * self.mask, x.shape[2]
        of_input = nn.functional.linear(x, weight[:, :sources], self.linear.bias)
        recurrent = weight[:, sources:].T
        h = x.new_zeros(len(x), self.neurons)
        states = []
        for u_i, dt_i in zip(of_input.unbind(1), dt.unsqueeze(-1).unbind(1), strict=True):
            f, k, a, b = torch.addmm(u_i, h, recurrent).chunk(4, dim=1)
            h = torch.lerp(f.tanh(), k.tanh(), torch.addcmul(b, a, dt_i).sigmoid())
            states.append(h)
        return torch.stack(states, dim=1)
