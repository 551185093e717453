"""A driver that reads the track instead of looking: pure pursuit of a point on the middle of the road ahead.

It is an upper reference of what is possible with the track known, and an expert to learn from. What it does depends on
the present state of the environment alone; on CarRacing it also follows the car along the road, from ``reset`` on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.base import Driver, Needs
from nacdrive.envs.base import Frame, Info
from nacdrive.envs.carracing.env import ACTIONS, to_action

if TYPE_CHECKING:
    from nacdrive.envs.udacity_track.env import UdacityTrackEnv

NOTHING, RIGHT, LEFT, GAS, BRAKE = range(len(ACTIONS))

PASS_BESIDE_M = 4.0
"""Metres between the middles of two cars, side by side, at which it passes slow ones."""
PASS_EDGE_M = 2.2
"""Metres from its middle to the left edge of the asphalt, at least: cars may stand there."""
PASS_M, PASS_RAMP_M = (4.0, 6.0), (6.0, 8.0)
"""Metres before a slow car and past it within which the point steered at keeps beside it, and swings out and back."""
TOP_SPEEDS_MPS = 5.0, 13.4
"""Slowest and fastest of the drivers that recordings of the built-in tracks are made with."""


@dataclass(frozen=True)
class DiscretePursuit:
    """Parameters for CarRacing's five actions; lengths in units of the simulator, speeds in units per second."""

    ahead: float = 9.3
    """Distance of the point that is steered at, when standing."""
    ahead_s: float = 0.335
    """Seconds of travel by which that point lies further away."""
    steer_from: float = 0.167
    """Angle to that point, in radians, from which it steers."""
    lead_s: float = 0.087
    """Seconds by which the car's present turning is reckoned ahead before it steers more."""
    horizon_s: float = 0.71
    """Seconds of travel within which bends limit the speed."""
    grip: float = 395.0
    """Sideways acceleration that the bends are taken with."""
    top_speed: float = 104.0
    brake_over: float = 3.9
    """Speed above the limit from which it brakes."""


@dataclass(frozen=True)
class ContinuousPursuit:
    """Parameters for steering and pedals on the built-in Udacity tracks, in metres and seconds, m/s².

    The first ones are as of ``DiscretePursuit``; ``braking`` is the deceleration before bends.
    """

    ahead: float = 3.5
    ahead_s: float = 0.45
    grip: float = 7.0
    braking: float = 5.0
    top_speed: float = 13.4
    """Never faster than this: the simulator's own 30 mph."""
    throttle_gain: float = 1.0
    """Throttle per m/s below the wanted speed."""
    brake_gain: float = 0.12
    """Brake per m/s above it."""


class PurePursuit(Driver):
    """Drives CarRacing and the built-in Udacity tracks, with the usual ``parameters`` if none are given."""

    name = "geometric"
    needs = Needs(repeat=4, any_pace=True)

    def __init__(self, parameters: DiscretePursuit | ContinuousPursuit | None = None) -> None:
        self.parameters = parameters
        self._controller: _Discrete | _Continuous | None = None

    def reset(self, env: Any) -> None:
        """Begin the episode of ``env``, which has just been reset; ``UserError`` for one whose track is not known."""
        inner: Any = env.unwrapped
        # Gymnasium's own CarRacing, or ours around it.
        world = inner if hasattr(inner, "track") else getattr(inner, "world", None)
        if hasattr(inner, "track_position"):
            self._controller = _Continuous(inner, self._fitting(ContinuousPursuit, inner))
        elif hasattr(world, "track"):
            self._controller = _Discrete(world, self._fitting(DiscretePursuit, inner))
        else:
            what = "the geometric driver reads the track, and knows those of CarRacing and of udacity-track alone"
            raise UserError(f"{what}: let somebody else drive {getattr(inner, 'name', type(inner).__name__)}.")

    def act(self, frame: Frame | None = None, info: Info | None = None) -> Action:
        if self._controller is None:
            raise UserError("the geometric driver reads the track: call reset(env) first.")
        return self._controller.action()

    def vary(self, rng: np.random.Generator) -> dict[str, Any]:
        top_speed = float(rng.uniform(*TOP_SPEEDS_MPS))
        self.parameters = ContinuousPursuit(top_speed=top_speed)
        return {"top_speed_mps": top_speed}

    def _fitting(self, kind: type[Any], env: Any) -> Any:
        if self.parameters is not None and not isinstance(self.parameters, kind):
            name = getattr(env, "name", type(env).__name__)
            raise UserError(f"{name} is driven with {kind.__name__}, and {type(self.parameters).__name__} was given.")
        return self.parameters or kind()


