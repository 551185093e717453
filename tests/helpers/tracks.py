"""Where a car is on a built-in track."""

from __future__ import annotations

import math

from nacdrive.envs.udacity_track.env import UdacityTrackEnv


def turned_right(env: UdacityTrackEnv) -> float:
    """Radians by which the car points to the right of the road."""
    _, along = env.track.at(env.track_position.s)
    return math.remainder(along - env.car.heading, math.tau)
