"""torch-nac's own NAC (0.0.2) as a sequence layer of nacdrive, so that both are trained in the same house.

nacdrive bench table --tasks emnist --models torch_nac_layer:TorchNAC nac-exact ...    # with tools/ in PYTHONPATH
"""

from __future__ import annotations

import contextlib
import io
from typing import Any

import torch
from torch import Tensor

from nacdrive.layers import SequenceLayer

with contextlib.redirect_stdout(io.StringIO()):  # it greets on import
    from torch_nac import layers as published


class TorchNAC(SequenceLayer):
    """Self-attention of the last step over the steps up to it, as torch-nac computes it.

    It has no causal mode, so every step is a call of its own over its past; a reader of whole sequences pays for the
    last step alone. Padding is excluded by the peer's own mask, which sets its logit to 0. Like nacdrive's NAC it is
    given the gap before the query, in units of ``gap_s``.

    Args:
        in_features, d_model, num_heads, window, gap_s: see ``SequenceLayer``.
        options: of ``torch_nac.layers.NAC`` (``mode``, ``topk``, ``sparsity``, ...).
    """

    time_sense = "gaps"

    def __init__(
        self, in_features: int, d_model: int, num_heads: int, window: int, gap_s: float = 1.0, **options: Any
    ) -> None:
        super().__init__(in_features, d_model, num_heads, window, gap_s)
        given = {"mode": "exact", "topk": 8, "input_dim": in_features, "return_sequences": True, **options}
        self.nac = published.NAC(d_model, num_heads, **given)

    def last(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """See ``SequenceLayer.last``."""
        B, T, _ = x.shape
        position = torch.arange(T, device=x.device).expand(B, T)
        valid = torch.ones_like(position, dtype=torch.bool) if padding is None else ~padding
        index = position.masked_fill(~valid, 0).amax(dim=1)
        seen = valid & (position > (index - self.window).unsqueeze(1))
        query = x[torch.arange(B, device=x.device), index].unsqueeze(1)
        gap = None
        if t is not None:
            before = t.gather(1, (index - 1).clamp(min=0).unsqueeze(1))
            gap = (t.gather(1, index.unsqueeze(1)) - before) / self.gap_s
            gap = torch.where(index.unsqueeze(1) > 0, gap, torch.ones_like(gap))
        # The peer unpacks (q, k, v) and (q, k, v, t).
        given = (query, x, x) if gap is None else (query, x, x, gap)
        y: Tensor = self.nac(given, mask=seen.to(x.dtype))
        return y[:, 0]

    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """See ``SequenceLayer.forward``."""
        rows = []
        for i in range(1, x.shape[1] + 1):
            first = max(0, i - self.window)
            times = None if t is None else t[:, first:i]
            rows.append(self.last(x[:, first:i], times, None if padding is None else padding[:, first:i]))
        return torch.stack(rows, dim=1)

    def init_state(self, batch_size: int, window: int | None = None) -> tuple[Tensor | None, Tensor | None]:
        """Nothing seen yet."""
        return None, None

    def step(self, x: Tensor, t: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        """See ``SequenceLayer.step``."""
        past, times = state
        x = x.unsqueeze(1)
        x = x if past is None else torch.cat([past, x], dim=1)[:, -self.window :]
        if t is not None:
            t = t.unsqueeze(1) if times is None else torch.cat([times, t.unsqueeze(1)], dim=1)[:, -self.window :]
        return self.last(x, t), (x, t)
