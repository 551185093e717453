"""Pictures of drives: decoded as networks see them, and changed as a camera might see them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.common.camera_mount import upright
from nacdrive.common.errors import UserError
from nacdrive.tasks.sample import Batch

NOISY = 0.5
"""Share of the sequences with continuous labels that are seen through a noisy camera, ..."""
MOST_NOISE = 0.1
"""... and its largest standard deviation, as a share of full scale."""
NOISE_PLACES = 2**16


def relight(frames: Tensor, generator: torch.Generator, darkest: float = 0.8) -> Tensor:
    """Each sequence of uint8 [B, T, H, W, 3] up to a fifth brighter or darker, or as dark, the same for all frames."""
    B, T, H, W, C = frames.shape
    gain = torch.empty(B, 1).uniform_(darkest, 1.2, generator=generator)
    offset = torch.empty(B, 1).uniform_(-15, 15, generator=generator)
    tables = (gain * torch.arange(256) + offset).clamp(0, 255).to(torch.uint8).numpy()
    lit = torch.empty_like(frames)
    for new, old, table in zip(lit, frames, tables, strict=True):
        cv2.LUT(old.view(T * H, W * C).numpy(), table, dst=new.view(T * H, W * C).numpy())
    return lit


def noisy(frames: Tensor, generator: torch.Generator) -> Tensor:
    """Some sequences of uint8 [B, T, H, W, 3] with Gaussian noise on every pixel and channel, in place."""
    B, T, H, W, C = frames.shape
    strength = 255 * MOST_NOISE * torch.rand(B, generator=generator) * (torch.rand(B, generator=generator) < NOISY)
    rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    size = T * H * W * C
    # One draw for the whole batch, from another place on for each sequence: a fifth of the time.
    drawn = rng.standard_normal(size + NOISE_PLACES, dtype=np.float32)
    for sequence, std in zip(frames.view(B, T * H, W * C).numpy(), strength.tolist(), strict=True):
        if std:
            first = int(rng.integers(NOISE_PLACES))
            noise = drawn[first : first + size].reshape(sequence.shape) * np.float32(std)
            cv2.add(sequence, noise, dst=sequence, dtype=cv2.CV_8U)
    return frames


def move(frames: Tensor, down: int, right: int) -> None:
    """Move [T, H, W, 3] by whole pixels, in place; the strip that is left free keeps what it showed."""
    H, W = frames.shape[1:3]
    source = frames[:, max(0, -down) : H - max(0, down), max(0, -right) : W - max(0, right)].clone()
    frames[:, max(0, down) : H - max(0, -down), max(0, right) : W - max(0, -right)] = source


CAMERA = (160, 320)
"""Rows and columns of the Udacity simulator's pictures."""
CROP = (60, CAMERA[0] - 25)
"""Rows that are kept: neither sky nor hood."""
SEEN = (66, 200)
"""Rows and columns that the convolutions see."""


def prepare(frame: NDArray[np.uint8], crooked: bool = False, rows: tuple[int, int] = CROP) -> NDArray[np.uint8]:
    """[160, 320, 3] RGB -> [66, 200, 3] YUV: the quick twin of ``models.driving``, within one grey level.

    The picture of a ``crooked`` camera is turned upright first.
    """
    kept = upright(frame, *rows) if crooked else frame[slice(*rows)]
    cut = cv2.resize(kept, SEEN[::-1], interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.cvtColor(cut, cv2.COLOR_RGB2YUV), dtype=np.uint8)


def prepared(images: Iterable[bytes], where: str, crooked: bool, rows: tuple[int, int]) -> NDArray[np.uint8]:
    """Encoded images of the Udacity simulator -> uint8 [N, 66, 200, 3] YUV; see ``prepare``."""
    out = []
    for i, data in enumerate(images):
        frame = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
        if frame is None or frame.shape != (*CAMERA, 3):
            what = "cannot be decoded" if frame is None else f"is {frame.shape[1]}x{frame.shape[0]}"
            problem = f"image {i} of {where} {what}"
            raise UserError(f"{problem}: the simulator records {CAMERA[1]}x{CAMERA[0]} pixels; leave that drive out.")
        out.append(prepare(np.asarray(frame, dtype=np.uint8), crooked, rows))
    return np.stack(out)


@dataclass(frozen=True)
class Augmentation:
    """How far each change of a picture of a road may go; frames are [66, 200] pixels in YUV."""

    sideways: int = 12  # pixels by which the road may move to either side: the car points elsewhere
    steering_per_pixel: float = 0.006  # steering that leads back from one such pixel
    upward: int = 5  # pixels up or down: a hill, a nodding car
    gain: tuple[float, float] = (0.55, 1.3)  # of the luminance
    offset: float = 20.0  # of the luminance, to either side
    saturation: tuple[float, float] = (0.5, 1.4)  # of the colours
    tint: float = 8.0  # offset of each colour channel, to either side
    shadow: float = 0.5  # share of the sequences with a shadow across the road
    pace: tuple[float, float] = (0.25, 1.5)
    """Of the time stamps: a simulator may run slower or faster than the recording did."""


def augmented(batch: Batch, how: Augmentation, generator: torch.Generator) -> Batch:
    """A batch as it might also have been; ``batch`` stays as it is.

    Its fields: ``frames`` uint8 [B, T, 66, 200, 3], ``t`` [B, T], ``target`` [B, T] steering, and ``right_hand`` [B, T]
    where there is traffic on the right, which a mirror would put on the left.
    """
    frames, target = batch["frames"].clone(), batch["target"].clone()
    B = len(frames)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.empty(B, *shape).uniform_(low, high, generator=generator)

    mirrored = (uniform(0, 1) < 0.5) & ~batch.get("right_hand", torch.zeros(B, 1, dtype=torch.bool)).any(1)
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
        frames[i] = ((frames[i].float() - middle) * light + (middle + offsets[i])).clamp_(0, 255).to(torch.uint8)
    first = batch["t"][:, :1]
    t = first + (batch["t"] - first) * uniform(*how.pace, 1).to(batch["t"].dtype)
    return {**batch, "frames": frames, "target": target, "t": t}


def shift(frames: Tensor, down: int, right: int) -> None:
    """Move [T, H, W, 3] by whole pixels, in place; what comes in repeats the edge."""
    H, W = frames.shape[1:3]
    rows = (torch.arange(H) - down).clamp(0, H - 1)
    frames.copy_(frames[:, rows][:, :, (torch.arange(W) - right).clamp(0, W - 1)])


def shadow_mask(height: int, width: int, numbers: Tensor) -> Tensor:
    """[height, width], True on one side of a line from the top edge to the bottom edge; ``numbers`` [4] in 0 .. 1."""
    top, bottom, side, _ = numbers.tolist()
    across = width * (top + (bottom - top) * torch.arange(height) / height)
    left: Tensor = torch.arange(width).unsqueeze(0) < across.unsqueeze(1)
    return ~left if side < 0.5 else left
