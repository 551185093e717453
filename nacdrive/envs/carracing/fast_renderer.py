"""CarRacing drawn about twenty times faster: one world map a lap, one warp and one picture of the car a frame; its car.

Polygons are drawn at twice the size only while the view zooms, and by the twin in the tests.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise
from typing import Any

import cv2
import numpy as np
from gymnasium.envs.box2d import car_dynamics as dynamics
from gymnasium.envs.box2d import car_racing as official
from gymnasium.envs.box2d.car_dynamics import ENGINE_POWER, FRICTION_LIMIT, WHEEL_MOMENT_OF_INERTIA, Car
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from nacdrive.envs.carracing import sprites
from nacdrive.envs.carracing.lazy import FPS, PANEL_TOP, LazyCarRacing

MAP_SCALE = 3
"""Pixels of the world map per unit of length: bilinear sampling of it averages over about a pixel of the frame."""
VIEW_W, VIEW_H = 96, PANEL_TOP
SHIFT = 4
"""Fractional bits of OpenCV's fixed-point coordinates."""
FIELD_COLOUR, GRASS_COLOUR = (102, 204, 102), (102, 230, 102)

# OpenCV's fills include the boundary, which widens a polygon by half a canvas pixel on each side: about this, in units.
FILL_MARGIN = 0.14
STEERING = -0.6, 0.6
"""Of the actions right and left, as the official environment has them."""
GRASS_FRICTION = FRICTION_LIMIT * 0.6
STIFFNESS = 205000 * dynamics.SIZE * dynamics.SIZE
BRAKE_FORCE = 15
"""Radians per second."""


def shrunk(polygon: list[tuple[int, int]]) -> NDArray[np.float64]:
    """A part of the car, corners in units [n, 2], made smaller by what OpenCV's fill adds."""
    points = np.array(polygon, dtype=np.float64) * dynamics.SIZE
    middle = (points.max(axis=0) + points.min(axis=0)) / 2
    half = (points.max(axis=0) - points.min(axis=0)) / 2
    return np.asarray(middle + (points - middle) * np.maximum(1 - FILL_MARGIN / half, 0))


WHEEL = shrunk(sprites.WHEEL_POLYGON)
HULL_PARTS = [shrunk(polygon) for polygon in sprites.HULL_POLYGONS]
HULL = np.concatenate(HULL_PARTS)
HULL_ENDS = np.cumsum([0] + [len(part) for part in HULL_PARTS]).tolist()


@cache
def paint(colour: tuple[float, ...], *, rgb: bool) -> tuple[int, ...]:
    """A colour as OpenCV draws it into a picture of one or three channels."""
    return tuple(np.rint(sprites.as_shown(colour, rgb=rgb)).astype(int).tolist())


@cache
def empty_world(rgb: bool = False) -> NDArray[np.uint8]:
    """The field with its grass squares, no road: uint8 [side, side, channels], shared and read-only."""
    half = official.PLAYFIELD * MAP_SCALE
    side = round(2 * half)
    world = np.full((side, side, 3 if rgb else 1), paint(FIELD_COLOUR, rgb=rgb), dtype=np.uint8)
    edges = [round(half + k * official.GRASS_DIM * MAP_SCALE) for k in range(-20, 21)]
    for column in range(0, 40, 2):
        for row in range(0, 40, 2):
            world[edges[row] : edges[row + 1], edges[column] : edges[column + 1]] = paint(GRASS_COLOUR, rgb=rgb)
    world.setflags(write=False)
    return world


class FastCar(Car):
    """``Car`` whose step takes half the time; equal states are tested. Skid marks, which nobody sees, are left out."""

    @classmethod
    def patch(cls, car: Car) -> None:
        """Turn an official car into a fast one, in place: the environment builds its car itself."""
        if type(car) is Car:
            car.__class__ = cls

    def gas(self, gas: float) -> None:
        """Open the throttle of the rear wheels, 0 .. 1; up at a tenth a frame, down at once."""
        gas = min(max(float(gas), 0.0), 1.0)
        for wheel in self.wheels[2:4]:
            wheel.gas += min(gas - wheel.gas, 0.1)

    def step(self, dt: float) -> None:
        for wheel in self.wheels:
            error = wheel.steer - wheel.joint.angle
            speed = min(50.0 * abs(error), 3.0)
            wheel.joint.motorSpeed = speed if error > 0 else -speed if error < 0 else 0.0
            friction_limit = max((FRICTION_LIMIT * tile.road_friction for tile in wheel.tiles), default=0.0)
            friction_limit = max(friction_limit, GRASS_FRICTION)

            side_x, side_y = wheel.GetWorldVector((1, 0))
            ahead_x, ahead_y = -side_y, side_x
            velocity_x, velocity_y = wheel.linearVelocity
            forward = ahead_x * velocity_x + ahead_y * velocity_y
            sideways = side_x * velocity_x + side_y * velocity_y

            omega = wheel.omega
            omega += dt * ENGINE_POWER * wheel.gas / WHEEL_MOMENT_OF_INERTIA / (abs(omega) + 5.0)
            if wheel.brake >= 0.9:
                omega = 0.0
            elif wheel.brake > 0:
                slowing = min(BRAKE_FORCE * wheel.brake, abs(omega))
                omega += -slowing if omega > 0 else slowing if omega < 0 else 0.0
            wheel.phase += omega * dt

            f_force = (-forward + omega * wheel.wheel_rad) * STIFFNESS
            p_force = -sideways * STIFFNESS
            force = math.sqrt(f_force * f_force + p_force * p_force)
            if force > friction_limit:
                f_force = f_force / force * friction_limit
                p_force = p_force / force * friction_limit
            wheel.omega = omega - dt * f_force * wheel.wheel_rad / WHEEL_MOMENT_OF_INERTIA
            wheel.ApplyForceToCenter((p_force * side_x + f_force * ahead_x, p_force * side_y + f_force * ahead_y), True)


