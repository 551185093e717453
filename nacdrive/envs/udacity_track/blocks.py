"""Houses, boulders and cars as boxes: what stands beside a drawn road, and on it."""

from __future__ import annotations

import numpy as np

from nacdrive.envs.udacity_track.appearance import Appearance
from nacdrive.envs.udacity_track.meshes import Quads
from nacdrive.envs.udacity_track.track import Array

FACES = np.array(
    [
        [(-1, -1, 0), (1, -1, 0), (1, -1, 1), (-1, -1, 1)],
        [(1, -1, 0), (1, 1, 0), (1, 1, 1), (1, -1, 1)],
        [(1, 1, 0), (-1, 1, 0), (-1, 1, 1), (1, 1, 1)],
        [(-1, 1, 0), (-1, -1, 0), (-1, -1, 1), (-1, 1, 1)],
        [(-1, -1, 1), (1, -1, 1), (1, 1, 1), (-1, 1, 1)],
    ],
    dtype=float,
)
"""Corners of a box without a floor: half a side to the right and forward, a side up."""
NORMALS = np.array([(0, -1, 0), (1, 0, 0), (0, 1, 0), (-1, 0, 0), (0, 0, 1)], dtype=float)
WALLS = ((0.86, 0.82, 0.74), (0.78, 0.62, 0.48), (0.70, 0.72, 0.74), (0.80, 0.45, 0.36), (0.92, 0.90, 0.86))
ROOFS = ((0.50, 0.24, 0.18), (0.30, 0.30, 0.33), (0.42, 0.32, 0.24))
PAINTS = ((0.75, 0.12, 0.10), (0.12, 0.25, 0.60), (0.85, 0.85, 0.86), (0.10, 0.10, 0.12), (0.55, 0.57, 0.60),
          (0.12, 0.42, 0.25), (0.90, 0.72, 0.10))  # fmt: skip
CAR = 1.75, 4.3, 1.42
"""Width, length and height of a car in metres."""


def boxes(
    places: Array, sizes: Array, turns: Array, colours: Array, appearance: Appearance, taper: float = 1.0
) -> Quads:
    """Boxes with the middles of their floors at ``places`` [n, 3], ``sizes`` [n, 3] (width, length, height) in metres,
    along ``turns`` [n] radians, in ``colours`` RGB [n, 3] and the day's light; ``taper``: size of top over floor.
    """
    cos, sin = np.cos(turns), np.sin(turns)
    zero, one = np.zeros_like(cos), np.ones_like(cos)
    # Columns: right, forward and up of the box in the world.
    axes = np.stack([np.stack([sin, -cos, zero], 1), np.stack([cos, sin, zero], 1), np.stack([zero, zero, one], 1)], 2)
    shape = FACES.copy()
    shape[:, :, :2] *= np.where(shape[:, :, 2:] > 0, taper, 1.0)
    local = shape[None] * (sizes * (0.5, 0.5, 1.0))[:, None, None, :]
    corners = np.einsum("nij,nfcj->nfci", axes, local) + places[:, None, None, :]
    facing = np.clip(np.einsum("nij,fj->nfi", axes, NORMALS) @ np.array(appearance.sun), 0, None)
    light = appearance.exposure * (appearance.ambient + (1 - appearance.ambient) * facing)
    lit = np.clip(colours[:, None, None, :] * light[:, :, None, None], 0, 1)
    lit = np.broadcast_to(lit, corners.shape).reshape(-1, 4, 3)
    return Quads(corners.reshape(-1, 4, 3), lit, np.zeros((len(lit), 4, 2)))


def houses(places: Array, rng: np.random.Generator, appearance: Appearance) -> Quads:
    """Walls and a roof that leans inwards, at each of ``places`` [n, 3]."""
    count = len(places)
    sizes = np.c_[rng.uniform(5, 9, count), rng.uniform(6, 14, count), rng.uniform(2.6, 6, count)]
    turns = rng.uniform(0, 2 * np.pi, count)
    walls = boxes(places - np.array((0, 0, 0.8)), sizes, turns, rng.choice(WALLS, count), appearance)
    above = places + np.c_[np.zeros((count, 2)), sizes[:, 2] - 0.8]
    roof = np.c_[sizes[:, :2] * 1.12, rng.uniform(1.2, 2.6, count)]
    return Quads.joined([walls, boxes(above, roof, turns, rng.choice(ROOFS, count), appearance, 0.35)])


def boulders(places: Array, rng: np.random.Generator, appearance: Appearance) -> Quads:
    """Rocks, at each of ``places`` [n, 3]."""
    count = len(places)
    sizes = rng.uniform(0.5, 2.4, (count, 1)) * rng.uniform(0.6, 1.4, (count, 3)) * (1, 1, 0.7)
    colours = np.array(appearance.rock) * rng.uniform(0.7, 1.15, (count, 1))
    return boxes(
        places - np.array((0, 0, 0.3)), sizes, rng.uniform(0, 2 * np.pi, count), colours, appearance, taper=0.6
    )


def cars(places: Array, turns: Array, rng: np.random.Generator, appearance: Appearance) -> Quads:
    """Cars of several colours, at each of ``places`` [n, 3] on the ground, along ``turns`` [n] radians."""
    count = len(places)
    width, length, height = CAR
    paints = rng.choice(PAINTS, count)
    ahead = np.stack([np.cos(turns), np.sin(turns), np.zeros(count)], axis=1)

    def part(low: float, high: float, long: float, colours: Array, taper: float, wide: float = 1.0) -> Quads:
        sizes = np.broadcast_to((width * wide, length * long, high - low), (count, 3)).astype(float)
        middle = places + np.array((0.0, 0.0, low)) - ahead * (0.25 if taper < 1 else 0.0)
        return boxes(middle, sizes, turns, colours, appearance, taper)

    dark = np.broadcast_to((0.05, 0.05, 0.06), (count, 3)).astype(float)
    return Quads.joined(
        [
            part(0.02, 0.34, 0.86, dark, 1.0, 0.92),
            part(0.28, 0.86, 1.0, paints, 1.0),
            part(0.86, height, 0.56, dark * 3, 0.78, 0.95),
            part(height - 0.03, height + 0.03, 0.40, paints, 1.0, 0.74),
        ]
    )
