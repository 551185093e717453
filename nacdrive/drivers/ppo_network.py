"""The expert's network: three convolutions, one dense layer, linear heads; 154k parameters."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nacdrive.drivers.ppo_preprocess import SIDE, STACK

FEATURES = 256


class Vision(nn.Module):
    """Stacked grey frames in [0, 1], [N, 4, 48, 48] -> features [N, 256]."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(STACK, 16, 8, stride=4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, stride=2),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        side = ((SIDE - 8) // 4 + 1 - 4) // 2 + 1
        self.dense = nn.Sequential(nn.Linear(32 * side * side, FEATURES), nn.ReLU())

    def forward(self, stacks: Tensor) -> Tensor:
        """[N, 4, 48, 48] float in [0, 1] -> [N, 256]."""
        features: Tensor = self.dense(self.convolutions(stacks.contiguous(memory_format=torch.channels_last)))
        return features


class PolicyNet(nn.Module):
    """The actor alone: uint8 stacks -> logits of the five actions, or (steering, pedal) of the continuous agent."""

    def __init__(self, outputs: int = 5) -> None:
        super().__init__()
        self.vision = Vision()
        self.head = nn.Linear(FEATURES, outputs)

    def forward(self, stacks: Tensor) -> Tensor:
        """Uint8 [N, 4, 48, 48] -> float32 [N, outputs]."""
        scores: Tensor = self.head(self.vision(stacks.float() / 255.0))
        return scores
