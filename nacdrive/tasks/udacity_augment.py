"""What a camera on the same road might also have seen: mirrored, shifted, in other light; alike in a whole sequence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nacdrive.tasks.base import Batch


@dataclass(frozen=True)
class Augmentation:
    """How far each change may go; frames are [66, 200] pixels in YUV."""

    sideways: int = 12
    """Pixels by which the road may move to either side: the car points elsewhere."""
    steering_per_pixel: float = 0.006
    """Steering that leads back from one such pixel."""
    upward: int = 5
    """Pixels up or down: a hill, a nodding car."""
    gain: tuple[float, float] = (0.55, 1.3)
    """Of the luminance."""
    offset: float = 20.0
    """Of the luminance, to either side."""
    saturation: tuple[float, float] = (0.5, 1.4)
    """Of the colours."""
    tint: float = 8.0
    """Offset of each colour channel, to either side."""
    shadow: float = 0.5
    """Share of the sequences with a shadow across the road."""
    pace: tuple[float, float] = (0.25, 1.5)
    """Of the time stamps: a simulator may run slower or faster than the recording did."""


def augmented(batch: Batch, how: Augmentation, generator: torch.Generator) -> Batch:
    """A batch as it might also have been; ``batch`` stays as it is.

    Its fields: ``frames`` uint8 [B, T, 66, 200, 3], ``t`` [B, T], ``target`` [B, T] steering.
    """
    frames, target = batch["frames"].clone(), batch["target"].clone()
    B = len(frames)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.empty(B, *shape).uniform_(low, high, generator=generator)

    mirrored = uniform(0, 1) < 0.5
    frames[mirrored] = frames[mirrored].flip(3)
    target[mirrored] = -target[mirrored]

    down = uniform(-how.upward, how.upward + 1).floor().long().tolist()
    right = uniform(-how.sideways, how.sideways + 1).floor().long()
    for one, dy, dx in zip(frames, down, right.tolist(), strict=True):
        shift(one, dy, dx)
    target = (target + how.steering_per_pixel * right.unsqueeze(1)).clamp(-1, 1)

    gains = torch.cat([uniform(*how.gain, 1), uniform(*how.saturation, 1).expand(-1, 2)], dim=1)
    offsets = torch.cat([uniform(-how.offset, how.offset, 1), uniform(-how.tint, how.tint, 2)], dim=1)
    dark = uniform(0.4, 0.8)
    has_shadow = uniform(0, 1) < how.shadow
    lines = uniform(0, 1, 4)
    for i in range(B):
        light = gains[i].repeat(*frames.shape[2:4], 1)
        if has_shadow[i]:
            light[..., 0][shadow_mask(frames.shape[2], frames.shape[3], lines[i])] *= dark[i]
        # Colours turn about their neutral 128, the luminance about black.
        middle = torch.tensor([0.0, 128.0, 128.0])
        lit = (frames[i].float() - middle) * light + (middle + offsets[i])
        frames[i] = lit.clamp_(0, 255).to(torch.uint8)
    first = batch["t"][:, :1]
    t = first + (batch["t"] - first) * uniform(*how.pace, 1).to(batch["t"].dtype)
    return {**batch, "frames": frames, "target": target, "t": t}


def shift(frames: Tensor, down: int, right: int) -> None:
    """Move [T, H, W, 3] by whole pixels, in place; what comes in repeats the edge."""
    H, W = frames.shape[1:3]
    rows = (torch.arange(H) - down).clamp(0, H - 1)
    columns = (torch.arange(W) - right).clamp(0, W - 1)
    frames.copy_(frames[:, rows][:, :, columns])


def shadow_mask(height: int, width: int, numbers: Tensor) -> Tensor:
    """[height, width], True on one side of a line from the top edge to the bottom edge; ``numbers`` [4] in 0 .. 1."""
    top, bottom, side, _ = numbers.tolist()
    across = width * (top + (bottom - top) * torch.arange(height) / height)
    left: Tensor = torch.arange(width).unsqueeze(0) < across.unsqueeze(1)
    return ~left if side < 0.5 else left
