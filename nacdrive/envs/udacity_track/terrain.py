"""The land around a track: heights on a grid that meet the road, with hills, and a hollow that the lake fills."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.envs.udacity_track.track import SHOULDER, Array, Track

CELL = 8.0
"""Metres between two points of the grid."""
COARSE_CELL = 9.0
"""The same around a drawn road."""
EVERY = 3
"""Points of a drawn road to one that its land goes by."""
MARGIN = 130.0
"""Metres of land beyond the outermost points of the road."""
SUNK = 0.3
"""Metres by which the land lies below the road's surface beside and under it, so that it never shows through."""
DEEPER = 0.45
"""The same of drawn roads, whose land is coarser."""


@dataclass(frozen=True)
class Terrain:
    """Heights on a grid. Row index runs north, column index runs east."""

    east: Array
    """[columns] metres."""
    north: Array
    """[rows] metres."""
    height: Array
    """[rows, columns] metres."""
    road_distance: Array
    """Metres to the nearest point of the centre line, [rows, columns]."""
    cell: float = CELL
    """Metres between two points."""

    def at(self, values: Array, east: Array, north: Array) -> Array:
        """``height`` or ``road_distance`` at any places inside the grid, bilinear between its points."""
        column = np.clip((east - self.east[0]) / self.cell, 0, len(self.east) - 1.001)
        row = np.clip((north - self.north[0]) / self.cell, 0, len(self.north) - 1.001)
        c, r = column.astype(int), row.astype(int)
        u, v = column - c, row - r
        low = values[r, c] * (1 - u) + values[r, c + 1] * u
        high = values[r + 1, c] * (1 - u) + values[r + 1, c + 1] * u
        return np.asarray(low * (1 - v) + high * v)

    def corners(self, values: Array | None = None) -> Array:
        """Corners of every square between points, in turn: their places [n, 4, 3], or ``values`` [rows, columns, k]."""
        if values is None:
            values = np.stack([*np.meshgrid(self.east, self.north), self.height], axis=2)
        four = values[:-1, :-1], values[:-1, 1:], values[1:, 1:], values[1:, :-1]
        return np.stack(four, axis=2).reshape(-1, 4, values.shape[2])

    def normals(self) -> Array:
        """Unit normals [rows, columns, 3]."""
        slope_north, slope_east = np.gradient(self.height, self.cell)
        normal = np.stack([-slope_east, -slope_north, np.ones_like(slope_east)], axis=2)
        normal /= np.linalg.norm(normal, axis=2, keepdims=True)
        return normal


@lru_cache(maxsize=4)
def terrain_of(road: Track) -> Terrain:
    """The land around a track; to be left unchanged. Of drawn roads it is coarser, for somebody waits for it."""
    drawn = road.road_seed is not None
    cell = COARSE_CELL if drawn else CELL
    low, high = road.line[:, :2].min(axis=0) - MARGIN, road.line[:, :2].max(axis=0) + MARGIN
    east, north = (np.arange(a, b + cell, cell) for a, b in zip(low, high, strict=True))
    places = np.stack(np.meshgrid(east, north), axis=2).reshape(-1, 2)
    distance, road_height, nearest = (beside_quickly if drawn else beside)(road, places)
    bridge = road.bridge[nearest]
    # A bridge stands free: the land beneath it belongs to the lake.
    near, far = road.half_width + (7.0 if drawn else 4.0), np.where(bridge, 60.0, 34.0)
    share = np.clip((distance - near) / (far - near), 0, 1)
    share = share * share * (3 - 2 * share)
    # On the way down from a banked road's lower edge the land must not show either.
    sunk = DEEPER + np.abs(road.bank[nearest]) * (road.half_width + SHOULDER) if drawn else SUNK
    meets = np.where(bridge, road.water_level - 1.5, road_height - sunk)
    height = meets * (1 - share) + wild(road, places, road_height) * share
    shape = len(north), len(east)
    return Terrain(east, north, height.reshape(shape), distance.reshape(shape), cell)


def beside(road: Track, places: Array) -> tuple[Array, Array, NDArray[np.int64]]:
    """For ``places`` [n, 2]: distance to the road, its height there (nearer parts count more), its nearest point."""
    pieces = []
    for part in np.array_split(places, max(1, len(places) // 2000)):
        square = (part[:, :1] - road.line[:, 0]) ** 2
        square += (part[:, 1:] - road.line[:, 1]) ** 2
        weight = 1 / np.maximum(square, 0.5) ** 2
        height = rows_times(weight, road.line[:, 2]) / weight.sum(axis=1)
        pieces.append((np.sqrt(square.min(axis=1)), height, square.argmin(axis=1)))
    distance, height, nearest = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return distance, height, nearest


def beside_quickly(road: Track, places: Array) -> tuple[Array, Array, NDArray[np.int64]]:
    """``beside`` by every ``EVERY``-th point of the road and in single precision: some twenty times as quick."""
    line, at = road.line[::EVERY, :2].astype(np.float32), places.astype(np.float32)
    square = at @ (-2 * line.T)
    square += (at**2).sum(axis=1)[:, None]
    square += (line**2).sum(axis=1)
    np.maximum(square, 0.5, out=square)
    nearest = square.argmin(axis=1)
    distance = np.sqrt(square[np.arange(len(square)), nearest])
    weight = np.reciprocal(square * square, out=square)
    height = rows_times(weight, road.line[::EVERY, 2].astype(np.float32)) / weight.sum(axis=1)
    return distance.astype(np.float64), height.astype(np.float64), nearest * EVERY


def rows_times(rows: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """``rows @ values``, to the last bit the same with any number of threads.

    Four rows at once are too few for BLAS to share them out, and as many as its inner loop takes.
    """
    whole = len(rows) // 4 * 4
    return np.concatenate([(rows[:whole].reshape(-1, 4, len(values)) @ values).ravel(), rows[whole:] @ values])


def wild(road: Track, places: Array, road_height: Array) -> Array:
    """Heights of the land far from the road: a sum of waves, those of the road's seed, less the lake's hollow."""
    rng = np.random.default_rng(road.relief_seed)
    total = np.zeros(len(places))
    for wavelength in (260, 190, 140, 110, 80, 60, 45):
        for _ in range(2):
            angle, phase = rng.uniform(0, 2 * np.pi, 2)
            along = places @ (np.cos(angle), np.sin(angle))
            total += wavelength / 260 * np.sin(2 * np.pi * along / wavelength + phase)
    hills = road.relief * np.clip(0.35 + 0.35 * total, -0.15, 1.3)
    *centre, radius = road.lake
    hollow = np.clip(1.6 - np.linalg.norm(places - centre, axis=1) / radius, 0, 1)
    if road.bridge.any():
        # An arm of the lake runs under the bridge.
        middle = road.line[road.bridge, :2].mean(axis=0)
        hollow = np.maximum(hollow, np.clip(1.6 - np.linalg.norm(places - middle, axis=1) / 55.0, 0, 1))
    return np.asarray((road_height + hills) * (1 - hollow) + (road.water_level - 3) * hollow)
