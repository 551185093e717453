"""Slow cars in the right lane, to be passed: they follow the road at a speed of their own and never run into anybody.

They are a function of the drive's seed and of what the camera's car has done, and so come again in a replay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from panda3d.bullet import BulletBoxShape, BulletRigidBodyNode
from panda3d.core import NodePath, Vec3

from nacdrive.envs.udacity_track.appearance import Appearance
from nacdrive.envs.udacity_track.blocks import CAR, cars
from nacdrive.envs.udacity_track.meshes import as_node
from nacdrive.envs.udacity_track.track import Array, Track

SPEED = 3.0, 6.0
"""Metres per second, slowest and fastest."""
APART = 25.0
"""Least metres between two slow cars, and from the start to the next one, when the drive begins."""
KEEP = 7.0
"""Metres between the middles of a slow car and of what is before it in its lane, at least."""
BESIDE = 1.9
"""Metres between two cars' middles, side by side, from which one is not in the other's way."""
BEHIND = 15.0
"""Metres behind the car that was put back at which a slow car goes on that stood in its way."""
NEAR = 40.0
"""Metres along the road within which a slow car can be touched."""
AWAY = -1000.0
"""Height in metres of what cannot be touched."""
ROOM = 2.2
"""Metres from the edge of the asphalt to the middle of a slow car, at least: it passes parked ones."""
ORDER = 900
"""Place in the order of drawing."""


@dataclass
class SlowCars:
    """Where they are."""

    s: Array
    """Metres along the lap, [n], each in 0 .. length."""
    speed: Array
    """What each drives where nothing is in its way, m/s, [n]."""
    offset: float
    """Metres to the right of the middle of the road."""
    paint_seed: int


def draw_slow_cars(track: Track, count: int, rng: np.random.Generator, start_s: float) -> SlowCars:
    """At most ``count`` of them, apart from each other and from a car that starts at ``start_s``."""
    places: list[float] = []
    for _ in range(count * 20):
        s = float(rng.uniform(0, track.length))
        if len(places) < count and (np.abs(apart(track, np.array([*places, start_s]), s)) > APART).all():
            places.append(s)
    offset = min(track.half_width / 2, track.half_width - ROOM)
    return SlowCars(np.array(places), rng.uniform(*SPEED, len(places)), offset, int(rng.integers(2**31)))


def apart(track: Track, ahead: Array, behind: float) -> Array:
    """Metres along the lap from ``behind`` to each of ``ahead``, the shorter way; negative if that is backwards."""
    return (ahead - behind + track.length / 2) % track.length - track.length / 2


class Traffic:
    """Moves slow cars along a road, before the cameras and in the car's physical world."""

    def __init__(self, track: Track, cars: SlowCars, appearance: Appearance) -> None:
        self.track, self.cars = track, cars
        self.paths: list[NodePath] = []
        """What is seen of them, to be hung into the scene."""
        self.bodies: list[BulletRigidBodyNode] = []
        """What is touched of them."""
        rng = np.random.default_rng(cars.paint_seed)
        for s in cars.s:
            self.paths.append(painted_car(appearance, track.at(float(s))[1], rng))
            body = BulletRigidBodyNode("slow")
            body.add_shape(BulletBoxShape(Vec3(*(x / 2 for x in CAR))))
            body.set_kinematic(True)
            self.bodies.append(body)
        self._handles = [NodePath(body) for body in self.bodies]
        self._near = list(range(len(self.bodies)))
        self.show()
        self._move_bodies(self._near)

    def advance(self, seconds: float, s: float, offset: float) -> None:
        """Drive on for ``seconds``; the camera's car is at ``s`` and ``offset`` metres (right is positive)."""
        cars, length = self.cars, self.track.length
        if not self.bodies:
            return
        gap = (cars.s[None, :] - cars.s[:, None]) % length
        gap[gap == 0] = length
        free = gap.min(axis=1)
        if abs(offset - cars.offset) < BESIDE:
            free = np.minimum(free, (s - cars.s) % length)
        cars.s = (cars.s + np.clip(free - KEEP, 0.0, cars.speed * seconds)) % length
        near = np.flatnonzero(np.abs(apart(self.track, cars.s, s)) < NEAR).tolist()
        for index in set(self._near).difference(near):
            # Left where it was, it would be met there after the car has long driven on.
            self._handles[index].set_z(AWAY)
        self._near = near
        self._move_bodies(near)

    def make_room(self, s: float) -> None:
        """A car is put back at ``s``, in the middle of the road: as if its driver had passed who was in the way."""
        ahead = apart(self.track, self.cars.s, s)
        blocking = [int(k) for k in np.argsort(-ahead) if abs(ahead[k]) < BEHIND]
        for number, index in enumerate(blocking):
            self.cars.s[index] = (s - BEHIND - number * KEEP) % self.track.length
        self._near = sorted({*self._near, *blocking})
        self._move_bodies(blocking)

    def show(self) -> None:
        for path, s in zip(self.paths, self.cars.s, strict=True):
            self._set(path, float(s), 0.0)

    def _move_bodies(self, which: list[int]) -> None:
        for index in which:
            self._set(self._handles[index], float(self.cars.s[index]), CAR[2] / 2)

    def _set(self, path: NodePath, s: float, above: float) -> None:
        track, offset = self.track, self.cars.offset
        point, heading = track.at(s)
        rise = track.at(s + 2)[0][2] - track.at(s - 2)[0][2]
        bank = float(track.bank[int(s / track.spacing) % len(track.line)])
        east, north = point[0] + offset * math.sin(heading), point[1] - offset * math.cos(heading)
        up = point[2] + bank * offset + above
        turn = math.degrees(heading) - 90, math.degrees(math.atan(rise / 4)), -math.degrees(math.atan(bank))
        path.set_pos_hpr(east, north, up, *turn)


def painted_car(appearance: Appearance, heading: float, rng: np.random.Generator) -> NodePath:
    """A car at the origin along +y, lit as it is at ``heading`` radians; in bends its light goes with it."""
    turned, (x, y, z) = math.pi / 2 - heading, appearance.sun
    sun = (x * math.cos(turned) - y * math.sin(turned), x * math.sin(turned) + y * math.cos(turned), z)
    path = as_node("slow car", cars(np.zeros((1, 3)), np.array([math.pi / 2]), rng, replace(appearance, sun=sun)))
    path.set_bin("fixed", ORDER)
    return path
