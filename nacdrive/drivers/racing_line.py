"""A driver of CarRacing with steering, gas and brake: pure pursuit along a racing line, as fast as the tyres allow.

It reads the track instead of looking: a reference of what continuous actions can reach, and an expert to learn from.
The line is a quadratic programme's, speeds along it follow from the tyres' grip in two passes, as of lap times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium.envs.box2d import car_racing as official
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.base import Driver, Needs
from nacdrive.envs.base import Frame, Info
from nacdrive.envs.carracing.tyres import BRAKE_AT_LIMIT, FRICTION, GAS_AT_LIMIT, GAS_FROM, WHEELBASE

LOST_SPEED = 15.0
"""Never faster while no wheel is on the road: with full lock and much gas the car would turn on the spot for good."""
BEHIND, AHEAD_SEEN, ASIDE = 10.0, 40.0, 34.0
"""How far from the car the line of a road that is in the picture can lie."""
SEEN_S = 0.5
"""For how long a picture is remembered: a dozen decisions, as the window of a policy."""
WRONG_WAY = -0.5
"""Cosine of the angle between car and line below which a car on the road drives it the other way round."""
SLOW, FROM_REST = 8.0, 0.2
"""Below this speed there is at least so much gas, as of the five actions, where what no camera shows is not said."""
CIRCLING, CIRCLING_SPEED = 0.05, 40.0
"""Steering and speed with which a road is looked for where none is in sight: a circle of some 60 units' radius."""
USUAL_GAP_S, LEAST_PACE = 0.05, 0.5
"""Up to so many seconds between two decisions the plan's speed is driven; least share of it where there are more."""
PENALTY, ROUNDS = 0.001, 400
"""Of the solver of the racing line: its step, and how many."""


@dataclass(frozen=True)
class RacingLineParameters:
    """What the driver is made of; lengths in units of the simulator, speeds in units per second."""

    margin: float = 1.87
    """Least distance between the line and the edge of the road."""
    shortness: float = 0.00468
    """Weight of the line's length against its bending; 0 is the line of least curvature."""
    grip: float = 214.0
    drive: float = 40.5
    """Acceleration on the straight that speeds are planned with."""
    braking: float = 170.0
    """Deceleration before bends that speeds are planned with."""
    top_speed: float = 112.0
    ahead: float = 4.25
    """Distance along the line of the point that is steered at, when standing."""
    ahead_s: float = 0.1325
    lead_s: float = 0.0541
    """Seconds by which turning faster or more slowly than the line does is reckoned ahead."""
    reaction_s: float = 0.0607
    """Seconds ahead at which the planned speed is looked up: the car answers late."""
    traction: float = 1.006
    """Share of a wheel's friction that gas and turning together may use."""
    brake_gain: float = 0.119
    """Share of a wheel's friction that braking uses per unit of speed above the plan."""


WITH_MARGIN = RacingLineParameters(grip=171.0, braking=136.0, top_speed=100.0)


