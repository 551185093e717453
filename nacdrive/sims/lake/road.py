"""The road as quadrilaterals: asphalt, yellow lines, kerbs, the bridge; for drawing and for driving on."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from nacdrive.sims.lake.layout import Course
from nacdrive.sims.lake.look import Colour, Look
from nacdrive.sims.lake.meshes import Quads

ROWS = 2
"""Points of the centre line to one row of quadrilaterals that are drawn."""
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
    course: Course,
    rows: NDArray[np.int64],
    left: float,
    right: float,
    colour: Colour | NDArray[np.float64],
    *,
    heights: tuple[float, float] = (0.0, 0.0),
    texture_m: float = 4.0,
    step: int = ROWS,
) -> Quads:
    """Quadrilaterals from offset ``left`` to offset ``right`` (metres right of the centre line), one per row.

    ``heights`` are metres above the road's surface at both offsets; ``colour`` may have one entry per row.
    """
    count = len(course.line)
    ends = np.minimum(rows + step, count)
    uv = np.empty((len(rows), 4, 2))
    uv[:, [0, 3], 1], uv[:, [1, 2], 1] = rows[:, None] / texture_m, ends[:, None] / texture_m
    uv[:, :2, 0], uv[:, 2:, 0] = right / texture_m, left / texture_m
    corners = np.stack(
        [
            edge(course, index % count, offset, height)
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


def edge(course: Course, index: NDArray[np.int64], offset: float, height: float) -> NDArray[np.float64]:
    """Points [n, 3] beside the centre line, ``offset`` metres to its right and ``height`` above it."""
    points = course.line[index].copy()
    points[:, :2] -= course.left[index] * offset
    points[:, 2] += height
    return points


def surface(course: Course) -> Quads:
    """What the wheels roll on, a row per metre: from kerb to kerb, the slopes down to the land, the bridge's walls."""
    every = np.arange(len(course.line))
    walls = every[course.bridge]
    half, out = course.half_width, course.half_width + SHOULDER
    parts = [ribbon(course, every, -out, out, (1, 1, 1), step=1)]
    for sign in (-1, 1):
        parts.append(on_side(course, sign, every, out, out + 4, (1, 1, 1), heights=(0.0, -1.2), step=1))
        parts.append(on_side(course, sign, walls, half, half + 0.05, (1, 1, 1), heights=(-0.2, WALL), step=1))
    return Quads.joined(parts)


def on_side(
    course: Course,
    sign: int,
    rows: NDArray[np.int64],
    inner: float,
    outer: float,
    colour: Colour | NDArray[np.float64],
    *,
    heights: tuple[float, float] = (0.0, 0.0),
    step: int = ROWS,
    texture_m: float = 4.0,
) -> Quads:
    """A ribbon at the right (``sign`` 1) or the left (-1) side of the road, seen from above."""
    if sign > 0:
        return ribbon(course, rows, inner, outer, colour, heights=heights, step=step, texture_m=texture_m)
    return ribbon(course, rows, -outer, -inner, colour, heights=heights[::-1], step=step, texture_m=texture_m)


def painted(course: Course, look: Look) -> dict[str, Quads]:
    """All that is drawn of the road, by texture: ``asphalt``, ``cobbles``, ``soil`` and ``plain``."""
    rows = np.arange(0, len(course.line), ROWS)
    bridge, earth = course.bridge[rows], course.earth_edge[rows]
    bend = np.abs(course.curvature[rows]) > KERBED
    edged = ~bridge & ~earth
    straight, kerbed = rows[edged & ~bend], rows[edged & bend]
    half = course.half_width
    inner, out = half - VERGE, half + SHOULDER
    dashes = rows[(rows // 4) % 3 > 0] if course.centre_line else rows[:0]
    asphalt = [ribbon(course, rows[~bridge], a, b, look.asphalt) for a, b in ((-inner, -LINE / 2), (LINE / 2, inner))]
    asphalt.append(ribbon(course, np.setdiff1d(rows[~bridge], dashes), -LINE / 2, LINE / 2, look.asphalt))
    plain = [ribbon(course, dashes, -LINE / 2, LINE / 2, look.marking)]
    soil: list[Quads] = []
    for sign in (-1, 1):
        side = partial(on_side, course, sign)
        asphalt += [
            side(rows[earth], inner, half, look.asphalt),
            side(straight, inner + LINE, half - 0.1, look.verge),
        ]
        plain += [
            side(rows[edged], inner, inner + LINE, look.marking),
            side(straight, half - 0.1, half, look.marking),
            side(straight, half, out, look.concrete, heights=(0.0, 0.05)),
            side(kerbed, inner + LINE, half + 0.25, stripes(kerbed, look)),
            side(kerbed, half + 0.25, out, np.array(look.concrete) * 1.3),
            side(rows[bridge], half, half + 0.3, (0.04, 0.04, 0.05), heights=(WALL, WALL)),
            wall(course, rows[bridge], sign),
        ]
        soil += [
            side(rows[~bridge], out, out + 4, look.earth, heights=(0.0, -1.2)),
            side(rows[earth], half, out, look.earth),
        ]
    cobbles = [ribbon(course, rows[bridge], -half, half, (0.88, 0.78, 0.70), texture_m=3.0)]
    kinds = {"asphalt": asphalt, "cobbles": cobbles, "soil": soil, "plain": plain}
    return {name: Quads.joined(parts) for name, parts in kinds.items()}


def patch(course: Course, at: int, offset: float, length: float, width: float) -> Quads:
    """An oval on the road around point ``at`` and ``offset`` metres to the right, for a shadow."""
    ends = np.linspace(-1, 1, 7)
    half = np.sqrt(np.clip(1 - ends**2, 0, 1)) * width / 2
    index = (at + np.round(ends * length / 2 / course.spacing).astype(np.int64)) % len(course.line)
    reach = course.half_width
    left, right = (np.clip(offset + side * half, -reach, reach) for side in (-1, 1))
    edges = [course.line[index] - np.c_[course.left[index] * x[:, None], np.full(7, -0.03)] for x in (right, left)]
    corners = np.stack([edges[0][:-1], edges[0][1:], edges[1][1:], edges[1][:-1]], axis=1)
    return Quads(corners, np.ones_like(corners), np.zeros((6, 4, 2)))


def wall(course: Course, rows: NDArray[np.int64], sign: int) -> Quads:
    """Both faces of a bridge's wall, down into the water on the outside."""
    dark: Colour = (0.05, 0.05, 0.06)
    half = course.half_width
    faces = [
        on_side(course, sign, rows, half, half, dark, heights=(0.0, WALL)),
        on_side(course, sign, rows, half + 0.3, half + 0.3, (0.3, 0.29, 0.27), heights=(WALL, -4.0)),
    ]
    return Quads.joined(faces)


def stripes(rows: NDArray[np.int64], look: Look) -> NDArray[np.float64]:
    """Red and white in turn, one colour per row."""
    white = np.array((0.88, 0.86, 0.82))
    return np.where(((rows // ROWS) % 2 == 0)[:, None], np.array(look.kerb), white)
