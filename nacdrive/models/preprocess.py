"""From a camera's frame to what the convolutions see: rows cut away, resized by area, RGB turned into YUV.

Each of these is linear, so they are three small matrices: part of the model, differentiable, alike on every device.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nacdrive.models.config import PolicyConfig

# BT.601 as in OpenCV's RGB2YUV: rows Y, U, V.
YUV = ((0.299, 0.587, 0.114), (-0.147108, -0.288804, 0.435912), (0.614777, -0.514799, -0.099978))
NEUTRAL = (0.0, 128.0, 128.0)


class Preprocess(nn.Module):
    """[N, height, width, 3] RGB -> [N, rows, columns, 3]; bytes stay bytes, floats of 0 .. 255 stay differentiable."""

    down: Tensor
    across: Tensor
    colour: Tensor
    offset: Tensor

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.first, self.last = config.crop or (0, config.height)
        rows, columns = config.input_size
        colour, offset = (YUV, NEUTRAL) if config.yuv else (torch.eye(3).tolist(), (0.0, 0.0, 0.0))
        # They follow from the config, so no file need hold them.
        self.register_buffer("down", area_weights(self.last - self.first, rows), persistent=False)
        self.register_buffer("across", area_weights(config.width, columns).T.contiguous(), persistent=False)
        self.register_buffer("colour", torch.tensor(colour).T.contiguous(), persistent=False)
        self.register_buffer("offset", torch.tensor(offset), persistent=False)

    def forward(self, frames: Tensor) -> Tensor:
        """See the class."""
        x = frames[:, self.first : self.last].to(self.down.dtype).permute(0, 3, 1, 2)
        y = (self.down @ (x @ self.across)).permute(0, 2, 3, 1) @ self.colour + self.offset
        return y.round().clamp(0, 255).to(torch.uint8) if frames.dtype == torch.uint8 else y


def area_weights(before: int, after: int) -> Tensor:
    """[after, before]: each new pixel is the mean of the stretch that it covers, its ends weighted by their share."""
    edges = torch.arange(after + 1, dtype=torch.float64) * (before / after)
    pixels = torch.arange(before, dtype=torch.float64)
    covered = torch.minimum(edges[1:, None], pixels + 1) - torch.maximum(edges[:-1, None], pixels)
    weights = covered.clamp(min=0)
    return (weights / weights.sum(dim=1, keepdim=True)).float()
