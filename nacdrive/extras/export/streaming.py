"""The step of every sequence layer with a state of fixed size; ``SequenceLayer.step`` is the twin of each."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from nacdrive.common.errors import UserError
from nacdrive.extras.export.nac_step import LayerStep, NACKeyStep, NACStep
from nacdrive.layers.attention import MHALayer
from nacdrive.layers.base import SequenceLayer
from nacdrive.layers.block import SequenceBlock, StackLayer
from nacdrive.layers.dense import DenseLayer
from nacdrive.layers.nac import NACLayer
from nacdrive.layers.nac_key import NACKeyLayer
from nacdrive.layers.windowed import WindowedLayer


def step_of(layer: SequenceLayer) -> LayerStep:
    """The step of ``layer``."""
    # Pure work on single steps needs no memory, whatever the window.
    if isinstance(layer, WindowedLayer):
        return WindowedStep(layer, 1 if isinstance(layer, DenseLayer) else layer.window)
    if isinstance(layer, MHALayer):
        return AttentionStep(layer)
    if isinstance(layer, NACLayer):
        return NACStep(layer)
    if isinstance(layer, NACKeyLayer):
        return NACKeyStep(layer)
    if isinstance(layer, StackLayer):
        return StackStep(layer)
    raise UserError(
        f"a {type(layer).__name__} cannot be exported: it streams with a state of its own, and only those of "
        "WindowedLayer, MHALayer, NACLayer, NACKeyLayer and StackLayer are known."
    )


class WindowedStep(LayerStep):
    """A pass over the window: the steps that are there stand at its front, and the output is read at the newest."""

    def __init__(self, layer: WindowedLayer, window: int) -> None:
        super().__init__()
        self.layer, self.window = layer, window

    def initial(self) -> dict[str, Tensor]:
        if self.window == 1:
            return {}
        with torch.no_grad():
            now = self.layer.project(torch.zeros(1, self.layer.in_features))
        past = self.window - 1
        return {
            "steps": torch.zeros(1, past, now.shape[-1]),
            "times": torch.zeros(1, past),
            "count": torch.zeros(1, dtype=torch.int64),
        }

    def forward(self, x: Tensor, t: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        now = self.layer.project(x).unsqueeze(1)
        if self.window == 1:
            return (self.layer._scan(now, t.unsqueeze(1), None)[:, 0],)
        steps, times, count = state
        slot = torch.arange(self.window)
        u = _placed(steps, now, slot, count)
        t = _placed(times.unsqueeze(-1), t.view(1, 1, 1), slot, count).squeeze(-1)
        y = self.layer._scan(u, t, (slot > count).unsqueeze(0)).index_select(1, count)[:, 0]
        full = count == self.window - 1
        kept = [torch.where(full, s[:, 1:].flatten(1), s[:, :-1].flatten(1)).view_as(s[:, 1:]) for s in (u, t)]
        return y, *kept, (count + 1).clamp(max=self.window - 1)


def _placed(past: Tensor, now: Tensor, slot: Tensor, count: Tensor) -> Tensor:
    """[1, window, ...]: ``count`` steps of ``past``, then ``now``, then zeros."""
    room = nn.functional.pad(past, (0, 0, 0, 1))
    place = slot.view(1, -1, 1)
    return torch.where(place < count, room, torch.where(place == count, now, torch.zeros_like(room)))


class AttentionStep(LayerStep):
    """Attention of the newest step over the keys and values of the window, the newest last."""

    def __init__(self, layer: MHALayer) -> None:
        super().__init__()
        self.layer, self.past = layer, layer.window - 1

    def initial(self) -> dict[str, Tensor]:
        if not self.past:
            return {}
        layer = self.layer
        empty = torch.zeros(1, layer.num_heads, self.past, layer.d_model // layer.num_heads)
        return {"keys": empty, "values": empty.clone(), "count": torch.zeros(1, dtype=torch.int64)}

    def forward(self, x: Tensor, t: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        layer = self.layer
        q, k, v = layer._heads(x.unsqueeze(1))
        if not self.past:
            return (layer.merge(layer.attend(q, k, v, None, causal=False))[:, 0],)
        keys, values, count = state
        k, v = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
        seen = (torch.arange(self.past + 1) >= self.past - count).view(1, 1, 1, -1)
        y = layer.merge(layer.attend(q, k, v, seen, causal=False))[:, 0]
        return y, k[:, :, 1:], v[:, :, 1:], (count + 1).clamp(max=self.past)


class StackStep(LayerStep):
    """The steps of all blocks, one behind the other."""

    def __init__(self, layer: StackLayer) -> None:
        super().__init__()
        if not layer.pooling.idle:
            raise UserError("a stack that pools over steps cannot be exported: train it with pooling=last.")
        self.layer, self.norm, self.blocks = layer, layer.norm, layer.blocks
        self.steps = nn.ModuleList(step_of(cast(SequenceBlock, block).layer) for block in layer.blocks)
        self.sizes = [len(cast(LayerStep, step).initial()) for step in self.steps]

    def initial(self) -> dict[str, Tensor]:
        return {
            f"block{i}.{name}": value
            for i, step in enumerate(self.steps)
            for name, value in cast(LayerStep, step).initial().items()
        }

    def forward(self, x: Tensor, t: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        x = self.layer._embed(x.unsqueeze(1), t.unsqueeze(1), None)[:, 0]
        after: list[Tensor] = []
        first = 0
        for block, step, size in zip(self.blocks, self.steps, self.sizes, strict=True):
            block = cast(SequenceBlock, block)
            y, *kept = step(block.norm(x), t, *state[first : first + size])
            x = block._rest(x, y)
            after += kept
            first += size
        return self.norm(x), *after
