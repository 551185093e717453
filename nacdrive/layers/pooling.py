"""What a whole sequence amounts to, at every step: the last output, the mean, or an attention with learned queries."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nacdrive.layers.base import last_step, visible
from nacdrive.nac.validation import one_of, require

POOLINGS = ("last", "mean", "attention")


class Pooled(NamedTuple):
    """What ``Pooling.step`` remembers: the last steps of the window ``[B, L, d]`` and their scores ``[B, H, L]``."""

    window: int
    x: Tensor | None = None
    scores: Tensor | None = None


class Pooling(nn.Module):
    """Step i becomes sum_j w_ij x_j over the steps i-window+1 .. i that are no padding, and so needs no later step.

    ``mean``: equal weights. ``attention``: softmax_j(s_h . x_j / sqrt(d_head)) of each head's channels, with a learned
    s_h. ``last``: x_i itself. Being causal, all three can be streamed, and a network that reads the last step alone
    gets the pooled sequence.
    """

    def __init__(self, kind: str, d_model: int, num_heads: int, window: int) -> None:
        super().__init__()
        one_of("pooling", kind, POOLINGS)
        require(kind != "attention" or d_model % num_heads == 0, "num_heads", num_heads, f"a divisor of {d_model}")
        self.window = window
        self.heads = num_heads if kind == "attention" else 1
        self.query: nn.Parameter | None = None
        if kind == "attention":
            self.query = nn.Parameter(torch.empty(num_heads, d_model // num_heads))
            nn.init.normal_(self.query, std=0.02)  # nearly the mean at first
        self.idle = kind == "last"

    def scores(self, x: Tensor) -> Tensor:
        """``[B, T, d_model]`` to ``[B, H, T]``; zeros for the mean."""
        if self.query is None:
            return x.new_zeros(x.shape[0], 1, x.shape[1])
        heads = x.view(*x.shape[:2], self.heads, -1)
        return torch.einsum("bthd,hd->bht", heads, self.query / math.sqrt(heads.shape[-1]))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """All steps ``[B, T, d_model]``; rows of padding (``[B, T]``, True) hold no meaning."""
        if self.idle:
            return x
        seen = visible(x.shape[1], self.window, padding, x.device)
        if seen is None:
            seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        weights = self.scores(x).unsqueeze(2).expand(-1, -1, x.shape[1], -1).masked_fill(~seen, -torch.inf).softmax(-1)
        return self._sum(weights, x)

    def last(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """``[B, d_model]``: ``forward`` at the last step that is no padding, without the others."""
        if self.idle:
            return last_step(x, padding)
        position = torch.arange(x.shape[1], device=x.device)
        end = position[-1:] if padding is None else torch.where(padding, -1, position).amax(1).clamp(min=0)
        end = end.expand(len(x)).unsqueeze(1)
        seen = (position <= end) & (position > end - self.window)
        if padding is not None:
            seen = (seen & ~padding) | (position == end)
        weights = self.scores(x).unsqueeze(2).masked_fill(~seen[:, None, None], -torch.inf).softmax(-1)
        return self._sum(weights, x)[:, 0]

    def step(self, x: Tensor, state: Pooled) -> tuple[Tensor, Pooled]:
        if self.idle:
            return x, state
        x, window = x.unsqueeze(1), state.window
        scores = self.scores(x)
        if state.x is not None and state.scores is not None:
            x = torch.cat([state.x, x], 1)[:, -window:]
            scores = torch.cat([state.scores, scores], 2)[:, :, -window:]
        return self._sum(scores.unsqueeze(2).softmax(-1), x)[:, 0], Pooled(window, x, scores)

    def _sum(self, weights: Tensor, x: Tensor) -> Tensor:
        """Weights ``[B, H, Tq, T]`` of values ``[B, T, d_model]``: ``[B, Tq, d_model]``."""
        values = x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)
        return (weights @ values).transpose(1, 2).flatten(2)
