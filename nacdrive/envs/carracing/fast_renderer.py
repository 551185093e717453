"""CarRacing drawn about twenty times faster: one grey world map a lap, one warp and a few polygons a frame."""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
from gymnasium.envs.box2d import car_dynamics as dynamics
from gymnasium.envs.box2d import car_racing as official
from numpy.typing import NDArray

from nacdrive.envs.carracing.fast_car import FastCar
from nacdrive.envs.carracing.lazy import LazyCarRacing

MAP_SCALE = 3
"""Pixels of the world map per unit of length."""
CANVAS_W, CANVAS_H = 192, 168
"""The frame is drawn at twice its size, without the instruments, and averaged down to 96 x 84."""
VIEW_W, VIEW_H = 96, 84
SHIFT = 4
"""Fractional bits of OpenCV's fixed-point coordinates."""
FIELD_GREY, GRASS_GREY, HULL_GREY = 162, 177, 61

# OpenCV's fills include the boundary, which widens a polygon by half a canvas pixel on each side: about this, in units.
FILL_MARGIN = 0.14
HULL_POLYGONS = (dynamics.HULL_POLY1, dynamics.HULL_POLY2, dynamics.HULL_POLY3, dynamics.HULL_POLY4)
WHEEL_POLYGON = [(sx * dynamics.WHEEL_W, sy * dynamics.WHEEL_R) for sx, sy in ((-1, 1), (1, 1), (1, -1), (-1, -1))]

# The official down-scaling loses two grey levels in the bright part of the range.
OFFICIAL_LOSS = np.arange(256, dtype=np.uint8)
OFFICIAL_LOSS[90:] -= 2


def shrunk(polygon: list[tuple[int, int]]) -> NDArray[np.float64]:
    """A part of the car, corners in units [n, 2], made smaller by what OpenCV's fill adds."""
    points = np.array(polygon, dtype=np.float64) * dynamics.SIZE
    middle = (points.max(axis=0) + points.min(axis=0)) / 2
    half = (points.max(axis=0) - points.min(axis=0)) / 2
    return np.asarray(middle + (points - middle) * np.maximum(1 - FILL_MARGIN / half, 0))


WHEEL = shrunk(WHEEL_POLYGON)
HULL_PARTS = [shrunk(polygon) for polygon in HULL_POLYGONS]
HULL = np.concatenate(HULL_PARTS)
HULL_ENDS = np.cumsum([0] + [len(part) for part in HULL_PARTS]).tolist()


@cache
def empty_world() -> NDArray[np.uint8]:
    """The field with its grass squares, no road: uint8 [side, side], shared and read-only."""
    half = official.PLAYFIELD * MAP_SCALE
    side = round(2 * half)
    world = np.full((side, side), FIELD_GREY, dtype=np.uint8)
    edges = [round(half + k * official.GRASS_DIM * MAP_SCALE) for k in range(-20, 21)]
    for column in range(0, 40, 2):
        for row in range(0, 40, 2):
            world[edges[row] : edges[row + 1], edges[column] : edges[column + 1]] = GRASS_GREY
    world.setflags(write=False)
    return world


