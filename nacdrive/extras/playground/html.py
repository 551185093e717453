"""The playground as one file that fetches nothing: the files of ``page/``, a network, and the pictures of its car."""

from __future__ import annotations

import base64
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.version import __version__
from nacdrive.envs.carracing.sprites import car_sprite, draw_score, score_font

PARTS = Path(__file__).parent / "page"
STEPS = range(-45, 46)
"""Hundredths of a radian of the front wheels; joints let them go to 0.4, and some way further where they are pushed."""
SCORES = range(-100, 1001)


def playground_page(name: str, style: str, data: dict[str, str], script: str) -> str:
    """The whole page of the policy ``name``; its own style builds on ``style``, that of a shared lap.

    ``data`` are JSON and base64 of the elements that ``script``, ``page/playground.js`` with all that it imports,
    reads: ``description``, ``weights``, ``sprites``, ``repeat``.
    """
    return Template((PARTS / "page.html").read_text(encoding="utf-8")).substitute(
        version=__version__,
        name=escape(name),
        style=f"{style}\n{(PARTS / 'page.css').read_text(encoding='utf-8')}",
        script=script,
        **data,
    )


def packed(arrays: list[NDArray[Any]], kind: str) -> str:
    """Arrays of one shape as base64, little-endian."""
    return base64.b64encode(np.stack(arrays).astype(kind).tobytes()).decode("ascii")


def sprites() -> dict[str, Any]:
    """For ``page/camera.js``, plain JSON, what only pygame can draw: the car by the angle of its wheels, the score."""
    cars = [car_sprite(step, rgb=True) for step in STEPS]
    # The wheels are black and the hull is red, so that nothing is added to green and blue.
    return {
        "firstAngle": STEPS.start,
        "stays": packed([stays[..., 0] for stays, _ in cars], "<u2"),
        "red": packed([added[..., 0] for _, added in cars], "<u2"),
        "firstScore": SCORES.start,
        "scores": score_pictures(),
    }


@cache
def score_pictures() -> str:
    """The score's pictures in the order of ``SCORES``, less than nothing before them."""
    font, texts = score_font(), ["-000", *(f"{score:04.0f}" for score in SCORES)]
    return packed([draw_score(font, text, rgb=True)[..., 0] for text in texts], "u1")