class RacingLine(Driver):
    """Drives CarRacing with continuous actions on the racing line of its track."""

    name = "racing-line"
    needs = Needs(continuous=True, repeat=2, any_pace=True)

    def __init__(self, parameters: RacingLineParameters | None = None) -> None:
        self.parameters = parameters or RacingLineParameters()
        self._pace = 1.0  # share of the planned speed
        self._world: Any = None

    def reset(self, env: Any) -> None:
        """Begin the episode of ``env``, which has just been reset; ``UserError`` if it is no continuous CarRacing."""
        inner: Any = env.unwrapped
        world = inner if hasattr(inner, "track") else getattr(inner, "world", None)
        if not isinstance(world, official.CarRacing):
            name = getattr(inner, "name", type(inner).__name__)
            raise UserError(f"the driver of the racing line knows CarRacing alone: let somebody else drive {name}.")
        if world.continuous != self.needs.continuous:
            steers = "steers and brakes by degrees: give CarRacing continuous"
            chooses = "chooses one of five actions: give CarRacing that takes these"
            raise UserError(f"the driver of the racing line {steers if self.needs.continuous else chooses}.")
        self._world = world
        self.line = racing_line(np.array(world.track), self.parameters)
        self.limits, self.curvature, self.along = speed_plan(self.line, self.parameters)
        self._at = 0

    @property
    def world(self) -> Any:
        """Gymnasium's CarRacing; ``UserError`` before the first ``reset``."""
        if self._world is None:
            raise UserError("the driver of the racing line reads the track: call reset(env) first.")
        return self._world

    def act(self, frame: Frame | None = None, info: Info | None = None) -> Action:
        p, hull = self.parameters, self.world.car.hull
        x, y = hull.position
        speed = float(hull.linearVelocity.length)
        s = self._locate(x, y)
        limit = self._pace * self._at_s(self.limits, s + p.reaction_s * speed)
        if not any(wheel.tiles for wheel in self.world.car.wheels):
            limit = min(limit, LOST_SPEED)
        steering = self._steering(hull, x, y, s, speed)
        gas, brake = self._pedals(speed, limit, abs(speed * float(hull.angularVelocity)))
        return Action(steering, gas, brake)

    def is_road_in_sight(self) -> bool:
        """Whether the picture shows a road, wherever on the lap."""
        hull = self.world.car.hull
        east, north = (self.line - hull.position).T
        # The car points along its own +y axis.
        ahead = north * math.cos(hull.angle) - east * math.sin(hull.angle)
        aside = north * math.sin(hull.angle) + east * math.cos(hull.angle)
        return bool(((ahead > -BEHIND) & (ahead < AHEAD_SEEN) & (abs(aside) < ASIDE)).any())

    def _locate(self, x: float, y: float) -> float:
        """Distance along the line of its point nearest to the car, which is followed from decision to decision."""
        count = len(self.line)
        near = (self._at + np.arange(-4, 12)) % count
        self._at = at = int(near[np.argmin(((self.line[near] - (x, y)) ** 2).sum(axis=1))])
        step_x, step_y = self.line[(at + 1) % count] - self.line[at - 1]
        beyond = ((x - self.line[at, 0]) * step_x + (y - self.line[at, 1]) * step_y) / math.hypot(step_x, step_y)
        return float(self.along[at] + beyond)

    def _at_s(self, values: NDArray[np.float64], s: float) -> float:
        s %= float(self.along[-1])
        after = int(np.searchsorted(self.along, s, side="right"))
        share = (s - self.along[after - 1]) / (self.along[after] - self.along[after - 1])
        count = len(values)
        return float(values[(after - 1) % count] * (1 - share) + values[after % count] * share)

    def _steering(self, hull: Any, x: float, y: float, s: float, speed: float) -> float:
        p = self.parameters
        target = s + p.ahead + p.ahead_s * speed
        to_x = self._at_s(self.line[:, 0], target) - x
        to_y = self._at_s(self.line[:, 1], target) - y
        # The car points along its own +y axis; a positive angle lies to the left.
        bearing = math.atan2(to_y, to_x) - (hull.angle + math.pi / 2)
        bearing -= p.lead_s * (float(hull.angularVelocity) - speed * self._at_s(self.curvature, s))
        bearing = (bearing + math.pi) % (2 * math.pi) - math.pi
        if abs(bearing) > math.pi / 2:
            return -math.copysign(1.0, bearing)
        # The front wheels turn to this angle: the environment takes radians, up to its joints' limit of 0.4.
        return max(-1.0, min(1.0, -math.atan2(2 * WHEELBASE * math.sin(bearing), math.hypot(to_x, to_y))))

    def _pedals(self, speed: float, limit: float, sideways: float) -> tuple[float, float]:
        """Gas and brake that stay within what the tyres have left beside turning."""
        p, car = self.parameters, self.world.car
        left = math.sqrt(max(0.0, p.traction**2 - (sideways / FRICTION) ** 2))
        if speed > limit:
            return 0.0, min(left, p.brake_gain * (speed - limit)) * BRAKE_AT_LIMIT
        # Less of it close to the limit, or gas and brake would alternate.
        wanted = min(left, 0.25 * (limit - speed))
        omega = min(abs(wheel.omega) for wheel in car.wheels[2:4])
        return min(1.0, wanted * GAS_AT_LIMIT * (omega + GAS_FROM)), 0.0


