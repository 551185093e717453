"""A driver of one's own: all that it needs is a name, ``reset`` and ``act``.

nacdrive drive --env my_env:make_env --driver my_driver:MyDriver
"""

import math

import numpy as np

from nacdrive.common.action import Action

NEAR = slice(32, 40)
"""Rows of the picture a few metres ahead."""


class MyDriver:
    """Steers towards the middle of what is grey; as it remembers nothing, it can label what others drive."""

    name = "grey-seeker"

    def reset(self, env):
        """A new episode begins in ``env``; a driver with a memory forgets the last one here."""

    def act(self, frame, info):
        """``frame`` is uint8 [height, width, 3]; ``info`` has time, speed and what else the environment says."""
        red, green, _ = frame[NEAR].astype(int).transpose(2, 0, 1)
        rows, columns = np.nonzero(abs(red - green) < 30)
        if not len(columns):
            return Action(steering=0.0, throttle=0.5, brake=0.0)
        ahead, right = 48 - NEAR.start - rows.mean(), columns.mean() - frame.shape[1] / 2
        wanted = math.atan2(right, ahead)  # radians to the right of north, as the picture shows it
        heading = math.pi / 2 - info["heading_rad"]
        steering = max(-1.0, min(1.0, (wanted - heading) / 0.15))
        return Action(steering, throttle=0.5, brake=0.0)
