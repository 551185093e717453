"""A driver for the built-in tracks that reads the course instead of looking: pure pursuit with bends taken slowly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError

if TYPE_CHECKING:
    from nacdrive.envs.udacity_track.env import UdacityTrackEnv


@dataclass(frozen=True)
class TrackPursuit:
    """Parameters of the controller, in metres and seconds."""

    ahead: float = 3.5
    """Distance of the point that is steered at, when standing."""
    ahead_s: float = 0.45
    """Seconds of travel by which that point lies further away."""
    grip: float = 7.0
    """Sideways acceleration that bends are taken with, m/s²."""
    braking: float = 5.0
    """Deceleration with which bends are approached, m/s²."""
    top_speed: float = 13.4
    """Never faster than this: the simulator's own 30 mph."""
    throttle_gain: float = 1.0
    """Throttle per m/s below the wanted speed."""
    brake_gain: float = 0.12
    """Brake per m/s above it."""


class LakeExpert:
    """The driver of the built-in tracks as an ``Expert``: it rides along through ``new_episode(env)``."""

    name = "geometric"

    def __init__(self, pursuit: TrackPursuit | None = None, repeat: int = 5) -> None:
        self.repeat, self.pursuit = repeat, pursuit

    def reset(self) -> None:
        """Nothing to forget."""

    def act(self, frame: NDArray[np.uint8]) -> Action:
        """Refused: this expert reads the course, which no frame shows."""
        raise UserError("the geometric expert reads the course: let it drive through new_episode(env).")

    def new_episode(self, env: gymnasium.Env[Any, Any] | None = None) -> LakeDriver:
        """Ride along in ``env`` (an environment of ``make_udacity_track``)."""
        if env is None:
            raise UserError("the geometric expert reads the course: give new_episode the environment.")
        return LakeDriver(env, self.pursuit)


class LakeDriver:
    """Drives ``nacdrive/UdacityTrack-v0`` from any pose, and says at any pose how it would steer. It has no memory."""

    def __init__(self, env: Any, pursuit: TrackPursuit | None = None) -> None:
        """``env`` is a lake environment (it may be wrapped); the driver reads its car and its course."""
        world = env.unwrapped
        if not hasattr(world, "course"):
            raise UserError(
                "this driver knows the built-in tracks alone: give it an environment of make_udacity_track()."
            )
        self.world: UdacityTrackEnv = world
        self.pursuit = pursuit or TrackPursuit()
        self.limits = self._speed_limits()

    def observe(self, frame: NDArray[np.uint8]) -> Action:
        """``step``, for those who ask every expert alike; ``frame`` is not looked at."""
        return self.step()

    def step(self) -> Action:
        """What the driver would do now: steering -1 .. 1 (right is positive), throttle and brake 0 .. 1."""
        p = self.pursuit
        index = self.world.where.index
        # The limit a moment ahead: the car answers late.
        ahead = round(0.2 * self.world.car.speed / self.world.course.spacing)
        over = self.world.car.speed - float(self.limits[(index + ahead) % len(self.limits)])
        throttle = min(1.0, max(0.0, -p.throttle_gain * over))
        # Below 5 mph the simulator's brake pedal is its reverse gear.
        brake = min(1.0, p.brake_gain * over) if over > 0.5 and self.world.car.speed > 3.0 else 0.0
        return Action(self.label(), throttle, brake)

    def label(self) -> float:
        """The steering that leads back to the middle of the road from the car's present pose, -1 .. 1."""
        from nacdrive.envs.udacity_track.car import FULL_LOCK, WHEELBASE

        car, where, p = self.world.car, self.world.where, self.pursuit
        reach = p.ahead + p.ahead_s * car.speed
        # Far off the middle the point has to lie further ahead, or the car would cross the road at a steep angle.
        reach = max(reach, 1.5 * abs(where.offset))
        target, _ = self.world.course.at(where.s + reach)
        # The rear axle follows the arc.
        east, north = car.position[:2] - WHEELBASE / 2 * np.array((math.cos(car.heading), math.sin(car.heading)))
        to_east, to_north = target[0] - east, target[1] - north
        bearing = car.heading - math.atan2(to_north, to_east)
        bearing = (bearing + math.pi) % (2 * math.pi) - math.pi
        if abs(bearing) > math.pi / 2:
            return math.copysign(1.0, bearing)
        angle = math.atan2(2 * WHEELBASE * math.sin(bearing), math.hypot(to_east, to_north))
        return max(-1.0, min(1.0, math.degrees(angle) / FULL_LOCK))

    def _speed_limits(self) -> NDArray[np.float64]:
        """The speed at every point from which all bends ahead can still be reached at theirs, m/s."""
        p, course = self.pursuit, self.world.course
        limits: NDArray[np.float64] = np.sqrt(p.grip / np.maximum(np.abs(course.curvature), p.grip / p.top_speed**2))
        for _ in range(2):
            for index in range(len(limits) - 1, -1, -1):
                following = limits[(index + 1) % len(limits)]
                limits[index] = min(limits[index], math.sqrt(following**2 + 2 * p.braking * course.spacing))
        return limits


def to_lake(action: Action) -> NDArray[np.float32]:
    """The environment's (steering, throttle), float32 [2]; braking is negative throttle."""
    return np.array([action.steering, action.throttle - action.brake], dtype=np.float32)
