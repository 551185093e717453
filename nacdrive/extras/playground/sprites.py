"""What the page's camera cannot draw by itself as pygame does: the car by the angle of its wheels, and the score."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.envs.carracing.sprites import car_sprite, score_picture

STEPS = range(-45, 46)
"""Hundredths of a radian of the front wheels; joints let them go to 0.4, and some way further where they are pushed."""
SCORES = range(-100, 1001)


def packed(arrays: list[NDArray[Any]], kind: str) -> str:
    """Arrays of one shape as base64, little-endian."""
    return base64.b64encode(np.stack(arrays).astype(kind).tobytes()).decode("ascii")


def sprites() -> dict[str, Any]:
    """All of them as ``page/camera.js`` takes them: plain JSON."""
    cars = [car_sprite(step, rgb=True) for step in STEPS]
    # The wheels are black and the hull is red, so that nothing is added to green and blue.
    texts = ["-000", *(f"{score:04.0f}" for score in SCORES)]
    return {
        "firstAngle": STEPS.start,
        "stays": packed([stays[..., 0] for stays, _ in cars], "<u2"),
        "red": packed([added[..., 0] for _, added in cars], "<u2"),
        "firstScore": SCORES.start,
        "scores": packed([score_picture(text, rgb=True)[..., 0] for text in texts], "u1"),
    }
