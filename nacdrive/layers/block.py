"""A stack of residual blocks around any sequence layer, so that layers can be compared inside one network."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from nacdrive.layers.base import SequenceLayer
from nacdrive.layers.registry import build
from nacdrive.nac.validation import require


class SequenceBlock(nn.Module):
    """x + layer(norm(x)), then x + feed-forward(norm(x)): pre-norm, as in Xiong et al. (2020).

    Args:
        layer: of ``d_model`` features and outputs.
        expansion: hidden width of the feed-forward part over ``d_model``; 0 leaves it out.
        dropout: of what either part adds, in training.
    """

    def __init__(self, layer: SequenceLayer, expansion: float, dropout: float) -> None:
        super().__init__()
        width = layer.d_model
        hidden = round(expansion * width)
        self.norm = nn.LayerNorm(width)
        self.layer = layer
        self.dropout = nn.Dropout(dropout)
        self.feed_forward = None
        if hidden:
            self.feed_forward = nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width), nn.Dropout(dropout)
            )

    def forward(self, x: Tensor, t: Tensor | None, padding: Tensor | None) -> Tensor:
        """``[B, T, d_model]`` to the same."""
        return self._rest(x, self.layer(self.norm(x), t, padding))

    def step(self, x: Tensor, t: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        """One step ``[B, d_model]``."""
        y, state = self.layer.step(self.norm(x), t, state)
        return self._rest(x, y), state

    def _rest(self, x: Tensor, y: Tensor) -> Tensor:
        x = x + self.dropout(y)
        added: Tensor = x if self.feed_forward is None else x + self.feed_forward(x)
        return added


class StackLayer(SequenceLayer):
    """``depth`` blocks around layers of one kind, behind a linear map to ``d_model``; a norm stands at the end.

    The layers share the window among them, so that the stack's output depends on no more steps than a single layer's.
    Sizes and ``gap_s`` are those of ``SequenceLayer``; ``window`` is that of the whole stack.

    Args:
        layer: registered name of the layers, or ``module:Name``.
        layer_options: their own options.
        depth: number of blocks.
        expansion: hidden width of the feed-forward parts over ``d_model``; 0 leaves them out.
        dropout: of what each part adds, in training.
    """

    def __init__(
        self,
        in_features: int,
        d_model: int,
        num_heads: int,
        window: int,
        gap_s: float = 1.0,
        layer: str = "nac-lag",
        layer_options: dict[str, Any] | None = None,
        depth: int = 2,
        expansion: float = 2.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(in_features, d_model, num_heads, window, gap_s)
        require(depth >= 1, "depth", depth, "1 block or more")
        require(expansion >= 0, "expansion", expansion, "0 or more")
        require(0 <= dropout < 1, "dropout", dropout, "0 <= dropout < 1")
        self.embedding = nn.Linear(in_features, d_model)
        options = {"gap_s": gap_s, **(layer_options or {})}
        share = self._share(window, depth)
        self.blocks = nn.ModuleList(
            SequenceBlock(build(layer, d_model, num_heads, share, **options), expansion, dropout) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(d_model)
        self.time_sense = self._blocks()[0].layer.time_sense

    def _blocks(self) -> list[SequenceBlock]:
        return cast(list[SequenceBlock], list(self.blocks))

    @staticmethod
    def _share(window: int, depth: int) -> int:
        """Window of each layer: an output then depends on ``depth * (share - 1) + 1`` steps."""
        return (window - 1) // depth + 1

    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """See ``SequenceLayer.forward``."""
        if padding is not None:
            x = x.masked_fill(padding.unsqueeze(-1), 0.0)  # not even NaN in padding may matter
        x = self.embedding(x)
        for block in self._blocks():
            x = block(x, t, padding)
        y: Tensor = self.norm(x)
        return y

    def init_state(self, batch_size: int, window: int | None = None) -> tuple[Any, ...]:
        """States of all layers."""
        share = self._share(window or self.window, len(self.blocks))
        return tuple(block.layer.init_state(batch_size, share) for block in self._blocks())

    def step(self, x: Tensor, t: Tensor | None, state: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
        """See ``SequenceLayer.step``."""
        x = self.embedding(x)
        states = []
        for block, before in zip(self._blocks(), state, strict=True):
            x, after = block.step(x, t, before)
            states.append(after)
        return self.norm(x), tuple(states)

    def optimizer_options(self) -> dict[str, dict[str, float]]:
        """Those of the layers, by their names in the stack."""
        return {
            f"blocks.{i}.layer.{name}": options
            for i, block in enumerate(self._blocks())
            for name, options in block.layer.optimizer_options().items()
        }

    def neuron_states(self, x: Tensor, t: Tensor | None = None) -> dict[str, Tensor]:
        """Those of the last layer, fed with what reaches it."""
        x = self.embedding(x)
        for block in self._blocks()[:-1]:
            x = block(x, t, None)
        last = self._blocks()[-1]
        return last.layer.neuron_states(last.norm(x), t)

    def circuit(self) -> dict[str, Any] | None:
        """That of the last layer."""
        return self._blocks()[-1].layer.circuit()
