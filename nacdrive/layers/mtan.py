"""Multi-time attention (Shukla & Marlin, 2021, equations 1 to 4): attention between embeddings of times alone."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nacdrive.layers.base import check_heads
from nacdrive.layers.windowed import WindowedLayer
from nacdrive.nac.validation import tracing


class MTANLayer(WindowedLayer):
    """y_i = sum_h W_h sum_{j <= i} softmax_j(q_h(phi(t_i)) . k_h(phi(t_j)) / sqrt(d)) x_j + b.

    phi(t) holds one linear feature of time and d_model - 1 sines with learnable frequency and phase. The original
    asks at fixed reference times, the future included, and masks missing channels; here every step asks at its own
    time over its past, and a step is observed as a whole.
    """

    time_sense = "clock"

    def build(self) -> None:
        d_model = self.d_model
        check_heads(d_model, self.num_heads)
        self.frequency = nn.Parameter(torch.empty(d_model).uniform_(-1.0, 1.0))
        self.phase = nn.Parameter(torch.empty(d_model).uniform_(-math.pi, math.pi))
        with torch.no_grad():
            self.frequency[0] *= 0.01  # the linear feature has no bound
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.out = nn.Linear(self.num_heads * self.in_features, d_model)

    def embed(self, t: Tensor) -> Tensor:
        """[...] typical gaps -> [..., d_model]."""
        angle = t.unsqueeze(-1) * self.frequency + self.phase
        return torch.cat([angle[..., :1], angle[..., 1:].sin()], dim=-1)

    def weights(self, t: Tensor) -> Tensor:
        """Attention [N, heads, L, L] of times t [N, L]; [1, heads, L, L] if all rows of t are the same."""
        if len(t) == 1 or (not tracing() and bool((t == t[:1]).all())):
            t = t[:1]
        L = t.shape[1]
        phi = self.embed(t)
        q, k = (f(phi).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f in (self.query, self.key))
        future = t.new_full((L, L), -torch.inf).triu(1)
        return (torch.matmul(q / math.sqrt(q.shape[-1]), k.transpose(-1, -2)) + future).softmax(dim=-1)

    def project(self, x: Tensor) -> Tensor:
        """See ``WindowedLayer.project``: W_h x for all heads at once where that is narrower than x for every head."""
        if self.in_features <= self.d_model:
            return x
        return nn.functional.linear(
            x, self.out.weight.view(self.d_model, self.num_heads, -1).transpose(0, 1).flatten(0, 1)
        )

    def scan(self, u: Tensor, dt: Tensor, t: Tensor) -> Tensor:
        weights = self.weights(t)
        if self.in_features <= self.d_model:
            y: Tensor = self.out((weights @ u.unsqueeze(1)).transpose(1, 2).flatten(2))
            return y
        per_head = u.view(*u.shape[:-1], self.num_heads, self.d_model).transpose(1, 2)
        return (weights @ per_head).sum(dim=1) + self.out.bias
