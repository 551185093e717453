"""ContiFormer (Chen et al., 2023) with linear flows, whose trajectories and integrals have a closed matrix form."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from nacdrive.layers.contiformer import INSTANT
from nacdrive.layers.windowed import WindowedLayer
from nacdrive.nac.validation import tracing

BLOCK = 64  # queries that are scored at once, against no key that comes after them all


class ContiFormerLinearLayer(WindowedLayer):
    """``contiformer`` with the flows dk/ds = S k, dv/ds = S' v, S and S' skew-symmetric: pairs of channels rotate.

    Turned back to time 0, q and k have the same product, and the integral of q(s) . k_j(s) from t_j to t_i becomes
    (P_i - P_j) . k_j with the running integral P of q: one matrix product instead of T^2 trajectories.
    """

    time_sense = "gaps"

    def __init__(self, in_features: int, d_model: int, num_heads: int, window: int, **options: Any) -> None:
        super().__init__(in_features, d_model, num_heads, window, **options)
        if d_model % num_heads or d_model < 2 * num_heads:
            raise ValueError(f"d_model {d_model} is not a multiple, from the double on, of its {num_heads} heads")
        self.qkv = nn.Linear(in_features, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        # Radians per typical gap, from a turn in six steps to one in thousands.
        pairs = d_model // num_heads // 2
        self.key_rate = nn.Parameter(torch.logspace(0, -3, pairs).repeat(num_heads, 1))
        self.value_rate = nn.Parameter(torch.logspace(0, -3, pairs).repeat(num_heads, 1))

    def project(self, x: Tensor) -> Tensor:
        u: Tensor = self.qkv(x)
        return u

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        N, L, _ = u.shape
        q, k, v = u.view(N, L, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        s = dt.cumsum(dim=1) - dt[:, :1]
        q, k = (rotate(f, self.key_rate, -s) for f in (q / math.sqrt(q.shape[-1]), k))
        v = rotate(v, self.value_rate, -s)
        asked, keys = integrals(q, k, s)
        rows = []
        for start in range(0, L, BLOCK):
            now, past = slice(start, start + BLOCK), slice(0, start + BLOCK)
            exact = (q[:, :, now] * k[:, :, now]).sum(dim=-1)
            weights = attention(asked[:, :, now], keys[:, :, past], exact, s[:, now], s[:, past])
            rows.append(weights @ v[:, :, past])
        y = rotate(torch.cat(rows, dim=2), self.value_rate, s)
        merged: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return merged


def integrals(q: Tensor, k: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Factors [N, heads, L, D + 1] whose product is the integral of q . k_j from s_j to s_i, plus INSTANT q_i . k_j."""
    trapezoids = (q[:, :, 1:] + q[:, :, :-1]) * (s.diff(dim=1) / 2)[:, None, :, None]
    P = torch.cat([torch.zeros_like(q[:, :, :1]), trapezoids], dim=2).cumsum(dim=2)
    # The product with P_j stands in one more channel.
    asked = torch.cat([P + INSTANT * q, torch.ones_like(q[..., :1])], dim=-1)
    return asked, torch.cat([k, -(P * k).sum(dim=-1, keepdim=True)], dim=-1)


def attention(asked: Tensor, keys: Tensor, exact: Tensor, s: Tensor, s_keys: Tensor) -> Tensor:
    """Weights [N, heads, rows, columns] of the last rows of a sequence; ``exact`` [N, heads, rows] is q_i . k_i."""
    first = s_keys.shape[1] - s.shape[1]
    span = (s.unsqueeze(2) - s_keys.unsqueeze(1)).clamp(min=0.0).unsqueeze(1)
    future = span.new_full(span.shape[-2:], -torch.inf).triu(first + 1)
    logits = torch.addcmul(future, asked @ keys.transpose(-1, -2), 1 / (span + INSTANT))
    # Where a step meets itself, the difference of two integrals would be all rounding.
    if tracing():
        itself = torch.ones_like(future, dtype=torch.bool).triu(first).tril(first)
        logits = torch.where(itself, exact.unsqueeze(-1), logits)
    else:
        logits.diagonal(first, -2, -1).copy_(exact)
    return logits.softmax(dim=-1)


def rotate(x: Tensor, rate: Tensor, s: Tensor) -> Tensor:
    """Turn the channel pairs of x [N, heads, L, D] by rate [heads, D // 2] times s [N, L]; an odd one stays."""
    angle = rate.unsqueeze(1) * s[:, None, :, None]
    cos, sin = angle.cos(), angle.sin()
    pairs = rate.shape[-1]
    a, b, alone = torch.split(x, [pairs, pairs, x.shape[-1] - 2 * pairs], dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos, alone], dim=-1)
