"""Closed outlines that cannot cross themselves: the border of a random clump of squares, bent and rounded off."""

from __future__ import annotations

import math

import numpy as np

from nacdrive.envs.udacity_track.track import Array, evenly_spaced

Square = tuple[int, int]
BESIDE = ((1, 0), (0, 1), (-1, 0), (0, -1))
ARC_STEP = 1.5
"""Metres between two points of a rounded corner, before the line is spaced evenly."""


def clump(rng: np.random.Generator, count: int) -> set[Square]:
    """``count`` squares that hang together, without holes, none touching another at a corner alone.

    Squares with one neighbour are preferred: the border then runs in and out, instead of around a disc.
    """
    squares: set[Square] = {(0, 0)}
    while len(squares) < count:
        border = sorted({(x + i, y + j) for x, y in squares for i, j in BESIDE} - squares)
        weights = np.array([_fits(squares, at) for at in border])
        squares.add(border[int(rng.choice(len(border), p=weights / weights.sum()))])
    return squares


def _fits(squares: set[Square], at: Square) -> float:
    """How gladly a square is added at ``at``: 0 where the border would touch itself."""
    x, y = at
    ring = [
        (x + i, y + j) in squares for i, j in ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1))
    ]
    # With one run of neighbours around it, the border stays one line that meets itself nowhere.
    runs = sum(ring[k] and not ring[k - 1] for k in range(8))
    if runs != 1:
        return 0.0
    return 1.0 if sum(ring[::2]) == 1 else 0.15


def border_of(squares: set[Square]) -> Array:
    """Corners [n, 2] of the squares' common border, counter-clockwise, one per unit of its length."""
    following: dict[Square, Square] = {}
    for x, y in squares:
        corners = ((x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1))
        for k, (i, j) in enumerate(((0, -1), (1, 0), (0, 1), (-1, 0))):
            if (x + i, y + j) not in squares:
                if corners[k] in following:
                    raise ValueError("two squares touch at a corner alone")
                following[corners[k]] = corners[(k + 1) % 4]
    line = [min(following)]
    while (at := following[line[-1]]) != line[0]:
        line.append(at)
    if len(line) != len(following):
        raise ValueError("the squares have a hole")
    return np.array(line, dtype=float)


def bent(border: Array, rng: np.random.Generator, side: float, shift: float, straight: float) -> Array:
    """The border of squares of ``side`` metres: corners moved at random by ``shift`` of that (the standard deviation),
    those on straights left out with probability ``straight``, turned and stretched.
    """
    before, after = border - np.roll(border, 1, axis=0), np.roll(border, -1, axis=0) - border
    kept = (before != after).any(axis=1) | (rng.random(len(border)) >= straight)
    points = (border + np.clip(rng.standard_normal(border.shape), -1.6, 1.6) * shift)[kept] * side
    angle, stretch_angle = rng.uniform(0, 2 * np.pi, 2)
    stretch = math.sqrt(rng.uniform(0.8, 1.25))
    along = np.array((math.cos(stretch_angle), math.sin(stretch_angle)))
    points = points + np.outer(points @ along, along) * (stretch - 1)
    cos, sin = math.cos(angle), math.sin(angle)
    turned: Array = points @ np.array(((cos, sin), (-sin, cos)))
    return np.asarray(turned - turned.mean(axis=0))


def swayed(line: Array, rng: np.random.Generator) -> Array:
    """``line`` [n, 2] on a plane that waves have bent, so that nothing on it is quite straight or quite an arc.

    The waves are long beside their height: lines that did not cross do not cross afterwards.
    """
    moved = line.copy()
    for _ in range(3):
        (across, along), phase = rng.uniform(0, 2 * np.pi, 2), rng.uniform(0, 2 * np.pi)
        wavelength = rng.uniform(140, 320)
        height = rng.uniform(0.03, 0.20) * wavelength / (2 * np.pi)
        wave = np.sin(2 * np.pi / wavelength * (line @ (np.cos(along), np.sin(along))) + phase)
        moved += height * wave[:, None] * np.array((np.cos(across), np.sin(across)))
    return moved


def rounded_corners(points: Array, rng: np.random.Generator, least: float) -> Array:
    """A closed line [m, 2], a point per metre, along ``points`` [n, 2] with every corner an arc.

    Radii are drawn evenly on a logarithmic scale from ``least`` metres to the largest that fits between the corners.
    """
    before, after = np.roll(points, 1, axis=0) - points, np.roll(points, -1, axis=0) - points
    lengths = np.linalg.norm(before, axis=1), np.linalg.norm(after, axis=1)
    before, after = before / lengths[0][:, None], after / lengths[1][:, None]
    # Half of the angle by which the road turns.
    half = (np.pi - np.arccos(np.clip((before * after).sum(axis=1), -1, 1))) / 2
    room = 0.47 * np.minimum(*lengths)
    largest = np.maximum(room / np.maximum(np.tan(half), 1e-3), least)
    radii = np.minimum(least * np.exp(rng.random(len(points)) * np.log(np.minimum(largest, 400) / least)), largest)
    tangent = np.minimum(radii * np.tan(half), room)
    parts = []
    for k, corner in enumerate(points):
        begin, end = corner + before[k] * tangent[k], corner + after[k] * tangent[k]
        share = np.linspace(0, 1, max(2, int(2 * half[k] * radii[k] / ARC_STEP) + 1))[:, None]
        # An arc as a rational quadratic curve: weight of the corner is the cosine of half the turn.
        weight = math.cos(half[k])
        scale = (1 - share) ** 2 + 2 * weight * share * (1 - share) + share**2
        parts.append(((1 - share) ** 2 * begin + 2 * weight * share * (1 - share) * corner + share**2 * end) / scale)
    return evenly_spaced(np.concatenate(parts))
