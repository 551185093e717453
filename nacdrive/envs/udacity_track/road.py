"""The road as quadrilaterals: surface, lines, kerbs, the bridge; for drawing and for driving on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.envs.udacity_track.appearance import Appearance, Colour
from nacdrive.envs.udacity_track.meshes import Quads
from nacdrive.envs.udacity_track.track import SHOULDER, Array, RoadStyle, Track

Rows = NDArray[np.int64]
"""Points of the centre line at which rows of quadrilaterals begin."""
BLOCK = 4
"""Points of the centre line to one row of quadrilaterals that are drawn; half as many in bends."""
STONE = (0.88, 0.78, 0.70)
KERBED = 1 / 130
"""Curvature from which a bend has red and white kerbs."""
VERGE = 0.65
"""Metres inside the road's edge at which the inner line is painted."""
WALL = 0.9
"""Metres: height of the walls of the bridge, and of what a car meets of a guard rail."""
RAIL = 0.55
"""Metres from the edge of the asphalt to a guard rail."""
LINE_INSIDE = 0.30
"""Metres from the edge of the asphalt to a line along it."""
DOUBLE_GAP = 0.09
"""Metres from the middle to each of two lines there."""
KERB_M = 0.45
DIM = 0.42
"""Light in a tunnel beside that outside."""
ROUGH_STEP = 2
"""Points of a drawn road to a row of what its wheels roll on."""


