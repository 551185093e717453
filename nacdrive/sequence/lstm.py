"""Long short-term memory (Hochreiter & Schmidhuber, 1997) as a windowed sequence layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nacdrive.sequence.contract import SequenceLayer, sliding_windows


class LSTMLayer(SequenceLayer):
    """One LSTM with ``d_model`` hidden units, started afresh on every window of steps.

    The recurrence is run over the last ``window`` inputs at each step, so that it sees exactly what an attention
    layer of the same window sees. It has no use for heads or time.
    """

    def __init__(self, in_features: int, d_model: int, num_heads: int, window: int) -> None:
        super().__init__(in_features, d_model, num_heads, window)
        self.lstm = nn.LSTM(in_features, d_model, batch_first=True)

    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """See ``SequenceLayer.forward``."""
        B, T, F = x.shape
        W = self.window
        if W >= T:
            return self._run(x, padding)
        present = torch.ones((B, T), dtype=torch.bool, device=x.device) if padding is None else ~padding
        windows = sliding_windows(x, W).reshape(B * T, W, F)
        absent = ~sliding_windows(present, W).reshape(B * T, W)
        return self._run(windows, absent)[:, -1].reshape(B, T, self.d_model)

    def _run(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """Outputs [B, T, d_model]; a padding step repeats the output before it."""
        y: Tensor
        if padding is None or not bool(padding.any()):
            y, _ = self.lstm(x)
            return y
        # Valid steps first, in their order, so that the recurrence never meets a padding step.
        order = torch.argsort(padding.long(), dim=1, stable=True)
        y, _ = self.lstm(x.gather(1, order.unsqueeze(-1).expand_as(x)))
        last_valid = (~padding).long().cumsum(dim=1) - 1
        picked = y.gather(1, last_valid.clamp(min=0).unsqueeze(-1).expand(-1, -1, self.d_model))
        return picked.masked_fill((last_valid < 0).unsqueeze(-1), 0.0)

    def init_state(self, batch_size: int, window: int | None = None) -> tuple[int, Tensor | None]:
        """(window, the inputs of the last window-1 steps)."""
        return window or self.window, None

    def step(
        self, x: Tensor, t: Tensor | None, state: tuple[int, Tensor | None]
    ) -> tuple[Tensor, tuple[int, Tensor | None]]:
        """See ``SequenceLayer.step``."""
        window, past = state
        now = x.unsqueeze(1)
        seen = now if past is None else torch.cat([past, now], dim=1)[:, -window:]
        y: Tensor
        y, _ = self.lstm(seen)
        return y[:, -1], (window, seen)


def build(in_features: int, d_model: int, num_heads: int, window: int) -> LSTMLayer:
    """Build the layer (see ``registry.build``)."""
    return LSTMLayer(in_features, d_model, num_heads, window)
