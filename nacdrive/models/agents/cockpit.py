"""What a continuous agent of CarRacing sees with: the road by convolutions, the instruments below it as numbers.

The bars below the picture show speed, the turning of each wheel, the steering and the yaw rate to a fraction of a per
cent: how far a bar reaches is the sum of its pixels, which a linear layer can read and convolutions with strides blur.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nacdrive.models.agents.memory import Actor, Memory, MemorySpec
from nacdrive.models.agents.view import INSTRUMENT_PIXELS, View
from nacdrive.models.driving import convolutions

KIND = "cockpit"
INSTRUMENT_ROWS = 12
BRIGHT = 4 * 255.0
"""Sums of a column's pixels are divided by this."""


class CockpitNet(Actor):
    """uint8 grey frames, with their instruments or, for an agent that is not to know its speed, without -> outputs.

    ``channels`` are those of the three convolutions, ``panel`` is the width of what the instruments are turned into,
    and ``hidden`` those of the dense layers in which road and instruments meet.
    """

    def __init__(
        self,
        view: View,
        outputs: int = 2,
        channels: Sequence[int] = (32, 64, 64),
        hidden: Sequence[int] = (256, 128),
        panel: int = 64,
        memory: MemorySpec | None = None,
    ) -> None:
        super().__init__()
        if view.colour:
            raise ValueError(f"{KIND} sees grey frames")
        self.view = view
        self.about = {"kind": KIND, "channels": list(channels), "hidden": list(hidden), "panel": panel}
        first, second, third = channels
        layers = convolutions(view.frames, (first, 5, 2), (second, 3, 2), (third, 3, 2))
        self.convolutions = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            seen = self.convolutions(torch.zeros(1, view.frames, view.height, view.width)).shape[1]
        if view.instruments:
            self.panel = nn.Sequential(nn.Linear(view.frames * INSTRUMENT_PIXELS // INSTRUMENT_ROWS, panel), nn.ReLU())
            seen += panel
        self.dense = nn.Sequential(nn.Linear(seen, hidden[0]), nn.ReLU(), nn.Linear(hidden[0], hidden[1]), nn.ReLU())
        self.memory = Memory(memory, hidden[1]) if memory is not None else None
        self.head = nn.Linear(hidden[1] if self.memory is None else self.memory.out_features, outputs)

    def features(self, stacks: Tensor) -> Tensor:
        """Uint8 [N, *view.shape] -> float32 [N, hidden]: what the last layer decides on."""
        count, frames, height = *stacks.shape[:2], self.view.height
        seen = self.convolutions(stacks[:, :, :height].contiguous(memory_format=torch.channels_last).float() / 255.0)
        if self.view.instruments:
            panels = stacks[:, :, height:].reshape(count, frames, INSTRUMENT_ROWS, -1)
            seen = torch.cat([seen, self.panel(panels.float().sum(dim=2).flatten(1) / BRIGHT)], dim=1)
        features: Tensor = self.dense(seen)
        return features
