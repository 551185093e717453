"""What every sequence layer promises, so that a policy can carry any of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn


class SequenceLayer(nn.Module):
    """A causal map from a sequence of feature vectors to a sequence of outputs.

    Output i depends on the steps i-window+1 .. i alone, so ``step`` repeated equals ``forward``: a layer can be
    trained on whole sequences and driven step by step, and layers of one window see the same.
    """

    def __init__(self, in_features: int, d_model: int, num_heads: int, window: int) -> None:
        super().__init__()
        if window < 1:
            raise ValueError(f"window={window}; allowed is 1 step or more")
        self.in_features = in_features
        self.d_model = d_model
        self.num_heads = num_heads
        self.window = window

    @abstractmethod
    def forward(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """Outputs of all steps.

        Args:
            x: features, [B, T, in_features].
            t: absolute time of each step in seconds, [B, T]; None where steps have no meaningful time.
            padding: [B, T], True where a step is padding: excluded from attention, skipped by recurrences.

        Returns:
            [B, T, d_model]. Rows of padding steps hold no meaning.
        """

    def last(self, x: Tensor, t: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        """[B, d_model]: what ``forward`` gives at the last step that is no padding.

        For a reader of a whole sequence; a layer that need not compute the other steps overrides it.
        """
        y = self(x, t, padding)
        if padding is None:
            return y[:, -1]
        position = torch.arange(x.shape[1], device=x.device)
        last = torch.where(padding, -1, position).amax(dim=1).clamp(min=0)
        return y[torch.arange(len(y), device=y.device), last]

    @abstractmethod
    def init_state(self, batch_size: int, window: int | None = None) -> Any:
        """State before the first step; ``window`` defaults to the layer's own."""

    @abstractmethod
    def step(self, x: Tensor, t: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        """One step: x [B, in_features], t [B] seconds -> output [B, d_model] and the next state."""

    def neuron_states(self, x: Tensor, t: Tensor | None = None) -> dict[str, Tensor]:
        """Named inner states at the last step of the window x [1, T, in_features]; empty where there are none."""
        return {}

    def circuit(self) -> dict[str, Any] | None:
        """The layer's wiring as plain JSON (``groups`` of neurons, ``edges`` between them); None without one."""
        return None


def window_mask(length: int, window: int, device: torch.device) -> Tensor:
    """[length, length], True where key j may not be seen by query i: the future, and what left the window."""
    i = torch.arange(length, device=device).unsqueeze(1)
    j = torch.arange(length, device=device).unsqueeze(0)
    return (j > i) | (j <= i - window)


def sliding_windows(x: Tensor, window: int) -> Tensor:
    """[B, T, ...] -> [B, T, window, ...]: the last ``window`` steps at each step, zeros before the first."""
    before = x.new_zeros((x.shape[0], window - 1, *x.shape[2:]))
    unfolded = torch.cat([before, x], dim=1).unfold(1, window, 1)
    return unfolded.movedim(-1, 2)