def cautious() -> RacingLine:
    """Slower, for ``--expert nacdrive.drivers.racing_line:cautious``: agents that see little have time to recover."""
    return RacingLine(RacingLineParameters(grip=80.0, drive=30.0, braking=70.0, top_speed=45.0))


def with_margin() -> RacingLine:
    """Four fifths of the grip, for ``--expert nacdrive.drivers.racing_line:with_margin``: a teacher for those who see
    little or late, hardly slower where they see all; it drove the recordings of ``nac_steady_continuous.pt``.
    """
    return RacingLine(WITH_MARGIN)


def below_bound() -> RacingLine:
    """For ``--expert nacdrive.drivers.racing_line:below_bound``: never at the 100 units a second that Box2D allows."""
    return RacingLine(RacingLineParameters(top_speed=96.0))


class AsSeen(RacingLine):
    """``with_margin``, less what no camera shows, for ``--expert nacdrive.drivers.racing_line:AsSeen --bad-starts``: a
    car that drives the road the wrong way is led on that way, and where no road has been in sight lately (at the start
    one has) it circles, as it turns already, until one is.
    """

    def __init__(self) -> None:
        super().__init__(WITH_MARGIN)

    def reset(self, env: Any) -> None:
        super().reset(env)
        self._ways = [(line, *speed_plan(line, self.parameters)) for line in (self.line, self.line[::-1])]
        self._is_backwards, self._seen_s = False, 0.0

    def act(self, frame: Frame | None = None, info: Info | None = None) -> Action:
        hull, now_s = self.world.car.hull, 0.0 if info is None else float(info["t_s"])
        line, at = self._ways[0][0], len(self.line) - 1 - self._at if self._is_backwards else self._at
        along = line[(at + 1) % len(line)] - line[at - 1]
        cosine = (along[1] * math.cos(hull.angle) - along[0] * math.sin(hull.angle)) / math.hypot(*along)
        self._is_backwards = any(wheel.tiles for wheel in self.world.car.wheels) and bool(cosine < WRONG_WAY)
        self.line, self.limits, self.curvature, self.along = self._ways[self._is_backwards]
        self._at = len(line) - 1 - at if self._is_backwards else at
        own, speed = super().act(frame, info), float(hull.linearVelocity.length)
        self._seen_s = now_s if self.is_road_in_sight() else self._seen_s
        if now_s - self._seen_s >= SEEN_S:
            # Gently: with much gas on grass the car would turn on the spot.
            gas, brake = self._pedals(speed, min(CIRCLING_SPEED, speed + 1), abs(speed * float(hull.angularVelocity)))
            own = Action(-math.copysign(CIRCLING, hull.angularVelocity), gas, brake)
        # At rest the tyres need so little that who learns it by squared errors may stand for ever.
        return replace(own, throttle=max(own.throttle, FROM_REST)) if speed < SLOW else own


class AtFrameRate(AsSeen):
    """``AsSeen``, the slower the longer its last decision was held, for ``--rate``: so will be the next one."""

    SLOWER = 4 / 3
    """By which share of the planned speed for each second beyond ``USUAL_GAP_S``."""

    def reset(self, env: Any) -> None:
        super().reset(env)
        self._last_s, self._pace = 0.0, 1.0

    def act(self, frame: Frame | None = None, info: Info | None = None) -> Action:
        now_s = 0.0 if info is None else float(info["t_s"])
        if now_s > self._last_s:
            self._pace = max(LEAST_PACE, 1 - self.SLOWER * max(now_s - self._last_s - USUAL_GAP_S, 0.0))
        self._last_s = now_s
        return super().act(frame, info)


