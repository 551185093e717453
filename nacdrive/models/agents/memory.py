"""What an agent remembers with: any sequence layer that streams, between its features and its heads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from nacdrive.common.errors import UserError, named, quoted
from nacdrive.layers import build, contract
from nacdrive.layers.base import SequenceLayer

TOLERANCE = 1e-3
"""By how much, relative to its largest output, a layer may differ between streaming and whole sequences."""


@dataclass(frozen=True)
class MemorySpec:
    """Which layer, and how large; plain values, so that a file can hold them."""

    layer: str
    """Registered name of a sequence layer, such as ``nac-steady``, or ``module:Name``."""
    window: int = 16
    """Decisions, the present one included, that a decision depends on."""
    width: int = 64
    """Numbers per decision that go into the layer and come out of it."""
    heads: int = 4
    gap_s: float = 1.0
    """Usual seconds between two decisions."""
    options: dict[str, Any] = field(default_factory=dict)


class MemoryState(NamedTuple):
    """The last decisions of each environment; the newest is last.

    Every environment has an episode of its own, so how much it remembers differs: ``seen`` says it. That is why a
    rollout carries windows and not the state of ``SequenceLayer.step``, in which all sequences have the same age.
    """

    inputs: Tensor  # [B, window, width] what went into the layer
    t: Tensor  # [B, window] seconds, float64
    seen: Tensor  # [B] how many of them are of the present episode


class Memory(nn.Module):
    """Features of decisions and their times -> the features, and beside them what the layer makes of the past.

    The features pass by the layer too: what no memory is needed for is learnt as without one.
    It stays in evaluation mode: dropout, or whatever else a layer does in training alone, would make the
    probabilities that are learnt from others than those that were acted by.
    """

    def __init__(self, spec: MemorySpec, features: int) -> None:
        super().__init__()
        self.spec, self.into = spec, nn.Linear(features, spec.width)
        with quoted(f"the memory '{spec.layer}' cannot be built: ", ".", TypeError, ValueError):
            sizes = (spec.width, spec.heads, spec.window)
            self.layer: SequenceLayer = build(spec.layer, *sizes, gap_s=spec.gap_s, **spec.options)
        check_streams(self.layer, spec.layer)
        self.out_features = features + spec.width
        self.eval()

    def train(self, mode: bool = True) -> Memory:
        """Nothing changes; see the class."""
        super().train(False)
        for part in self.modules():
            # They have no dropout, and cuDNN gives no gradients in evaluation mode.
            if isinstance(part, nn.RNNBase):
                part.training = mode
        return self

    def forward(self, features: Tensor, t: Tensor, padding: Tensor) -> Tensor:
        """Whole sequences [B, T, features] at ``t`` [B, T] seconds, ``padding`` [B, T] True -> [B, T, out_features]."""
        return torch.cat([features, self.layer(self.into(features), t, padding if padding.any() else None)], dim=-1)

    def at(self, features: Tensor, t: Tensor, chosen: Tensor) -> Tensor:
        """Some decisions of sequences, each with the window before it: cheaper than ``forward`` where they are few.

        ``features`` [B, T, features] at ``t`` [B, T] seconds begin with episodes, or long enough before the first of
        the N decisions that are ``chosen`` [B, T]. Returns [N, out_features], sequence by sequence.
        """
        row, at = chosen.nonzero(as_tuple=True)
        position = at[:, None] + torch.arange(1 - self.spec.window, 1, device=at.device)
        padding = position < 0
        flat = (row[:, None] * chosen.shape[1] + position.clamp(min=0)).flatten()
        # Not by two indices: the gradient of index_select is far quicker.
        inputs = self.into(features).flatten(0, 1).index_select(0, flat).view(*position.shape, -1)
        remembered = self.layer.last(inputs, t.flatten()[flat].view(position.shape), padding if padding.any() else None)
        return torch.cat([features[row, at], remembered], dim=-1)

    def init_state(self, batch_size: int) -> MemoryState:
        like = self.into.weight
        return MemoryState(
            like.new_zeros(batch_size, self.spec.window, self.spec.width),
            torch.zeros(batch_size, self.spec.window, dtype=torch.float64, device=like.device),
            torch.zeros(batch_size, dtype=torch.long, device=like.device),
        )

    def filled_state(self, features: Tensor, t: Tensor, seen: Tensor) -> MemoryState:
        """State after ``features`` [B, window - 1, features] at ``t``, the last ``seen`` [B] the episode's."""
        inputs, times, _ = self.init_state(len(features))
        inputs[:, 1:], times[:, 1:] = self.into(features), t
        return MemoryState(inputs, times, seen)

    def advance(
        self, features: Tensor, t: Tensor | None, starts: Tensor, state: MemoryState
    ) -> tuple[Tensor, MemoryState]:
        """One decision in each of B environments: [B, features] at ``t`` [B] seconds -> [B, out_features], next state.

        Where ``starts`` [B] is True an episode begins; without ``t`` it is one ``gap_s`` after the decision before.
        """
        seen = torch.where(starts.bool(), 0, state.seen)
        if t is None:
            t = torch.where(seen > 0, state.t[:, -1] + self.spec.gap_s, 0.0)
        inputs = torch.cat([state.inputs[:, 1:], self.into(features).unsqueeze(1)], dim=1)
        times = torch.cat([state.t[:, 1:], t.to(state.t).unsqueeze(1)], dim=1)
        seen = (seen + 1).clamp(max=self.spec.window)
        padding = torch.arange(self.spec.window, device=seen.device) < self.spec.window - seen.unsqueeze(1)
        remembered = self.layer.last(inputs, times, padding if padding.any() else None)
        return torch.cat([features, remembered], dim=-1), MemoryState(inputs, times, seen)

    def step(self, features: Tensor, t: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One decision of one episode by the layer's own streaming, with its ``layer.init_state``; as ``advance``."""
        remembered, state = self.layer.step(self.into(features), t, state)
        return torch.cat([features, remembered], dim=-1), state


class Actor(nn.Module):
    """An agent's network: what it sees of stacks of frames, a memory if it has one, and a head.

    Without a memory each stack is judged by itself; with one, a stack after those before it in its episode.
    A subclass has ``features``, and sets ``memory`` and ``head`` when it is made.
    """

    memory: Memory | None
    head: nn.Linear

    def features(self, stacks: Tensor) -> Tensor:
        """Uint8 [N, *view.shape] -> float32 [N, features]."""
        raise NotImplementedError

    def forward(self, stacks: Tensor) -> Tensor:
        """Uint8 [N, *view.shape] -> float32 [N, outputs], without a memory."""
        if self.memory is not None:
            raise TypeError("a policy with a memory takes decisions in their order: call step")
        return cast(Tensor, self.head(self.features(stacks)))

    def init_state(self, batch_size: int = 1) -> Any:
        assert self.memory is not None
        return self.memory.layer.init_state(batch_size)

    def step(self, stacks: Tensor, t: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One decision: uint8 [B, *view.shape] at ``t`` [B] seconds -> float32 [B, outputs] and the next state."""
        assert self.memory is not None
        joint, state = self.memory.step(self.features(stacks), t, state)
        return self.head(joint), state


def check_streams(layer: SequenceLayer, name: str) -> None:
    """Refuse a layer that gives other outputs step by step than on whole sequences, or than on its window alone."""
    device = next((p.device for p in layer.parameters()), torch.device("cpu"))
    steps = layer.window + 3
    advice = "give one that streams, such as lstm or nac-steady"
    was_training, generator = layer.training, torch.Generator().manual_seed(0)
    x = torch.randn(2, steps, layer.in_features, generator=generator).to(device)
    t = (layer.gap_s * (0.5 + torch.rand(2, steps, generator=generator, dtype=torch.float64))).cumsum(dim=1).to(device)
    failed = quoted(f"the memory '{name}' cannot stream (", f"): {advice}.", Exception, say=named)
    layer.eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad(), failed:
        try:
            whole = layer(x, t)[:, -1]
            alone = layer.last(x[:, -layer.window :], t[:, -layer.window :])
            streamed = contract.steps(layer, x, t)[:, -1]
        finally:
            layer.train(was_training)
    limit = TOLERANCE * max(1.0, float(whole.abs().max()))
    for other in (streamed, alone):
        if other.shape != whole.shape or not float((other - whole).abs().max()) <= limit:
            what = f"the memory '{name}' cannot stream"
            raise UserError(f"{what}: decision by decision it gives other numbers than on a whole episode; {advice}.")
