"""ContiFormer (Chen et al., 2023): keys and values that flow by an ODE, and attention that integrates over time."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nacdrive.sequence.windowed import WindowedLayer

INSTANT = 1e-2  # typical gaps; over spans much shorter than this, the integral is the score of the moment


class ContiFormerLayer(WindowedLayer):
    """y_i = sum_{j <= i} softmax_j(a_ij / sqrt(d)) v_j(t_i),  a_ij = mean of q(s) . k_j(s) over s from t_j to t_i.

    From its own step on, each pair (k_j, v_j) follows d(k, v)/ds = P tanh(Q (k, v) + b) + c, by one step of
    Runge-Kutta 4 per gap. The integral is the trapezoidal rule on the steps in between, so that it knows no future;
    the original interpolates q by splines through all steps. Its cost grows like T^2 d^2 / heads: for short
    sequences; ``contiformer-linear`` is the variant for long ones.
    """

    time_sense = "gaps"

    def __init__(self, in_features: int, d_model: int, num_heads: int, window: int, **options: Any) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        if d_model % num_heads:
            raise ValueError(f"d_model {d_model} is not divisible by {num_heads} heads")
        self.qkv = nn.Linear(in_features, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        pair = 2 * d_model // num_heads
        self.inner, self.outer = nn.Linear(pair, pair), nn.Linear(pair, pair)
        with torch.no_grad():
            self.outer.weight *= 0.1  # flows begin slow, so that a long gap does not carry keys far away

    def project(self, x: Tensor) -> Tensor:
        """See ``WindowedLayer.project``."""
        u: Tensor = self.qkv(x)
        return u

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        """See ``WindowedLayer.scan``."""
        N, L, _ = u.shape
        q, k, v = u.view(N, L, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, pairs = q / math.sqrt(q.shape[-1]), torch.cat([k, v], dim=-1)
        flowing, before = pairs[:, :, :0], pairs.new_zeros(N, self.num_heads, 0)
        integral, span, rows = before, before, []
        for i in range(L):
            row = (flowing, pairs[:, :, i : i + 1], q[:, :, i], before, integral, span, dt[:, i, None, None])
            # Every stage of every row would be kept for the way back; so are the rows alone.
            y, flowing, before, integral, span = checkpoint(self._row, *row, use_reentrant=False)
            rows.append(y)
        merged: Tensor = self.out(torch.stack(rows, dim=1).flatten(2))
        return merged

    def flow(self, pairs: Tensor, gap: Tensor) -> Tensor:
        """Pairs [..., 2 d_head] after ``gap`` (broadcast), by one step of Runge-Kutta 4."""
        k1 = self._change(pairs)
        k2 = self._change(pairs + gap / 2 * k1)
        k3 = self._change(pairs + gap / 2 * k2)
        k4 = self._change(pairs + gap * k3)
        return pairs + gap / 6 * (k1 + 2 * (k2 + k3) + k4)

    def _change(self, pairs: Tensor) -> Tensor:
        change: Tensor = self.outer(2 * torch.sigmoid(2 * self.inner(pairs)) - 1)  # tanh, by its faster twin
        return change

    def _row(
        self, flowing: Tensor, new: Tensor, q: Tensor, before: Tensor, integral: Tensor, span: Tensor, gap: Tensor
    ) -> tuple[Tensor, ...]:
        """One query over all i + 1 pairs so far: its output [N, heads, D], pairs, scores, integrals and spans."""
        pairs = torch.cat([self.flow(flowing, gap.unsqueeze(-1)), new], dim=2)
        k, v = pairs.chunk(2, dim=-1)
        scores = (k @ q.unsqueeze(-1)).squeeze(-1)
        grown = integral + gap / 2 * (before + scores[..., :-1])
        integral, span = (nn.functional.pad(s, (0, 1)) for s in (grown, span + gap))
        weights = ((integral + INSTANT * scores) / (span + INSTANT)).softmax(dim=-1)
        return (weights.unsqueeze(-2) @ v).squeeze(-2), pairs, scores, integral, span
