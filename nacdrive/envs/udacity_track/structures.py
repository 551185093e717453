"""What stands along a drawn road: guard rails, and tunnels under a mound of earth."""

from __future__ import annotations

from functools import partial

import numpy as np

from nacdrive.envs.udacity_track.appearance import Appearance
from nacdrive.envs.udacity_track.meshes import Quads
from nacdrive.envs.udacity_track.road import BLOCK, RAIL, Rows, edge, on_side, ribbon
from nacdrive.envs.udacity_track.track import Array, Track

BEAM = 0.45, 0.76
"""Metres: lower and upper edge of a guard rail."""
POST_M = 0.14
VAULT = 3.3, 4.9
"""Metres: height of a tunnel's walls, and of its ceiling."""
FLAT = 0.55
"""Share of the half width over which the ceiling is level."""
MOUND = 6.4
"""Metres: height of the earth over a tunnel."""
ROOF, FOOT = 1.6, 15.0
"""Metres beyond the edge of the asphalt: where the mound begins to fall, and where it meets the land."""
LAMP_EVERY = 3
"""Blocks of the road to one lamp."""


def structures(track: Track, appearance: Appearance, light: float) -> list[Quads]:
    """Everything, in its colours; ``light`` is that on level ground."""
    parts: list[Quads] = []
    blocks = np.arange(0, len(track.line), BLOCK)
    for side, sign in enumerate((-1, 1)):
        rows = blocks[track.rails[blocks, side]]
        parts += rail(track, sign, rows, 0.72 * light) if len(rows) else []
    if track.tunnel.any():
        parts += tunnel(track, blocks[track.tunnel[blocks]], appearance, light)
    return parts


def rail(track: Track, sign: int, rows: Rows, light: float) -> list[Quads]:
    """A beam at one side, darker along its middle, and its posts."""
    at, (low, high) = track.half_width + RAIL, BEAM
    third = (high - low) / 3
    steel = np.array((1.0, 1.0, 1.02))
    side = partial(on_side, track, sign, rows, at, at)
    parts = [
        side(steel * light * shade, heights=(low + k * third, low + (k + 1) * third))
        for k, shade in enumerate((1.0, 0.62, 1.1))
    ]
    along = np.stack([np.cos(track.heading[rows]), np.sin(track.heading[rows]), np.zeros(len(rows))], axis=1)
    foot, top = edge(track, rows, sign * at, -0.4), edge(track, rows, sign * at, low)
    half = along * POST_M / 2
    return [*parts, upright(foot - half, foot + half, top + half, top - half, steel * light * 0.5)]


def upright(*args: Array) -> Quads:
    """Quadrilaterals from four corners [n, 3] each, in turn, of one colour."""
    *corners, colour = args
    points = np.stack(corners, axis=1)
    return Quads(points, np.broadcast_to(colour, points.shape), np.zeros((len(points), 4, 2)))


def tunnel(track: Track, rows: Rows, appearance: Appearance, light: float) -> list[Quads]:
    """Walls and a vault with lamps, the mound above, and a wall around each mouth."""
    half = track.half_width
    wall, top = VAULT
    stone = np.array(appearance.concrete) * light
    grass = np.array(appearance.grass) * light
    lamps = rows[::LAMP_EVERY]
    parts = [
        ribbon(track, rows, -FLAT * half, FLAT * half, stone * 0.30, heights=(top, top)),
        ribbon(track, lamps, -0.25, 0.25, (1.0, 0.97, 0.85), heights=(top - 0.05, top - 0.05), step=1),
        ribbon(track, rows, -half - ROOF, half + ROOF, grass * 0.95, heights=(MOUND, MOUND)),
    ]
    for sign in (-1, 1):
        side = partial(on_side, track, sign, rows)
        parts += [
            side(half, half, stone * 0.36, heights=(-0.1, wall)),
            side(FLAT * half, half, stone * 0.33, heights=(top, wall)),
            side(half + ROOF, half + FOOT, grass * 0.85, heights=(MOUND, -3.0)),
        ]
    # Rows that no other row leads to, or that lead to none, are where the tunnel begins and ends.
    count = len(track.line)
    first = rows[~np.isin((rows - BLOCK) % count, rows)]
    last = (rows[~np.isin((rows + BLOCK) % count, rows)] + BLOCK) % count
    for at in (first, last):
        parts += mouth(track, at, stone * 0.8)
    return parts


def mouth(track: Track, at: Rows, colour: Array) -> list[Quads]:
    """The wall around one mouth of a tunnel: a lintel, two pillars, two wings."""
    half, (wall, top) = track.half_width, VAULT
    flat, roof, foot = FLAT * half, half + ROOF, half + FOOT

    def part(*corners: tuple[float, float], shade: float = 1.0) -> Quads:
        """Between corners that are so far to the right of the middle and above it."""
        return upright(*(edge(track, at, offset, height) for offset, height in corners), colour * shade)

    parts = [part((-flat, top), (flat, top), (flat, MOUND), (-flat, MOUND))]
    for sign in (-1, 1):
        parts += [
            part((sign * flat, top), (sign * half, wall), (sign * half, MOUND), (sign * flat, MOUND)),
            part((sign * half, -0.3), (sign * roof, -0.8), (sign * roof, MOUND), (sign * half, MOUND)),
            part((sign * roof, -0.8), (sign * foot, -3.0), (sign * foot, -3.0), (sign * roof, MOUND), shade=0.95),
        ]
    return parts
