"""A driver that reads the track instead of looking: pure pursuit on the centre line with five actions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.envs.carracing.env import to_action

NOTHING, RIGHT, LEFT, GAS, BRAKE = range(5)


@dataclass(frozen=True)
class Pursuit:
    """Parameters of the controller; lengths in units of the simulator, speeds in units per second."""

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
    """Never faster than this."""
    brake_over: float = 3.9
    """Speed above the limit from which it brakes."""


class PurePursuitExpert:
    """Upper reference of what five actions can do with the track known, and a teacher for tests that must be quick."""

    def __init__(self, pursuit: Pursuit | None = None, repeat: int = 4) -> None:
        self.name = "geometric"
        self.repeat = repeat
        self.pursuit = pursuit or Pursuit()

    def reset(self) -> None:
        """Nothing to forget: it drives through ``new_episode(env)`` alone."""

    def act(self, frame: NDArray[np.uint8]) -> Action:
        """Refused: this expert reads the track, which no frame shows."""
        raise UserError("the geometric expert reads the track: let it drive through new_episode(env).")

    def new_episode(self, env: gymnasium.Env[Any, Any] | None = None) -> PurePursuitEpisode:
        """Ride along in ``env`` (CarRacing, after its ``reset``)."""
        if env is None:
            raise UserError("the geometric expert reads the track: give new_episode the environment.")
        inner: Any = env.unwrapped
        world = getattr(inner, "world", None)
        world = world if hasattr(world, "track") else inner
        if not hasattr(world, "track"):
            raise UserError("the geometric expert knows CarRacing alone: give new_episode such an environment, reset.")
        return PurePursuitEpisode(world, self.pursuit)


class PurePursuitEpisode:
    """Pure pursuit on one lap."""

    def __init__(self, world: Any, pursuit: Pursuit) -> None:
        self.world, self.pursuit = world, pursuit
        self.line = np.array([point[2:4] for point in world.track])
        steps = np.roll(self.line, -1, axis=0) - self.line
        heading = np.arctan2(steps[:, 1], steps[:, 0])
        turn = (np.roll(heading, -1) - heading + math.pi) % (2 * math.pi) - math.pi
        self.spacing = float(np.linalg.norm(steps, axis=1).mean())
        # Bends are judged over three points: single ones are noisy.
        self.curvature = np.abs(np.convolve(np.r_[turn[-1:], turn, turn[:1]], np.ones(3) / 3, "valid")) / self.spacing
        self.at = 0

    def observe(self, frame: NDArray[np.uint8]) -> Action:
        """What pure pursuit would do now; ``frame`` is not looked at."""
        p, hull = self.pursuit, self.world.car.hull
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


class PurePursuit:
    """TEMPORARY."""

    name = "geometric"
    repeat = 4

    def __init__(self):
        from nacdrive.drivers.pure_pursuit_track import TrackPursuit

        self._track = TrackPursuit()

    def vary(self, rng):
        from nacdrive.drivers.pure_pursuit_track import TrackPursuit

        self._track = TrackPursuit(top_speed=float(rng.uniform(5.0, 13.4)))
        return {"top_speed_mps": self._track.top_speed}

    def reset(self, env):
        from nacdrive.drivers.pure_pursuit_track import LakeDriver

        if hasattr(env.unwrapped, "course"):
            self._e = LakeDriver(env, self._track)
        else:
            self._e = PurePursuitExpert().new_episode(env)

    def act(self, frame, info):
        return self._e.observe(frame)
