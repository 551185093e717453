"""The step of every sequence layer with a state of fixed size; ``SequenceLayer.step`` is the twin of each."""

from __future__ import annotations

from abc import abstractmethod
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.common.errors import UserError
from nacdrive.layers.attention import MHALayer
from nacdrive.layers.base import SequenceLayer
from nacdrive.layers.block import SequenceBlock, StackLayer
from nacdrive.layers.nac import NACKeyLayer, NACLayer
from nacdrive.layers.rnn import DenseLayer
from nacdrive.layers.windowed import WindowedLayer


class LayerStep(nn.Module):
    """One step of a sequence layer for a single stream: no growing memory, no decision by values.

    ``SequenceLayer.step`` lets a state grow until the window is full, which a graph that is recorded once cannot do:
    here the memory has its full size from the beginning, and a count says how much of it holds a step.
    """

    @abstractmethod
    def initial(self) -> dict[str, Tensor]:
        """State before the first step, by name; empty for a layer without memory."""

    @abstractmethod
    def forward(self, x: Tensor, t: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """Features x [1, in_features] at t [1] seconds -> output [1, d_model], then the next state in its order."""


def step_of(layer: SequenceLayer) -> LayerStep:
    """The step of ``layer``."""
    # Pure work on single steps needs no memory, whatever the window.
    if isinstance(layer, WindowedLayer):
        return WindowedStep(layer, 1 if isinstance(layer, DenseLayer) else layer.window)
    steps = {MHALayer: AttentionStep, NACLayer: NACStep, NACKeyLayer: NACKeyStep, StackLayer: StackStep}
    for kind, step in steps.items():
        if isinstance(layer, kind):
            made: LayerStep = step(layer)
            return made
    raise UserError(
        f"a {type(layer).__name__} cannot be exported: it streams with a state of its own, and only those of "
        "WindowedLayer, MHALayer, NACLayer, NACKeyLayer and StackLayer are known."
    )


class WindowedStep(LayerStep):
    """A pass over the window: the steps that are there stand at its front, and the output is read at the newest."""

    def __init__(self, layer: WindowedLayer, window: int) -> None:
        super().__init__()
        self.layer, self.past = layer, window - 1

    def initial(self) -> dict[str, Tensor]:
        if not self.past:
            return {}
        with torch.no_grad():
            now = self.layer.project(torch.zeros(1, self.layer.in_features))
        return {
            "steps": torch.zeros(1, self.past, now.shape[-1]),
            "times": torch.zeros(1, self.past),
            "count": torch.zeros(1, dtype=torch.int64),
        }

    def forward(self, x: Tensor, t: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        now = self.layer.project(x).unsqueeze(1)
        if not self.past:
            return (self.layer._scan(now, t.unsqueeze(1), None)[:, 0],)
        steps, times, count = state
        slot = torch.arange(self.past + 1)
        u = _placed(steps, now, slot, count)
        t = _placed(times.unsqueeze(-1), t.view(1, 1, 1), slot, count).squeeze(-1)
        y = self.layer._scan(u, t, (slot > count).unsqueeze(0)).index_select(1, count)[:, 0]
        full = count == self.past
        kept = [torch.where(full, s[:, 1:].flatten(1), s[:, :-1].flatten(1)).view_as(s[:, 1:]) for s in (u, t)]
        return y, *kept, (count + 1).clamp(max=self.past)


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
        empty = torch.zeros(1, self.layer.num_heads, self.past, self.layer.d_model // self.layer.num_heads)
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


class NACStep(LayerStep):
    """NAC's step with weights that are masked, fused and pruned once."""

    def __init__(self, layer: NACLayer) -> None:
        super().__init__()
        self.nac = nac = layer.nac.eval()
        self.past = layer.window - 1
        self.chooses = nac.topk is not None and nac.topk < layer.window
        if self.chooses and not nac.chooses_exactly(layer.window):
            raise UserError(
                f"a NAC that chooses its keys by the square-root partition (selection '{nac.selection}', window "
                f"{layer.window}) cannot be exported: train it with selection=exact."
            )
        with torch.no_grad():
            self.weights = nac._step_weights(torch.float32, None)

    def initial(self) -> dict[str, Tensor]:
        nac = self.nac
        state = {}
        if self.past:
            state["memory"] = nac.init_state(1, self.past).memory
            if nac.time_input == "elapsed":
                state["times"] = torch.zeros(1, self.past)
        if nac.time_input == "gap":
            state["t"] = torch.zeros(1)
        if state:
            state["count"] = torch.zeros(1, dtype=torch.int64)
        return state

    def forward(self, x: Tensor, t: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        nac, weights = self.nac, self.weights
        names = tuple(self.initial())
        before = dict(zip(names, state, strict=True))
        heads, depth = nac.num_heads, nac.head_dim
        if nac.input_norm is not None:
            x = nac.input_norm(x)
        if nac.time_frequencies is not None:
            x = nac._timed(x.unsqueeze(1), t.unsqueeze(1))[:, 0]
        qkv = F.linear(x, weights.qkv, weights.qkv_bias).view(3, heads, 1, depth)
        q, k, v = qkv.unbind(0)
        halves = torch.baddbmm(weights.halves_bias, qkv[:2].flatten(0, 1), weights.halves)
        of_q, of_k = halves.view(2, heads, 1, -1).unbind(0)
        memory = torch.cat([k, v, of_k], 2).unsqueeze(2)
        after = {}
        if self.past:
            memory = torch.cat([before["memory"], memory], 2)
            after["memory"] = memory[:, :, 1:]
        tau = self._tau(t, before, after)
        if "count" in before:
            after["count"] = (before["count"] + 1).clamp(max=max(self.past, 1))
        y = self._attend(q, of_q, memory, tau, before.get("count"))
        return nac.out_proj(y.reshape(1, nac.d_model)), *(after[name] for name in names)

    def _tau(self, t: Tensor, before: dict[str, Tensor], after: dict[str, Tensor]) -> Tensor:
        """Time input: of the query [1, 1], or the lags of its keys [heads, 1, window]."""
        nac = self.nac
        if nac.time_input == "elapsed":
            times = torch.cat([before["times"], t.unsqueeze(1)], 1) if self.past else t.unsqueeze(1)
            if self.past:
                after["times"] = times[:, 1:]
            return ((t.unsqueeze(1) - times) / nac.time_scale).expand(nac.num_heads, 1, -1)
        if nac.time_input == "absolute":
            return (t / nac.time_scale).unsqueeze(1)
        after["t"] = t + 0.0  # an output of its own: a graph may not hand an input on as it is
        return torch.where(before["count"] == 0, torch.ones_like(t), (t - before["t"]) / nac.time_scale).unsqueeze(1)

    def _attend(self, q: Tensor, halves: Tensor, memory: Tensor, tau: Tensor, count: Tensor | None) -> Tensor:
        """Attention [heads, 1, d_head] of the newest step; memory is [heads, 1, window, ...], the newest last."""
        nac = self.nac
        heads, depth, window = nac.num_heads, nac.head_dim, memory.shape[2]
        best = allowed = None
        if self.past:
            assert count is not None
            allowed = (torch.arange(window) >= self.past - count).expand(heads, 1, window)
        if self.chooses:
            assert nac.topk is not None and allowed is not None
            scores = (memory[..., :depth] @ q.unsqueeze(-1)).squeeze(-1)
            best = scores.masked_fill(~allowed, -torch.inf).topk(nac.topk, dim=-1).indices
            allowed = allowed.gather(2, best)
        return nac.attend_memory(q, halves, tau, memory, (best, allowed), self.weights.fused)


class NACKeyStep(LayerStep):
    """The step of NAC with its circuit on the key: one circuit, one row of attention."""

    def __init__(self, layer: NACKeyLayer) -> None:
        super().__init__()
        self.nac, self.past = layer.nac.eval(), layer.window - 1

    def initial(self) -> dict[str, Tensor]:
        if not self.past:
            return {}
        memory = self.nac.init_state(1, self.past).memory
        return {"memory": memory, "times": torch.zeros(1, self.past), "count": torch.zeros(1, dtype=torch.int64)}

    def forward(self, x: Tensor, t: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        now = t.unsqueeze(1)
        q, memory, _ = self.nac.read(x.unsqueeze(1), now)
        times, allowed = now, torch.ones(1, 1, 1, dtype=torch.bool)
        if self.past:
            before, past_times, count = state
            memory, times = torch.cat([before, memory], 1), torch.cat([past_times, now], 1)
            allowed = (torch.arange(self.past + 1) >= self.past - count).view(1, 1, -1)
        y, _ = self.nac.attend(q, memory, ((now - times) / self.nac.time_scale).clamp(min=0).unsqueeze(1), allowed)
        if not self.past:
            return (y[:, 0],)
        return y[:, 0], memory[:, 1:], times[:, 1:], (count + 1).clamp(max=self.past)


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
