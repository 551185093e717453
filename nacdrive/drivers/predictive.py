"""A driver of CarRacing's five actions that looks ahead: model predictive control along the racing line.

It reads the track instead of looking. At each decision it drives every sequence of three further ones in a model of the
car, that of Gymnasium's ``car_dynamics``, and takes the first action of the one that ends best.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import cv2
import numpy as np
from gymnasium.envs.box2d import car_dynamics as dynamics
from gymnasium.envs.box2d.car_racing import TRACK_WIDTH
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.drivers.base import Driver, DriverWrapper, Needs
from nacdrive.drivers.racing_line import LOST_SPEED, RacingLine, RacingLineParameters
from nacdrive.envs.base import Frame, Info
from nacdrive.envs.carracing.env import ACTIONS, BRAKE, STEERING, THROTTLE, to_action
from nacdrive.envs.carracing.lazy import FPS
from nacdrive.envs.carracing.tyres import FULL_LOCK, MASS, WHEEL_RADIUS

REPEAT, AHEAD = 4, 3
"""Frames for which an action is held, and at least is in what is tried out; decisions that are tried out."""
RADIANS, GAS, BRAKES = -0.6 * np.array(STEERING), 0.2 * np.array(THROTTLE), np.array(BRAKE)
"""Of each action, as Gymnasium hands it to the car: to the left, gas, brake."""
GRASS = 0.6
"""What grass holds, as a share of what the road does."""
STIFFNESS = 205_000 * dynamics.SIZE**2
INERTIA = 19.17
"""Of hull and wheels about their common centre; a test asks Box2D."""
SLOW = 8.0
"""Below this speed getting on comes first: a car that stands cannot turn."""
SPACING = 1.0
"""Between the points of the line that is driven along."""
CELL, AROUND = 0.5, 80.0
"""Of the map of the road: length of a cell, and how far it goes beyond the road."""
PARAMETERS = RacingLineParameters(
    margin=3.616, grip=139.7, drive=23.2, braking=34.75, top_speed=106.2,
    ahead=6.777, ahead_s=0.0701, lead_s=0.0528, reaction_s=0.0914,
)  # fmt: skip
"""Slower than steering by degrees allows; these and the weights are searched for on tracks that are learnt from."""
SEEN_S, CIRCLING = 1.0, 20.0
"""For how long a road is remembered that was in the picture, and the speed at which one is looked for then."""
SURE = 5.0
"""What every other action costs more where a rule decides."""


class Weights(NamedTuple):
    """Of what a sequence costs, beside the distance along the line that it falls short."""

    bearing: float = 9.59
    """Of the squared angle to the point that is steered at."""
    offset: float = 0.104
    """Of the squared distance from the line."""
    fast: float = 1.36
    """Of the squared speed above the plan."""
    slow: float = 0.372
    """Of the squared speed that is lacking to ``SLOW``."""
    late: float = 0.194
    """Of the speed that is lacking to the plan."""
    grass: float = 100.0
    """Of a second with all wheels on grass."""


class Cars(NamedTuple):
    """One car after each of N sequences, float64 [N]: where it is, how it moves, and seconds of its wheels on grass."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    vx: NDArray[np.float64]
    vy: NDArray[np.float64]
    angle: NDArray[np.float64]
    turning: NDArray[np.float64]
    grass_s: NDArray[np.float64]


class Road:
    """Where there is road: a map of the cells of a ``track`` of Gymnasium's CarRacing."""

    def __init__(self, track: NDArray[np.float64]) -> None:
        middle = track[:, 2:4]
        self.low = middle.min(axis=0) - AROUND
        columns, rows = ((np.ptp(middle, axis=0) + 2 * AROUND) / CELL).astype(int)
        self.cells = np.zeros((rows, columns), np.uint8)
        points = np.rint((middle - self.low) / CELL).astype(np.int32)
        cv2.polylines(self.cells, [points], True, 1, thickness=round(2 * TRACK_WIDTH / CELL))

    def under(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.uint8]:
        """1 where there is road, 0 where there is grass, also beyond the map; of the shape of ``x`` and ``y``."""
        column, row = (np.rint((values - low) / CELL).astype(int) for values, low in zip((x, y), self.low, strict=True))
        rows, columns = self.cells.shape
        return np.asarray(self.cells[row.clip(0, rows - 1), column.clip(0, columns - 1)])


