"""The road as quadrilaterals: asphalt, yellow lines, kerbs, the bridge; for drawing and for driving on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from nacdrive.envs.udacity_track.appearance import Appearance, Colour
from nacdrive.envs.udacity_track.meshes import Quads
from nacdrive.envs.udacity_track.track import Track

Rows = NDArray[np.int64]
"""Points of the centre line at which rows of quadrilaterals begin."""
Ribbon = Callable[..., Quads]
"""``ribbon`` or ``on_side`` with the track given."""

BLOCK = 4
"""Points of the centre line to one row of quadrilaterals that are drawn; half as many in bends."""
STONE = (0.88, 0.78, 0.70)
KERBED = 1 / 130
"""Curvature from which a bend has red and white kerbs."""
LINE = 0.13
"""Metres: width of a painted line."""
VERGE = 0.65
"""Metres inside the road's edge at which the inner line is painted."""
SHOULDER = 1.3
"""Metres of concrete beyond the edge."""
WALL = 0.9
"""Metres: height of the walls of the bridge."""


def ribbon(
    track: Track,
    rows: Rows,
    left: float,
    right: float,
    colour: Colour | NDArray[np.float64],
    *,
    heights: tuple[float, float] = (0.0, 0.0),
    texture_m: float = 4.0,
    step: int = BLOCK,
) -> Quads:
    """Quadrilaterals from offset ``left`` to offset ``right`` (metres right of the centre line), one per row.

    ``heights`` are metres above the road's surface at both offsets; ``colour`` may have one entry per row.
    """
    count = len(track.line)
    ends = np.minimum(rows + step, count)
    uv = np.empty((len(rows), 4, 2))
    uv[:, [0, 3], 1], uv[:, [1, 2], 1] = rows[:, None] / texture_m, ends[:, None] / texture_m
    uv[:, :2, 0], uv[:, 2:, 0] = right / texture_m, left / texture_m
    corners = np.stack(
        [
            edge(track, index % count, offset, height)
            for index, offset, height in (
                (rows, right, heights[1]),
                (ends, right, heights[1]),
                (ends, left, heights[0]),
                (rows, left, heights[0]),
            )
        ],
        axis=1,
    )
    colours = np.broadcast_to(np.atleast_2d(np.asarray(colour, dtype=float))[:, None, :], (len(rows), 4, 3))
    return Quads(corners, colours, uv)


def edge(track: Track, index: Rows, offset: float, height: float) -> NDArray[np.float64]:
    """Points [n, 3] beside the centre line, ``offset`` metres to its right and ``height`` above it."""
    points = track.line[index].copy()
    points[:, :2] -= track.left[index] * offset
    points[:, 2] += height
    return points


def surface(track: Track) -> Quads:
    """What the wheels roll on, a row per metre: from kerb to kerb, the slopes down to the land, the bridge's walls."""
    every = np.arange(len(track.line))
    walls = every[track.bridge]
    half, out = track.half_width, track.half_width + SHOULDER
    parts = [ribbon(track, every, -out, out, (1, 1, 1), step=1)]
    for sign in (-1, 1):
        parts.append(on_side(track, sign, every, out, out + 4, (1, 1, 1), heights=(0.0, -1.2), step=1))
        parts.append(on_side(track, sign, walls, half, half + 0.05, (1, 1, 1), heights=(-0.2, WALL), step=1))
    return Quads.joined(parts)


def on_side(
    track: Track,
    sign: int,
    rows: Rows,
    inner: float,
    outer: float,
    colour: Colour | NDArray[np.float64],
    *,
    heights: tuple[float, float] = (0.0, 0.0),
    step: int = BLOCK,
    texture_m: float = 4.0,
) -> Quads:
    """A ribbon at the right (``sign`` 1) or the left (-1) side of the road, seen from above."""
    if sign > 0:
        return ribbon(track, rows, inner, outer, colour, heights=heights, step=step, texture_m=texture_m)
    return ribbon(track, rows, -outer, -inner, colour, heights=heights[::-1], step=step, texture_m=texture_m)