def ribbon(
    track: Track,
    rows: Rows,
    left: float,
    right: float,
    colour: Colour | Array,
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
    places = ((rows, right, heights[1]), (ends, right, heights[1]), (ends, left, heights[0]), (rows, left, heights[0]))
    corners = np.stack([edge(track, index % count, offset, height) for index, offset, height in places], axis=1)
    colours = np.broadcast_to(np.atleast_2d(np.asarray(colour, dtype=float))[:, None, :], (len(rows), 4, 3))
    return Quads(corners, colours, uv)


def edge(track: Track, index: Rows, offset: float | Array, height: float) -> Array:
    """Points [n, 3] beside the centre line, ``offset`` metres (one, or [n]) to its right and ``height`` above it."""
    points = track.line[index].copy()
    points[:, :2] -= track.left[index] * np.reshape(offset, (-1, 1))
    points[:, 2] += height
    points[:, 2] += track.bank[index] * offset
    return points


def surface(track: Track) -> Quads:
    """What wheels meet, a row a metre (of drawn roads two): kerb to kerb, slopes, walls of bridges, tunnels, rails."""
    step = 1 if track.road_seed is None else ROUGH_STEP
    every = np.arange(0, len(track.line), step)
    walls = every[(track.bridge | track.tunnel)[every]]
    half, out = track.half_width, track.half_width + SHOULDER
    parts = [ribbon(track, every, -out, out, (1, 1, 1), step=step)]
    for side, sign in enumerate((-1, 1)):
        parts.append(on_side(track, sign, every, out, out + 4, (1, 1, 1), heights=(0.0, -1.2), step=step))
        parts.append(on_side(track, sign, walls, half, half + 0.05, (1, 1, 1), heights=(-0.2, WALL), step=step))
        rows, at = every[track.rails[every, side]], half + RAIL
        parts.append(on_side(track, sign, rows, at, at + 0.05, (1, 1, 1), heights=(-0.2, WALL), step=step))
    return Quads.joined(parts)


def on_side(
    track: Track,
    sign: int,
    rows: Rows,
    inner: float,
    outer: float,
    colour: Colour | Array,
    *,
    heights: tuple[float, float] = (0.0, 0.0),
    **options: Any,
) -> Quads:
    """A ``ribbon`` with its ``options`` at the right (``sign`` 1) or the left (-1) of the road, seen from above."""
    if sign > 0:
        return ribbon(track, rows, inner, outer, colour, heights=heights, **options)
    return ribbon(track, rows, -outer, -inner, colour, heights=heights[::-1], **options)


def painted(track: Track, appearance: Appearance, bare: NDArray[np.bool_]) -> dict[str, Quads]:
    """All that is drawn of the road, by texture: ``asphalt``, ``dim``, ``cobbles``, ``soil`` and ``plain``.

    ``asphalt`` is whatever the road is laid with, ``dim`` the same in a tunnel. Colours count in ``plain`` alone; the
    others are of one colour each. ``bare``: where the marks have gone, [N].
    """
    blocks = np.arange(0, len(track.line), BLOCK)
    bend = np.maximum.reduceat(np.abs(track.curvature), blocks) > KERBED
    bridge, earth, tunnel, gone = (x[blocks] for x in (track.bridge, track.earth_edge, track.tunnel, bare))
    style = track.style
    unmarked = replace(style, edge_line="none", centre_line="none", kerbs="none")
    stretches = [(blocks[~bend], BLOCK), (np.concatenate([blocks[bend], blocks[bend] + BLOCK // 2]), BLOCK // 2)]
    kinds: dict[str, list[Quads]] = {"asphalt": [], "dim": [], "cobbles": [], "soil": [], "plain": []}
    inside: dict[str, list[Quads]] = {name: [] for name in kinds}
    for (rows, step), in_bend in zip(stretches, (False, True), strict=True):
        rows = rows[rows < len(track.line)]
        on_bridge, on_earth, hidden = (marks[rows // BLOCK] for marks in (bridge, earth, tunnel))
        worn = gone[rows // BLOCK]
        common = Brush(track, appearance, style, step, kinds)
        common.across("cobbles", rows[on_bridge], -track.half_width, track.half_width, STONE, texture_m=3.0)
        # Nearly always one part alone: outside, with its marks.
        for target, looks, chosen in (
            (kinds, style, ~hidden & ~worn),
            (kinds, unmarked, ~hidden & worn),
            (inside, style, hidden & ~worn),
            (inside, unmarked, hidden & worn),
        ):
            kerbed = looks.kerbs == "everywhere" or (in_bend and looks.kerbs == "bends")
            if chosen.any():
                part = chosen & ~on_bridge
                brush = Brush(track, appearance, looks, step, target)
                brush.lane(rows[part])
                for sign in (-1, 1):
                    brush.edge(sign, rows[part & ~on_earth], kerbed=kerbed)
        for sign in (-1, 1):
            common.earth_edge(sign, rows[~on_bridge], rows[on_earth])
            common.bridge_wall(sign, rows[on_bridge])
    kinds["dim"] += inside["asphalt"]
    kinds["plain"] += [Quads(quads.corners, quads.colours * DIM, quads.uv) for quads in inside["plain"]]
    return {name: Quads.joined(parts) for name, parts in kinds.items() if parts}


@dataclass(frozen=True)
class Brush:
    """Draws stretches of a road, a row for ``step`` points, and keeps what it has drawn by its texture."""

    track: Track
    appearance: Appearance
    style: RoadStyle
    step: int
    drawn: dict[str, list[Quads]]

    def across(self, kind: str, *where: Any, **options: Any) -> None:
        self.drawn[kind].append(ribbon(self.track, *where, step=self.step, **options))

    def beside(self, kind: str, sign: int, *where: Any, **options: Any) -> None:
        self.drawn[kind].append(on_side(self.track, sign, *where, step=self.step, **options))

    @property
    def inner_edge(self) -> float:
        """Metres from the middle to where the line along the edge begins, or the asphalt ends."""
        inset = {"double": VERGE, "none": 0.0}.get(self.style.edge_line, LINE_INSIDE + self.style.line_m)
        return self.track.half_width - inset

    def dashes(self, rows: Rows) -> Rows:
        """Those of ``rows`` where a dashed line is painted."""
        paint, bare = self.style.dash
        return rows[rows % (paint + bare) >= bare]

    def lane(self, rows: Rows) -> None:
        """The surface between the lines along the edges, and what is painted along its middle."""
        inner, line, asphalt = self.inner_edge, self.style.line_m, self.appearance.asphalt
        colour = self.appearance.white_paint if self.style.white_centre else self.appearance.marking
        if self.style.centre_line == "double":
            # From left to right: where each strip ends, and whether it is painted.
            strips = [(-inner, False), (-DOUBLE_GAP - line, True), (-DOUBLE_GAP, False), (DOUBLE_GAP, True)]
            strips += [(DOUBLE_GAP + line, False), (inner, False)]
            for (left, paint), (right, _) in pairwise(strips):
                self.across("plain" if paint else "asphalt", rows, left, right, colour)
            return
        painted_rows = {"none": rows[:0], "solid": rows, "dashed": self.dashes(rows)}[self.style.centre_line]
        self.across("asphalt", rows, -inner, -line / 2, asphalt)
        self.across("asphalt", rows, line / 2, inner, asphalt)
        self.across("asphalt", np.setdiff1d(rows, painted_rows), -line / 2, line / 2, asphalt)
        self.across("plain", painted_rows, -line / 2, line / 2, colour)

    def edge(self, sign: int, rows: Rows, *, kerbed: bool) -> None:
        """The lines along one edge and what lies beyond them: a shoulder, or red and white kerbs."""
        inner, line, half = self.inner_edge, self.style.line_m, self.track.half_width
        look = self.appearance
        colour = look.white_paint if self.style.white_edges else look.marking
        if self.style.edge_line != "double":
            self.single_edge(sign, rows, colour, kerbed=kerbed)
            return
        self.beside("plain", sign, rows, inner, inner + line, colour)
        if kerbed:
            self.beside("plain", sign, rows, inner + line, half + 0.25, stripes(rows, look))
            self.beside("plain", sign, rows, half + 0.25, half + SHOULDER, np.array(look.concrete) * 1.3)
            return
        self.beside("plain", sign, rows, inner + line, half - 0.1, look.verge)
        self.beside("plain", sign, rows, half - 0.1, half, colour)
        self.shoulder(sign, rows, half)

    def single_edge(self, sign: int, rows: Rows, colour: Colour, *, kerbed: bool) -> None:
        """One line or none along an edge, the rest of the asphalt, and what lies beyond."""
        inner, line, half = self.inner_edge, self.style.line_m, self.track.half_width
        asphalt = self.appearance.asphalt
        if self.style.edge_line != "none":
            painted_rows = rows if self.style.edge_line == "solid" else self.dashes(rows)
            self.beside("plain", sign, painted_rows, inner, inner + line, colour)
            self.beside("asphalt", sign, np.setdiff1d(rows, painted_rows), inner, inner + line, asphalt)
            self.beside("asphalt", sign, rows, inner + line, half, asphalt)
        if kerbed:
            self.beside("plain", sign, rows, half, half + KERB_M, stripes(rows, self.appearance), heights=(0.0, 0.05))
        self.shoulder(sign, rows, half + KERB_M * kerbed)

    def shoulder(self, sign: int, rows: Rows, inner: float) -> None:
        """What lies between the edge, ``inner`` metres from the middle, and the slope."""
        outer, look = self.track.half_width + SHOULDER, self.appearance
        if self.style.shoulder == "earth":
            self.beside("soil", sign, rows, inner, outer, look.earth)
            return
        colour = look.concrete if self.style.shoulder == "concrete" else look.gravel
        self.beside("plain", sign, rows, inner, outer, colour, heights=(0.0, 0.05))

    def earth_edge(self, sign: int, rows: Rows, unmarked: Rows) -> None:
        """The slope beside the road, and earth from the asphalt on where no lines are."""
        half, look = self.track.half_width, self.appearance
        self.beside("asphalt", sign, unmarked, half - VERGE, half, look.asphalt)
        self.beside("soil", sign, rows, half + SHOULDER, half + SHOULDER + 4, look.earth, heights=(0.0, -1.2))
        self.beside("soil", sign, unmarked, half, half + SHOULDER, look.earth)

    def bridge_wall(self, sign: int, rows: Rows) -> None:
        """A wall along the bridge: its inner face, its top, and its outer face down into the water."""
        half = self.track.half_width
        self.beside("plain", sign, rows, half, half, (0.05, 0.05, 0.06), heights=(0.0, WALL))
        self.beside("plain", sign, rows, half, half + 0.3, (0.04, 0.04, 0.05), heights=(WALL, WALL))
        self.beside("plain", sign, rows, half + 0.3, half + 0.3, (0.3, 0.29, 0.27), heights=(WALL, -4.0))


def patch(track: Track, at: int, offset: float, length: float, width: float) -> Quads:
    """An oval on the road around point ``at`` and ``offset`` metres to the right, for a shadow."""
    ends = np.linspace(-1, 1, 7)
    half = np.sqrt(np.clip(1 - ends**2, 0, 1)) * width / 2
    index = (at + np.round(ends * length / 2 / track.spacing).astype(np.int64)) % len(track.line)
    reach = track.half_width
    left, right = (np.clip(offset + side * half, -reach, reach) for side in (-1, 1))
    edges = [edge(track, index, x, 0.03) for x in (right, left)]
    corners = np.stack([edges[0][:-1], edges[0][1:], edges[1][1:], edges[1][:-1]], axis=1)
    return Quads(corners, np.ones_like(corners), np.zeros((6, 4, 2)))


def stripes(rows: Rows, appearance: Appearance) -> Array:
    """Red and white in turn, one colour per row."""
    return np.where((rows // 2 % 2 == 0)[:, None], np.array(appearance.kerb), np.array((0.88, 0.86, 0.82)))