class _Discrete:
    """Pure pursuit on one lap of CarRacing; ``world`` is Gymnasium's environment."""

    def __init__(self, world: Any, parameters: DiscretePursuit) -> None:
        self.world, self.parameters = world, parameters
        self.line = np.array([point[2:4] for point in world.track])
        steps = np.roll(self.line, -1, axis=0) - self.line
        heading = np.arctan2(steps[:, 1], steps[:, 0])
        turn = (np.roll(heading, -1) - heading + math.pi) % (2 * math.pi) - math.pi
        self.spacing = float(np.linalg.norm(steps, axis=1).mean())
        # Bends are judged over three points: single ones are noisy.
        self.curvature = np.abs(np.convolve(np.r_[turn[-1:], turn, turn[:1]], np.ones(3) / 3, "valid")) / self.spacing
        self.at = 0

    def action(self) -> Action:
        p, hull = self.parameters, self.world.car.hull
        x, y = hull.position
        speed = float(hull.linearVelocity.length)
        near = (self.at + np.arange(-10, 30)) % len(self.line)
        self.at = int(near[np.argmin(((self.line[near] - (x, y)) ** 2).sum(axis=1))])

        target = self.line[(self.at + round((p.ahead + p.ahead_s * speed) / self.spacing)) % len(self.line)]
        # The car points along its own +y axis; a positive angle lies to the left.
        bearing = math.atan2(target[1] - y, target[0] - x) - (hull.angle + math.pi / 2)
        bearing = (bearing + math.pi) % (2 * math.pi) - math.pi - p.lead_s * hull.angularVelocity

        reach = max(3, round(p.horizon_s * speed / self.spacing))
        bend = float(self.curvature[(self.at + np.arange(reach)) % len(self.line)].max())
        limit = min(p.top_speed, math.sqrt(p.grip / max(bend, 1e-6)))
        if speed > limit + p.brake_over:
            return to_action(BRAKE)
        if abs(bearing) > p.steer_from:
            return to_action(LEFT if bearing > 0 else RIGHT)
        return to_action(GAS if speed < limit else NOTHING)


class _Continuous:
    """Pure pursuit on a built-in track, with bends taken slowly; from any pose, without memory."""

    def __init__(self, env: UdacityTrackEnv, parameters: ContinuousPursuit) -> None:
        from nacdrive.envs.udacity_track.drivable import speed_limits

        self.env, self.parameters, p = env, parameters, parameters
        self.limits = speed_limits(env.track.curvature, env.track.spacing, p.top_speed, p.grip, p.braking)

    def action(self) -> Action:
        p, car = self.parameters, self.env.car
        # The limit a moment ahead: the car answers late.
        ahead = round(0.2 * car.speed / self.env.track.spacing)
        over = car.speed - self.limits[(self.env.track_position.index + ahead) % len(self.limits)]
        throttle = min(1.0, max(0.0, -p.throttle_gain * over))
        # Below 5 mph the simulator's brake pedal is its reverse gear.
        brake = min(1.0, p.brake_gain * over) if over > 0.5 and car.speed > 3.0 else 0.0
        return Action(self._steering(), throttle, brake)

    def _steering(self) -> float:
        from nacdrive.envs.udacity_track.car import FULL_LOCK, WHEELBASE

        car, position, p = self.env.car, self.env.track_position, self.parameters
        reach = p.ahead + p.ahead_s * car.speed
        # Far off the middle the point has to lie further ahead, or the car would cross the road at a steep angle.
        reach = max(reach, 1.5 * abs(position.offset))
        target, along = self.env.track.at(position.s + reach)
        target[:2] += self._beside(position.s + reach) * np.array((-math.sin(along), math.cos(along)))
        # The rear axle follows the arc.
        east, north = car.position[:2] - WHEELBASE / 2 * np.array((math.cos(car.heading), math.sin(car.heading)))
        to_east, to_north = target[0] - east, target[1] - north
        bearing = car.heading - math.atan2(to_north, to_east)
        bearing = (bearing + math.pi) % (2 * math.pi) - math.pi
        if abs(bearing) > math.pi / 2:
            return math.copysign(1.0, bearing)
        angle = math.atan2(2 * WHEELBASE * math.sin(bearing), math.hypot(to_east, to_north))
        return max(-1.0, min(1.0, math.degrees(angle) / FULL_LOCK))

    def _beside(self, s: float) -> float:
        """Metres to the left of the middle at which slow cars of the right lane are passed at ``s``, 0 without any."""
        from nacdrive.envs.udacity_track.traffic import apart

        cars = self.env.traffic.cars
        ahead = apart(self.env.track, cars.s, s)
        kept, ramp = np.where(ahead > 0, *PASS_M), np.where(ahead > 0, *PASS_RAMP_M)
        near = float(np.clip((kept + ramp - np.abs(ahead)) / ramp, 0.0, 1.0).max(initial=0.0))
        return near * min(max(0.0, self.env.track.half_width - PASS_EDGE_M), max(0.0, PASS_BESIDE_M - cars.offset))