def painted(track: Track, appearance: Appearance) -> dict[str, Quads]:
    """All that is drawn of the road, by texture: ``asphalt``, ``cobbles``, ``soil`` and ``plain``.

    Colours count in ``plain`` alone; the others are of one colour each: ``appearance.asphalt``, ``STONE`` and
    ``appearance.earth``.
    """
    blocks = np.arange(0, len(track.line), BLOCK)
    bend = np.maximum.reduceat(np.abs(track.curvature), blocks) > KERBED
    bridge, earth = track.bridge[blocks], track.earth_edge[blocks]
    stretches = [(blocks[~bend], BLOCK), (np.concatenate([blocks[bend], blocks[bend] + BLOCK // 2]), BLOCK // 2)]
    kinds: dict[str, list[Quads]] = {"asphalt": [], "cobbles": [], "soil": [], "plain": []}
    for (rows, step), kerbed in zip(stretches, (False, True), strict=True):
        rows = rows[rows < len(track.line)]
        on_bridge, on_earth = bridge[rows // BLOCK], earth[rows // BLOCK]
        lane(kinds, partial(ribbon, track, step=step), track, rows[~on_bridge], appearance)
        kinds["cobbles"].append(
            ribbon(track, rows[on_bridge], -track.half_width, track.half_width, STONE, texture_m=3.0, step=step)
        )
        for sign in (-1, 1):
            side = partial(on_side, track, sign, step=step)
            edges(kinds, side, track.half_width, rows[~on_bridge & ~on_earth], appearance, kerbed=kerbed)
            earth_edges(kinds, side, track.half_width, rows[~on_bridge], rows[on_earth], appearance)
            bridge_walls(kinds, side, track.half_width, rows[on_bridge])
    return {name: Quads.joined(parts) for name, parts in kinds.items()}


def lane(kinds: dict[str, list[Quads]], across: Ribbon, track: Track, rows: Rows, appearance: Appearance) -> None:
    """The asphalt between the painted lines, and the dashes along its middle."""
    inner, half_line = track.half_width - VERGE, LINE / 2
    dashes = rows[(rows // 8) % 2 > 0] if track.centre_line else rows[:0]
    kinds["asphalt"] += [
        across(rows, -inner, -half_line, appearance.asphalt),
        across(rows, half_line, inner, appearance.asphalt),
        across(np.setdiff1d(rows, dashes), -half_line, half_line, appearance.asphalt),
    ]
    kinds["plain"].append(across(dashes, -half_line, half_line, appearance.marking))


def edges(
    kinds: dict[str, list[Quads]], side: Ribbon, half: float, rows: Rows, appearance: Appearance, *, kerbed: bool
) -> None:
    """The lines and what lies beyond them: a dark strip and concrete, in bends red and white kerbs."""
    inner = half - VERGE
    kinds["plain"].append(side(rows, inner, inner + LINE, appearance.marking))
    if kerbed:
        kinds["plain"] += [
            side(rows, inner + LINE, half + 0.25, stripes(rows, appearance)),
            side(rows, half + 0.25, half + SHOULDER, np.array(appearance.concrete) * 1.3),
        ]
        return
    kinds["plain"] += [
        side(rows, inner + LINE, half - 0.1, appearance.verge),
        side(rows, half - 0.1, half, appearance.marking),
        side(rows, half, half + SHOULDER, appearance.concrete, heights=(0.0, 0.05)),
    ]


def earth_edges(
    kinds: dict[str, list[Quads]], side: Ribbon, half: float, rows: Rows, unmarked: Rows, appearance: Appearance
) -> None:
    """The slope beside the road, and earth from the asphalt on where no lines are."""
    kinds["asphalt"].append(side(unmarked, half - VERGE, half, appearance.asphalt))
    kinds["soil"] += [
        side(rows, half + SHOULDER, half + SHOULDER + 4, appearance.earth, heights=(0.0, -1.2)),
        side(unmarked, half, half + SHOULDER, appearance.earth),
    ]


def bridge_walls(kinds: dict[str, list[Quads]], side: Ribbon, half: float, rows: Rows) -> None:
    """A wall along the bridge: its inner face, its top, and its outer face down into the water."""
    kinds["plain"] += [
        side(rows, half, half, (0.05, 0.05, 0.06), heights=(0.0, WALL)),
        side(rows, half, half + 0.3, (0.04, 0.04, 0.05), heights=(WALL, WALL)),
        side(rows, half + 0.3, half + 0.3, (0.3, 0.29, 0.27), heights=(WALL, -4.0)),
    ]


def patch(track: Track, at: int, offset: float, length: float, width: float) -> Quads:
    """An oval on the road around point ``at`` and ``offset`` metres to the right, for a shadow."""
    ends = np.linspace(-1, 1, 7)
    half = np.sqrt(np.clip(1 - ends**2, 0, 1)) * width / 2
    index = (at + np.round(ends * length / 2 / track.spacing).astype(np.int64)) % len(track.line)
    reach = track.half_width
    left, right = (np.clip(offset + side * half, -reach, reach) for side in (-1, 1))
    edges = [track.line[index] - np.c_[track.left[index] * x[:, None], np.full(7, -0.03)] for x in (right, left)]
    corners = np.stack([edges[0][:-1], edges[0][1:], edges[1][1:], edges[1][:-1]], axis=1)
    return Quads(corners, np.ones_like(corners), np.zeros((6, 4, 2)))


def stripes(rows: Rows, appearance: Appearance) -> NDArray[np.float64]:
    """Red and white in turn, one colour per row."""
    white = np.array((0.88, 0.86, 0.82))
    return np.where((rows // 2 % 2 == 0)[:, None], np.array(appearance.kerb), white)