class FastCarRacing(LazyCarRacing):
    """CarRacing-v3 with the same physics, rewards and tracks, and an approximate picture.

    Not drawn: the stripes of the wheels. Tests keep the mean absolute difference to the official pixels below half a
    level in 255 in grey at 48 x 48, and below one level in every channel at 96 x 96
    (tests/envs/carracing/test_fast_renderer.py). Arguments are those of ``CarRacingEnv``.
    """

    def __init__(self, *, instruments: bool | None = None, **options: Any) -> None:
        super().__init__(**options, instruments=bool(instruments))
        self._rgb = self.observation == "rgb"
        self._world_map: NDArray[np.uint8] = empty_world(self._rgb).copy()
        self._dirty: tuple[slice, slice] | None = None

    def _create_track(self) -> bool:
        if not super()._create_track():  # type: ignore[no-untyped-call]
            self.road_poly = []
            return False
        self._draw_world()
        return True

    def step(self, action: Any) -> Any:
        """One frame: what ``CarRacing.step`` does, without what only people see (tested to the last bit)."""
        car = self.car
        FastCar.patch(car)
        if action is not None:
            if self.continuous:
                steering, gas, brake = (float(value) for value in action)
                car.steer(-steering)
            else:
                if isinstance(action, bool) or action not in range(5):
                    raise InvalidAction(f"{action!r} is no action of CarRacing: give 0 to 4.")
                car.steer(STEERING[action - 1] if action in (1, 2) else 0.0)
                gas, brake = 0.2 * (action == 3), 0.8 * (action == 4)
            car.gas(gas)
            car.brake(brake)
        car.step(1.0 / FPS)
        self.world.Step(1.0 / FPS, 6 * 30, 2 * 30)
        self.t += 1.0 / FPS
        self.state = self._render("state_pixels")
        if action is None:
            return self.state, 0, False, False, {}

        self.reward -= 0.1
        gained = self.reward - self.prev_reward
        self.prev_reward = self.reward
        terminated, info = False, {}
        if self.tile_visited_count == len(self.track) or self.new_lap:
            terminated, info = True, {"lap_finished": True}
        x, y = car.hull.position
        if abs(x) > official.PLAYFIELD or abs(y) > official.PLAYFIELD:
            terminated, info, gained = True, {"lap_finished": False}, -100
        return self.state, gained, terminated, False, info

    def _draw_world(self) -> None:
        """Draw the lap's road and kerbs into the world map, wiping the previous lap's."""
        if self._dirty is not None:
            self._world_map[self._dirty] = empty_world(self._rgb)[self._dirty]
        quads = np.array([polygon for polygon, _ in self.road_poly], dtype=np.float64)
        colours = [tuple(float(int(level)) for level in colour) for _, colour in self.road_poly]
        quads = (quads + official.PLAYFIELD) * MAP_SCALE - 0.5
        across = quads[:, [1, 0, 3, 2]] - quads
        quads += across * (0.5 / np.maximum(np.linalg.norm(across, axis=2, keepdims=True), 1e-9))
        fixed = np.rint(quads * (1 << SHIFT)).astype(np.int32)
        for quad, colour in zip(fixed, colours, strict=True):
            cv2.fillConvexPoly(self._world_map, quad, paint(colour, rgb=self._rgb), shift=SHIFT)
        low = np.maximum(quads.min(axis=(0, 1)) - 2, 0).astype(int)
        high = np.minimum(quads.max(axis=(0, 1)) + 3, len(self._world_map)).astype(int)
        self._dirty = slice(low[1], high[1]), slice(low[0], high[0])

    def view(self) -> NDArray[np.uint8]:
        """The picture without the instruments: uint8 [84, 96, 1 or 3]."""
        if self.t < 1:
            return self.view_by_polygons()
        channels = self._world_map.shape[2]
        seen = self._warp(VIEW_W, VIEW_H, official.ZOOM * official.SCALE).reshape(VIEW_H, VIEW_W, channels)
        wheels = self.car.wheels
        sprites.draw_car(seen, (wheels[0].joint.angle + wheels[1].joint.angle) / 2, rgb=self._rgb)
        return seen

    def view_by_polygons(self) -> NDArray[np.uint8]:
        """``view`` at twice the size, with every part of the car where it is, averaged down: while the view zooms."""
        hull = self.car.hull
        zoom = 0.1 * official.SCALE * max(1 - self.t, 0) + official.ZOOM * official.SCALE * min(self.t, 1)
        canvas = self._warp(2 * VIEW_W, 2 * VIEW_H, zoom)
        cos, sin = math.cos(hull.angle), math.sin(hull.angle)
        x, y = hull.position
        scale = np.array([zoom * 2 * VIEW_W / official.WINDOW_W, -zoom * 2 * official.STATE_H / official.WINDOW_H])
        scale *= 1 << SHIFT
        offset = np.array([VIEW_W - 0.5, 2 * official.STATE_H * 0.75 - 0.5]) * (1 << SHIFT)

        def pixels(body: Any, points: NDArray[np.float64]) -> NDArray[np.int32]:
            turn = body.angle - hull.angle
            c, s = math.cos(turn), math.sin(turn)
            px, py = body.position
            dx, dy = px - x, py - y
            ahead = np.array([cos * dx + sin * dy, cos * dy - sin * dx])
            return np.asarray(((points @ np.array([[c, s], [-s, c]]) + ahead) * scale + offset).round(), dtype=np.int32)

        wheel_paint, hull_paint = (paint(x, rgb=self._rgb) for x in (sprites.WHEEL_COLOUR, sprites.HULL_COLOUR))
        for wheel in self.car.wheels:
            cv2.fillConvexPoly(canvas, pixels(wheel, WHEEL), wheel_paint, shift=SHIFT)
        body = pixels(hull, HULL)
        for start, end in pairwise(HULL_ENDS):
            cv2.fillConvexPoly(canvas, body[start:end], hull_paint, shift=SHIFT)
        seen = cv2.resize(canvas, (VIEW_W, VIEW_H), interpolation=cv2.INTER_AREA)
        return np.asarray(seen, dtype=np.uint8).reshape(VIEW_H, VIEW_W, -1)

    def _warp(self, width: int, height: int, zoom: float) -> NDArray[np.uint8]:
        """The world as the car sees it, ``width`` x ``height`` pixels of the frame without its instruments."""
        hull = self.car.hull
        # Canvas pixel -> offset in the car's axes -> world -> pixel of the map; pixel centres lie at .5.
        per_x = MAP_SCALE * official.WINDOW_W / (zoom * width)
        per_y = MAP_SCALE * official.WINDOW_H * VIEW_H / (zoom * official.STATE_H * height)
        cos, sin = math.cos(hull.angle), math.sin(hull.angle)
        x, y = hull.position
        right_x, right_y = cos * per_x, sin * per_x
        down_x, down_y = sin * per_y, -cos * per_y
        origin_x, origin_y = 0.5 - width / 2, 0.5 - height * official.STATE_H * 0.75 / VIEW_H
        to_map = np.array(
            [
                [right_x, down_x, (x + official.PLAYFIELD) * MAP_SCALE - 0.5 + right_x * origin_x + down_x * origin_y],
                [right_y, down_y, (y + official.PLAYFIELD) * MAP_SCALE - 0.5 + right_y * origin_x + down_y * origin_y],
            ]
        )
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        return np.asarray(cv2.warpAffine(self._world_map, to_map, (width, height), flags=flags), dtype=np.uint8)

    def grey(self) -> NDArray[np.uint8]:
        """The view in grey, without the instruments: uint8 [84, 96]."""
        seen = self.view()
        return np.asarray(cv2.cvtColor(seen, cv2.COLOR_RGB2GRAY), np.uint8) if self._rgb else seen[:, :, 0]

    def picture(self) -> NDArray[np.uint8]:
        channels = 1 if self.observation == "grey" else 3
        frame = np.empty((official.STATE_H, official.STATE_W, channels), dtype=np.uint8)
        seen = self.view()
        # Three equal channels are made faster by OpenCV than by NumPy's broadcasting.
        frame[:VIEW_H] = seen if seen.shape[2] == channels else cv2.cvtColor(seen, cv2.COLOR_GRAY2RGB)
        if self.instruments:
            sprites.draw_instruments(frame, self.car, self.reward, rgb=self._rgb)
        else:
            frame[PANEL_TOP:] = 0
        return frame