class Predictive(RacingLine):
    """Drives CarRacing with five actions; how long each will hold is taken to be how long the one before did."""

    name = "predictive"
    needs = Needs(repeat=REPEAT, any_pace=True)

    def __init__(self, parameters: RacingLineParameters = PARAMETERS, weights: Weights | None = None) -> None:
        super().__init__(parameters)
        self.weights = weights or Weights()

    def reset(self, env: Any) -> None:
        super().reset(env)
        # So fine that the nearest point will do for all that is looked up.
        self._spots = np.arange(0.0, self.along[-1], SPACING)
        ends = [np.append(column, column[0]) for column in (*self.line.T, self.limits, self.curvature)]
        self._x, self._y, self._limits, self._bends = (np.interp(self._spots, self.along, column) for column in ends)
        self._last_s = 0.0
        self._road = Road(np.array(self.world.track))

    def act(self, frame: Frame | None = None, info: Info | None = None) -> Action:
        """The action whose best sequence costs least; ``logits`` say by how much each of the others costs more."""
        hull = self.world.car.hull
        x, y = hull.position
        speed = float(hull.linearVelocity.length)
        steering = self._steering(hull, x, y, self._locate(x, y), speed)
        now_s = 0.0 if info is None else float(info["t_s"])
        steps, self._last_s = round((now_s - self._last_s) * FPS), now_s
        if abs(steering) == 1.0 or speed < SLOW:
            # Turned away from the road: no sequence is so long that turning round would end better than standing. And
            # of a car that stands, the best often is to steer first and give gas later, at each decision anew.
            return rule("gas" if speed < SLOW else "right" if steering > 0 else "left")
        best = self._cost(predict(self.world.car, self._road, max(steps, REPEAT))).reshape(len(ACTIONS), -1).min(axis=1)
        return to_action(int(best.argmin()), np.asarray(best.min() - best, np.float32))

    def _cost(self, cars: Cars) -> NDArray[np.float64]:
        """What is wrong with where each of N sequences ends, [N]; less is better."""
        p, w, count = self.parameters, self.weights, len(self._spots)
        speed = np.hypot(cars.vx, cars.vy)
        near = np.arange(-10, 200) + int(self.along[self._at] / SPACING)
        spots = near % count
        far = (cars.x[:, None] - self._x[spots]) ** 2 + (cars.y[:, None] - self._y[spots]) ** 2
        nearest = far.argmin(axis=1)
        at = spots[nearest]
        target = (at + ((p.ahead + p.ahead_s * speed) / SPACING).astype(int)) % count
        bearing = np.arctan2(self._y[target] - cars.y, self._x[target] - cars.x) - (cars.angle + math.pi / 2)
        bearing -= p.lead_s * (cars.turning - speed * self._bends[at])
        bearing = (bearing + math.pi) % (2 * math.pi) - math.pi
        limit = self._limits[(at + (p.reaction_s * speed / SPACING).astype(int)) % count]
        if not any(wheel.tiles for wheel in self.world.car.wheels):
            limit = np.minimum(limit, LOST_SPEED)
        return np.asarray(
            w.bearing * bearing**2
            + w.offset * far.min(axis=1)
            + w.fast * np.maximum(0, speed - limit) ** 2
            + w.slow * np.maximum(0, SLOW - speed) ** 2
            + w.late * np.maximum(0, limit - speed)
            + w.grass * cars.grass_s
            - near[nearest] * SPACING
        )


def rule(wanted: str) -> Action:
    """An action of that name, and ``logits`` that leave no doubt."""
    return to_action(ACTIONS.index(wanted), np.array([-SURE * (name != wanted) for name in ACTIONS], np.float32))


