"""Who may see whom, and queries taken a few at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nacdrive.nac.validation import tracing

SCORES_AT_ONCE = 1 << 19  # scores held at a time: 2 MiB in float32, which caches hold


@dataclass(frozen=True)
class AttentionMask:
    """Which key each query may see."""

    position: Tensor  # [B, Tq] index of each query among the keys (used by causal)
    padding: Tensor | None  # [B, Tk], True = not a key
    causal: bool  # only keys at or before the query
    window: int | None  # with causal, only so many of those, the last

    @property
    def open(self) -> bool:
        """True if every query sees every key."""
        return self.padding is None and not self.causal

    def rows(self, first: int, last: int) -> AttentionMask:
        """The mask of queries ``first`` to ``last`` of each sequence."""
        return AttentionMask(self.position[:, first:last], self.padding, self.causal, self.window)

    def part(self, first: int, last: int, keys: int) -> AttentionMask:
        """The mask of queries ``first`` to ``last`` and the first ``keys`` keys, without a window."""
        padding = None if self.padding is None else self.padding[:, :keys]
        return AttentionMask(self.position[:, first:last], padding, self.causal, None)

    def allowed(self, keys: Tensor) -> Tensor:
        """True where query i of sequence b may see key ``keys[..., b, i, :]``; ``keys`` is ``[..., B, Tq, n]``."""
        sequence = torch.arange(self.position.shape[0], device=keys.device).view(-1, 1, 1)
        return self._allowed(keys, self.position.unsqueeze(-1), sequence)

    def allowed_of(self, queries: Tensor, keys: Tensor) -> Tensor:
        """The same for some ``queries [Q]`` of all sequences laid end to end; ``keys`` is ``[..., Q, n]``."""
        sequence = torch.div(queries, self.position.shape[1], rounding_mode="floor")
        return self._allowed(keys, self.position.reshape(-1)[queries].unsqueeze(-1), sequence.unsqueeze(-1))

    def _allowed(self, keys: Tensor, position: Tensor, sequence: Tensor) -> Tensor:
        seen = keys >= 0
        if self.causal:
            seen = seen & (keys <= position)
            if self.window is not None:
                seen = seen & (keys > position - self.window)
        if self.padding is not None:
            seen = seen & ~self.padding.reshape(-1)[keys.clamp(min=0) + sequence * self.padding.shape[1]]
        return seen


def in_rows(
    q: Tensor, mask: AttentionMask, scores_per_query: int, choose: Callable[[Tensor, AttentionMask], Tensor]
) -> Tensor:
    """``choose`` applied to as many queries at a time as keep the scores within ``SCORES_AT_ONCE``."""
    heads, batch, queries, _ = q.shape
    if tracing():
        return choose(q, mask)
    step = max(1, SCORES_AT_ONCE // (heads * batch * scores_per_query))
    if step >= queries:
        return choose(q, mask)
    return torch.cat([choose(q[:, :, i : i + step], mask.rows(i, i + step)) for i in range(0, queries, step)], dim=2)