class FastCarRacing(LazyCarRacing):
    """CarRacing-v3 with the same physics, rewards and tracks, and an approximate grey picture.

    Not drawn: the instruments, the stripes of the wheels, the changed colour of visited tiles. Mean absolute
    difference to the official picture in grey at 48 x 48: below one level in 255 (tests/sims/test_fast_renderer.py).
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._world_map: NDArray[np.uint8] = empty_world().copy()
        self._dirty: tuple[slice, slice] | None = None

    def _create_track(self) -> bool:
        if not super()._create_track():  # type: ignore[no-untyped-call]
            self.road_poly = []
            return False
        self._draw_world()
        return True

    def step(self, action: Any) -> Any:
        """One frame."""
        assert self.car is not None
        FastCar.patch(self.car)
        return super().step(action)

    def _draw_world(self) -> None:
        """Draw the lap's road and kerbs into the world map, wiping the previous lap's."""
        if self._dirty is not None:
            self._world_map[self._dirty] = empty_world()[self._dirty]
        quads = np.array([polygon for polygon, _ in self.road_poly], dtype=np.float64)
        colours = np.array([colour for _, colour in self.road_poly], dtype=np.float64).astype(np.int64)
        greys = np.rint(colours @ (0.299, 0.587, 0.114)).astype(int).tolist()
        quads = (quads + official.PLAYFIELD) * MAP_SCALE - 0.5
        across = quads[:, [1, 0, 3, 2]] - quads
        quads += across * (0.5 / np.maximum(np.linalg.norm(across, axis=2, keepdims=True), 1e-9))
        fixed = np.rint(quads * (1 << SHIFT)).astype(np.int32)
        for quad, grey in zip(fixed, greys, strict=True):
            cv2.fillConvexPoly(self._world_map, quad, grey, shift=SHIFT)
        low = np.maximum(quads.min(axis=(0, 1)) - 2, 0).astype(int)
        high = np.minimum(quads.max(axis=(0, 1)) + 3, len(self._world_map)).astype(int)
        self._dirty = slice(low[1], high[1]), slice(low[0], high[0])

    def grey(self) -> NDArray[np.uint8]:
        """The view without the instruments: uint8 [84, 96]."""
        assert self.car is not None
        hull = self.car.hull
        zoom = 0.1 * official.SCALE * max(1 - self.t, 0) + official.ZOOM * official.SCALE * min(self.t, 1)
        zoom_x = zoom * CANVAS_W / official.WINDOW_W
        zoom_y = zoom * 2 * official.STATE_H / official.WINDOW_H
        centre_x = CANVAS_W / 2
        centre_y = 2 * official.STATE_H * 0.75
        cos, sin = math.cos(hull.angle), math.sin(hull.angle)
        x, y = hull.position

        # Canvas pixel -> offset in the car's axes -> world -> pixel of the map; pixel centres lie at .5.
        right_x, right_y = cos * MAP_SCALE / zoom_x, sin * MAP_SCALE / zoom_x
        down_x, down_y = sin * MAP_SCALE / zoom_y, -cos * MAP_SCALE / zoom_y
        origin_x, origin_y = 0.5 - centre_x, 0.5 - centre_y
        to_map = np.array(
            [
                [right_x, down_x, (x + official.PLAYFIELD) * MAP_SCALE - 0.5 + right_x * origin_x + down_x * origin_y],
                [right_y, down_y, (y + official.PLAYFIELD) * MAP_SCALE - 0.5 + right_y * origin_x + down_y * origin_y],
            ]
        )
        canvas = cv2.warpAffine(
            self._world_map, to_map, (CANVAS_W, CANVAS_H), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        )

        scale = np.array([zoom_x, -zoom_y]) * (1 << SHIFT)
        offset = np.array([centre_x - 0.5, centre_y - 0.5]) * (1 << SHIFT)

        def pixels(body: Any, points: NDArray[np.float64]) -> NDArray[np.int32]:
            turn = body.angle - hull.angle
            c, s = math.cos(turn), math.sin(turn)
            px, py = body.position
            dx, dy = px - x, py - y
            ahead = np.array([cos * dx + sin * dy, cos * dy - sin * dx])
            return np.asarray(((points @ np.array([[c, s], [-s, c]]) + ahead) * scale + offset).round(), dtype=np.int32)

        for wheel in self.car.wheels:
            cv2.fillConvexPoly(canvas, pixels(wheel, WHEEL), 0, shift=SHIFT)
        body = pixels(hull, HULL)
        for start, end in pairwise(HULL_ENDS):
            cv2.fillConvexPoly(canvas, body[start:end], HULL_GREY, shift=SHIFT)
        view = cv2.resize(canvas, (VIEW_W, VIEW_H), interpolation=cv2.INTER_AREA)
        return np.asarray(cv2.LUT(view, OFFICIAL_LOSS), dtype=np.uint8)

    def _draw_state(self) -> NDArray[np.uint8]:
        frame = np.zeros((official.STATE_H, official.STATE_W, 3), dtype=np.uint8)
        frame[:VIEW_H] = self.grey()[:, :, None]
        return frame