def predict(car: Any, road: Road, steps: int, decisions: int = AHEAD) -> Cars:
    """Where ``car`` of Gymnasium's CarRacing is after each sequence of so many decisions, every one of which is held
    for ``steps`` frames; N is five to that power, the last decision changes first.
    """
    hull, dt, each = car.hull, 1 / FPS, len(ACTIONS)
    bodies = (hull, *car.wheels)
    masses = np.array([body.mass for body in bodies])
    x, y = masses @ np.array([body.worldCenter for body in bodies]) / MASS
    vx, vy = masses @ np.array([body.linearVelocity for body in bodies]) / MASS
    places = np.array(dynamics.WHEELPOS) * dynamics.SIZE - np.array(hull.GetLocalPoint((x, y)))
    # A column for each of the values, a row for each car.
    cars = np.array([[x, y, vx, vy, hull.angle, hull.angularVelocity, car.wheels[0].joint.angle, car.wheels[2].gas, 0]])
    spin = np.array([[wheel.omega for wheel in car.wheels]])
    for _ in range(decisions):
        choices = np.tile(np.arange(each), len(cars))
        wanted, wanted_gas, brakes = RADIANS[choices], GAS[choices], 15 * BRAKES[choices][:, None]
        x, y, vx, vy, angle, turning, wheel_angle, gas, grass_s = np.repeat(cars, each, axis=0).T
        spin = np.repeat(spin, each, axis=0)
        for _ in range(steps):
            gas = np.minimum(wanted_gas, gas + 0.1)
            wrong = wanted - wheel_angle
            spin[:, 2:] += (dt * dynamics.ENGINE_POWER / dynamics.WHEEL_MOMENT_OF_INERTIA * gas)[:, None] / (
                np.abs(spin[:, 2:]) + 5
            )
            spin -= np.sign(spin) * np.minimum(brakes, np.abs(spin))
            cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
            from_x, from_y = cos * places[:, 0] - sin * places[:, 1], sin * places[:, 0] + cos * places[:, 1]
            on_road = road.under(x[:, None] + from_x, y[:, None] + from_y)
            holds = dynamics.FRICTION_LIMIT * np.where(on_road, 1.0, GRASS)
            grass_s = grass_s + dt * (1 - on_road.mean(axis=1))
            pointing = angle[:, None] + wheel_angle[:, None] * (1, 1, 0, 0)
            ahead_x, ahead_y = -np.sin(pointing), np.cos(pointing)
            moving_x, moving_y = vx[:, None] - turning[:, None] * from_y, vy[:, None] + turning[:, None] * from_x
            forward = STIFFNESS * (spin * WHEEL_RADIUS - ahead_x * moving_x - ahead_y * moving_y)
            sideways = STIFFNESS * (ahead_x * moving_y - ahead_y * moving_x)
            share = np.minimum(1, holds / np.maximum(np.hypot(forward, sideways), 1e-9))
            forward, sideways = share * forward, share * sideways
            spin -= dt * WHEEL_RADIUS / dynamics.WHEEL_MOMENT_OF_INERTIA * forward
            force_x, force_y = forward * ahead_x + sideways * ahead_y, forward * ahead_y - sideways * ahead_x
            vx, vy = vx + dt * force_x.sum(axis=1) / MASS, vy + dt * force_y.sum(axis=1) / MASS
            turning = turning + dt * (from_x * force_y - from_y * force_x).sum(axis=1) / INERTIA
            wheel_angle = wheel_angle + dt * np.sign(wrong) * np.minimum(50 * np.abs(wrong), 3)
            wheel_angle = np.clip(wheel_angle, -FULL_LOCK, FULL_LOCK)
            x, y, angle = x + dt * vx, y + dt * vy, angle + dt * turning
        cars = np.stack([x, y, vx, vy, angle, turning, wheel_angle, gas, grass_s], axis=1)
    return Cars(x, y, vx, vy, angle, turning, grass_s)


class Rescued(DriverWrapper):
    """Another driver of CarRacing's five actions, and ``Predictive`` where all wheels have left the road or the car
    hardly moves, until all are back and it drives. What no camera shows cannot be learnt: a car that drives the
    road the wrong way is left to the driver, and where no road has been in sight lately (at the start one has) it
    circles, as it turns already, until one is.
    """

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver)
        self.name, self.rescuer = f"{driver.name}-rescued", Predictive()

    def reset(self, env: Any) -> None:
        super().reset(env)
        self.rescuer.reset(env)
        self._is_lost, self._seen_s = False, 0.0

    def act(self, frame: Frame, info: Info) -> Action:
        # Both are asked, so that neither misses what happens while the other one drives.
        own, rescue = super().act(frame, info), self.rescuer.act(frame, info)
        car = self.rescuer.world.car
        speed, on_road = car.hull.linearVelocity.length, [bool(wheel.tiles) for wheel in car.wheels]
        self._is_lost = not (all if self._is_lost else any)(on_road) or speed < SLOW
        self._seen_s = info["t_s"] if self.rescuer.is_road_in_sight() else self._seen_s
        if not self._is_lost:
            return own
        if speed < SLOW or info["t_s"] - self._seen_s < SEEN_S:
            return rescue
        return rule("gas" if speed < CIRCLING else "left" if car.hull.angularVelocity > 0 else "right")


def ppo_rescued() -> Rescued:
    """The expert of that name: ``ppo`` has never been shown the way back."""
    from nacdrive.drivers import load_expert

    return Rescued(load_expert("ppo"))
