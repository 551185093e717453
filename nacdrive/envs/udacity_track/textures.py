"""Painted textures, uint8 arrays. Grey ones are tinted by the colours of the vertices that they are laid on."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

SIDE = 128
Generator = np.random.Generator


def grain(rng: Generator, blur: float, side: int = SIDE) -> NDArray[np.float32]:
    """Noise that tiles, blurred over ``blur`` pixels, mean 0 and standard deviation 1, [side, side]."""
    noise = rng.standard_normal((side, side), dtype=np.float32)
    if blur > 0:
        edge = int(4 * blur) + 1
        noise = np.asarray(cv2.GaussianBlur(np.pad(noise, edge, mode="wrap"), (0, 0), blur), dtype=np.float32)
        noise = noise[edge:-edge, edge:-edge]
    scaled: NDArray[np.float32] = (noise - noise.mean()) / noise.std()
    return scaled


def grey(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Brightness 0 .. 1 [side, side] -> uint8 [side, side, 3]."""
    return np.repeat(np.clip(values * 255, 0, 255).astype(np.uint8)[:, :, None], 3, axis=2)


def asphalt(rng: Generator, contrast: float) -> NDArray[np.uint8]:
    """Coarse stones in tar; ``contrast`` is the standard deviation of the brightness."""
    stones = 0.85 * grain(rng, 0.8) + 0.5 * grain(rng, 2.0) + 0.3 * grain(rng, 10.0)
    return grey(0.74 + contrast * stones)


def soil(rng: Generator, contrast: float) -> NDArray[np.uint8]:
    """Earth, grass or rock, as tinted."""
    return grey(0.82 + contrast * (0.5 * grain(rng, 1.0) + 0.6 * grain(rng, 4.0) + 0.6 * grain(rng, 14.0)))


def cobbles(rng: Generator) -> NDArray[np.uint8]:
    """Rows of stones with light joints, as on the bridge."""
    rows, columns = 8, 8
    picture = np.full((SIDE, SIDE), 0.95, dtype=np.float32)
    height, width = SIDE // rows, SIDE // columns
    for row in range(rows):
        for column in range(columns + 1):
            x = column * width - (row % 2) * width // 2
            shade = float(rng.uniform(0.5, 0.85))
            cv2.rectangle(picture, (x + 1, row * height + 1), (x + width - 2, row * height + height - 2), shade, -1)
    return grey(picture + 0.06 * grain(rng, 1.0))


def pine(rng: Generator) -> NDArray[np.uint8]:
    """A tall tree with a bare trunk, RGBA [128, 64, 4]; what is transparent has alpha 0."""
    return crown(rng, centres=26, top=0.05, bottom=0.62, spread=0.34, trunk=0.09)


def oak(rng: Generator) -> NDArray[np.uint8]:
    """A round tree, RGBA [128, 64, 4]."""
    return crown(rng, centres=34, top=0.12, bottom=0.78, spread=0.40, trunk=0.11)


def bush(rng: Generator) -> NDArray[np.uint8]:
    """Stalks from the ground, RGBA [64, 128, 4]."""
    picture = np.zeros((64, 128, 4), dtype=np.uint8)
    for _ in range(150):
        x = int(rng.integers(6, 122))
        high = int((1 - ((x - 64) / 70) ** 2) * rng.uniform(20, 60))
        green = int(rng.integers(70, 150))
        cv2.line(picture, (x, 63), (x + int(rng.integers(-4, 5)), 63 - high), (green - 12, green, 34, 255), 3)
    return picture


def crown(rng: Generator, *, centres: int, top: float, bottom: float, spread: float, trunk: float) -> NDArray[np.uint8]:
    """Clusters of leaves around a trunk, darker below; shares of the picture's height and width."""
    high, wide = 128, 64
    picture = np.zeros((high, wide, 4), dtype=np.uint8)
    half = max(1, int(trunk * wide / 2))
    cv2.rectangle(picture, (wide // 2 - half, int(top * high) + 8), (wide // 2 + half, high - 1), (74, 58, 42, 255), -1)
    for share in np.sort(rng.uniform(0, 1, centres))[::-1]:
        y = int((top + 0.06 + share * (bottom - top)) * high)
        reach = spread * wide * (0.35 + 0.65 * np.sin(np.pi * min(1.0, share * 0.75 + 0.2)))
        x = int(wide / 2 + rng.uniform(-reach, reach))
        light = float(rng.uniform(0.55, 1.0)) * (1.0 - 0.35 * share)
        for _ in range(3):
            at = x + int(rng.integers(-4, 5)), y + int(rng.integers(-4, 5))
            tone = light * float(rng.uniform(0.75, 1.15))
            colour = (int(122 * tone), int(128 * tone), int(66 * tone), 255)
            cv2.ellipse(picture, at, (int(rng.integers(4, 10)), int(rng.integers(3, 7))), 0, 0, 360, colour, -1)
    picture[0] = 0
    return picture
