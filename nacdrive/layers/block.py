"""A stack of residual blocks around any sequence layer, so that layers can be compared inside one network.

Behind the blocks a pooling says what a sequence amounts to, at every step.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from nacdrive.layers.base import SequenceLayer, last_step, visible
from nacdrive.layers.registry import build
from nacdrive.nac.streaming import check_state
from nacdrive.nac.validation import (
    check_dropout,
    check_heads,
    check_step,
    check_times,
    check_tokens,
    one_of,
    require,
    whole,
)

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
        self.window = window
        self.heads = num_heads if kind == "attention" else 1
        self.query: nn.Parameter | None = None
        if kind == "attention":
            check_heads(d_model, num_heads)
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
        return self._sum(self.scores(x).unsqueeze(2).masked_fill(~seen[:, None, None], -torch.inf).softmax(-1), x)[:, 0]

    def step(self, x: Tensor, state: Pooled) -> tuple[Tensor, Pooled]:
        if self.idle:
            return x, state
        x, window = x.unsqueeze(1), state.window
        scores = self.scores(x)
        check_state(state, Pooled, "scores", (len(x), self.heads, -1), scores.dtype, x)
        if state.x is not None and state.scores is not None:
            x = torch.cat([state.x, x], 1)[:, -window:]
            scores = torch.cat([state.scores, scores], 2)[:, :, -window:]
        return self._sum(scores.unsqueeze(2).softmax(-1), x)[:, 0], Pooled(window, x, scores)

    def _sum(self, weights: Tensor, x: Tensor) -> Tensor:
        """Weights ``[B, H, Tq, T]`` of values ``[B, T, d_model]``: ``[B, Tq, d_model]``."""
        return (weights @ x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)).transpose(1, 2).flatten(2)


class SequenceBlock(nn.Module):
    """x + layer(norm(x)), then x + feed-forward(norm(x)), as in Xiong et al. (2020); options of ``StackLayer``."""

    def __init__(self, layer: SequenceLayer, expansion: float, dropout: float) -> None:
        super().__init__()
        width, hidden = layer.d_model, round(expansion * layer.d_model)
        self.norm = nn.LayerNorm(width)
        self.layer, self.dropout = layer, nn.Dropout(dropout)
        self.feed_forward = None
        if hidden:
            self.feed_forward = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width), nn.Dropout(dropout)
            )

    def forward(self, x: Tensor, t: Tensor | None, padding: Tensor | None) -> Tensor:
        return self._rest(x, self.layer(self.norm(x), t, padding))

    def last(self, x: Tensor, t: Tensor | None, padding: Tensor | None) -> Tensor:
        """``[B, d_model]``: ``forward`` at the last step that is no padding."""
        return self._rest(last_step(x, padding), self.layer.last(self.norm(x), t, padding))

    def step(self, x: Tensor, t: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        y, state = self.layer.step(self.norm(x), t, state)
        return self._rest(x, y), state

    def _rest(self, x: Tensor, y: Tensor) -> Tensor:
        x = x + self.dropout(y)
        return x if self.feed_forward is None else x + self.feed_forward(x)


class StackState(NamedTuple):
    """What a stack remembers: how many steps it has seen, the states of its layers, and that of its pooling."""

    seen: int
    layers: tuple[Any, ...]
    pooled: Pooled


class StackLayer(SequenceLayer):
    """``depth`` blocks around layers of one kind, behind a linear map to ``d_model``; a norm and a pooling at the end.

    The layers (and a pooling over steps) share the window among them, so that the stack's output depends on no more
    steps than a single layer's. Sizes and ``gap_s`` are those of ``SequenceLayer``; ``window`` is that of the whole
    stack.
    """

    def build(
        self,
        *,
        layer: str = "nac-lag",
        layer_options: dict[str, Any] | None = None,
        depth: int = 2,
        expansion: float = 2.0,
        dropout: float = 0.0,
        pooling: str = "last",
        time_features: int = 0,
    ) -> None:
        """Make the blocks and the pooling.

        Args:
            layer: registered name of the layers, or ``module:Name``.
            layer_options: their own options.
            depth: number of blocks.
            expansion: hidden width of the feed-forward parts over ``d_model``; 0 leaves them out.
            dropout: of what each part adds, in training.
            pooling: ``last``, ``mean`` or ``attention``: see ``Pooling``.
            time_features: frequencies f, learned, of the sin(f t) and cos(f t) that are appended to the inputs, t in
                units of ``gap_s``: the same sense of time for every kind of layer. 0 for none.
        """
        d_model, num_heads = self.d_model, self.num_heads
        whole(depth >= 1, "depth", depth, "1 block or more")
        require(expansion >= 0, "expansion", expansion, "0 or more")
        check_dropout(dropout)
        whole(time_features >= 0, "time_features", time_features, "0 or more frequencies")
        self.embedding = nn.Linear(self.in_features + 2 * time_features, d_model)
        # As in NAC: from one radian a typical gap to a thousandth of it.
        self.frequencies = nn.Parameter(torch.logspace(0, -3, time_features)) if time_features else None
        options = {"gap_s": self.gap_s, **(layer_options or {})}
        self.parts = depth + (pooling != "last")
        share = self._share(self.window)
        self.blocks = nn.ModuleList(
            SequenceBlock(build(layer, d_model, num_heads, share, **options), expansion, dropout) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(d_model)
        self.pooling = Pooling(pooling, d_model, num_heads, share)
        inner = self._blocks()[0].layer
        self.time_sense = "clock" if time_features else inner.time_sense
        # Deeper, what a step holds depends on what was before it.
        self.past_sense = inner.past_sense if self.parts == 1 and not time_features else None

    def _blocks(self) -> list[SequenceBlock]:
        return cast(list[SequenceBlock], list(self.blocks))

    def _share(self, window: int) -> int:
        """Window of each part: an output then depends on ``parts * (share - 1) + 1`` steps."""
        return (window - 1) // self.parts + 1

    def _embed(self, x: Tensor, t: Tensor | None, padding: Tensor | None, seen: int = 0) -> Tensor:
        """``[B, T, in_features]`` to ``[B, T, d_model]``; without ``t`` the real steps are one gap apart."""
        check_tokens("x", x, self.in_features, self.embedding.weight, padding)
        if padding is not None:
            x = x.masked_fill(padding.unsqueeze(-1), 0.0)  # not even NaN in padding may matter
        if self.frequencies is not None:
            if t is None:
                real = torch.ones(x.shape[:2], device=x.device) if padding is None else (~padding).float()
                gaps = real.cumsum(1) + (seen - 1)
            else:
                t = check_times("t", t, *x.shape[:2])
                gaps = (t if padding is None else t.masked_fill(padding, 0.0)) / self.gap_s
            phase = gaps.unsqueeze(-1) * self.frequencies
            x = torch.cat([x, phase.sin().to(x.dtype), phase.cos().to(x.dtype)], -1)
        return cast(Tensor, self.embedding(x))

    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        x = self._embed(x, t, padding)
        for block in self._blocks():
            x = block(x, t, padding)
        return cast(Tensor, self.pooling(self.norm(x), padding))

    def last(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """See ``SequenceLayer.last``; without a pooling over steps the last block computes its last step alone."""
        x = self._embed(x, t, padding)
        *before, final = self._blocks()
        for block in before:
            x = block(x, t, padding)
        if self.pooling.idle:
            return cast(Tensor, self.norm(final.last(x, t, padding)))
        return self.pooling.last(self.norm(final(x, t, padding)), padding)

    def init_state(self, batch_size: int, window: int | None = None) -> StackState:
        share = self._share(self.window_of(window))
        states = tuple(block.layer.init_state(batch_size, share) for block in self._blocks())
        return StackState(0, states, Pooled(share))

    def step(self, x: Tensor, t: Tensor | None, state: StackState) -> tuple[Tensor, StackState]:
        own = isinstance(state, StackState) and len(state.layers) == len(self.blocks)
        require(own, "state", type(state).__name__, "a StackState, as this layer's own init_state and step give")
        check_step(x, t, len(x), self.in_features, self.embedding.weight)
        x = self._embed(x.unsqueeze(1), None if t is None else t.unsqueeze(-1), None, state.seen)[:, 0]
        states = []
        for block, before in zip(self._blocks(), state.layers, strict=True):
            x, after = block.step(x, t, before)
            states.append(after)
        y, pooled = self.pooling.step(self.norm(x), state.pooled)
        return y, StackState(state.seen + 1, tuple(states), pooled)

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        return {
            f"blocks.{i}.layer.{name}": options
            for i, block in enumerate(self._blocks())
            for name, options in block.layer.optimizer_options().items()
        }

    def neuron_states(self, x: Tensor, t: Tensor | None = None) -> dict[str, Tensor]:
        """Those of the last layer, fed with what reaches it."""
        x = self._embed(x, t, None)
        for block in self._blocks()[:-1]:
            x = block(x, t, None)
        last = self._blocks()[-1]
        return last.layer.neuron_states(last.norm(x), t)

    def circuit(self) -> dict[str, Any] | None:
        return self._blocks()[-1].layer.circuit()