def racing_line(track: NDArray[np.float64], parameters: RacingLineParameters) -> NDArray[np.float64]:
    """The closed line [N, 2] within the road that bends least, a point a tile of ``track`` [N, 4] (alpha, beta, x, y).

    Minimises the sum of squared second differences, and ``shortness`` times that of the first ones, over the offsets
    from the middle of the road; by the alternating direction method of multipliers (Boyd et al., 2011, section 5.2).
    """
    middle = track[:, 2:4]
    across = np.stack([np.cos(track[:, 1]), np.sin(track[:, 1])], axis=1)
    count = len(track)
    spacing = np.linalg.norm(np.roll(middle, -1, axis=0) - middle, axis=1)
    step = np.roll(np.eye(count), 1, axis=1) - np.eye(count)
    step /= np.maximum(spacing, official.TRACK_DETAIL_STEP / 2)[:, None]
    bend = step - np.roll(step, 1, axis=0)
    rows = [weight * matrix for weight, matrix in ((1.0, bend), (math.sqrt(parameters.shortness), step))]
    matrix = np.concatenate([row * across[:, axis] for row in rows for axis in range(2)])
    fixed = np.concatenate([row @ middle[:, axis] for row in rows for axis in range(2)])
    room = max(0.0, official.TRACK_WIDTH - parameters.margin)
    solve = np.linalg.inv(matrix.T @ matrix + PENALTY * np.eye(count))
    pull = solve @ (matrix.T @ fixed)
    solve *= PENALTY
    kept, dual = np.zeros(count), np.zeros(count)
    for _ in range(ROUNDS):
        offsets = solve @ (kept - dual) - pull
        kept = np.clip(offsets + dual, -room, room)
        dual += offsets - kept
    return np.asarray(middle + kept[:, None] * across)


def speed_plan(
    line: NDArray[np.float64], parameters: RacingLineParameters
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The fastest speeds [N] along the closed ``line`` [N, 2] that the tyres allow, its curvature [N] (positive to the
    left), and the distance [N + 1] of each point from the first one, with the whole length behind.
    """
    p = parameters
    steps = np.roll(line, -1, axis=0) - line
    lengths = np.maximum(np.hypot(steps[:, 0], steps[:, 1]), 1e-6)
    heading = np.arctan2(steps[:, 1], steps[:, 0])
    turn = (heading - np.roll(heading, 1) + math.pi) % (2 * math.pi) - math.pi
    curvature = turn / ((lengths + np.roll(lengths, 1)) / 2)
    # Single points are noisy.
    curvature = (np.roll(curvature, 1) + 2 * curvature + np.roll(curvature, -1)) / 4
    bends = np.abs(curvature)
    limits = np.sqrt(p.grip / np.maximum(bends, p.grip / p.top_speed**2)).tolist()
    gaps, bends = lengths.tolist(), bends.tolist()

    def reachable(speed: float, bend: float, most: float, gap: float) -> float:
        used = min(1.0, speed**2 * bend / p.grip)
        return math.sqrt(speed**2 + 2 * most * math.sqrt(1 - used**2) * gap)

    count = len(limits)
    for _ in range(2):
        for i in range(count - 1, -1, -1):
            after = (i + 1) % count
            limits[i] = min(limits[i], reachable(limits[after], bends[after], p.braking, gaps[i]))
        for i in range(count):
            limits[i] = min(limits[i], reachable(limits[i - 1], bends[i - 1], p.drive, gaps[i - 1]))
    return np.array(limits), np.asarray(curvature), np.concatenate([[0.0], np.cumsum(lengths)])
