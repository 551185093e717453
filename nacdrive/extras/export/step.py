"""What every sequence layer is turned into before it is recorded as a graph."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor, nn


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
