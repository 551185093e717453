"""An environment of one's own: a winding road from above, any Gymnasium environment with pictures will do.

nacdrive record --env my_env:make_env --driver my_driver:MyDriver --out road
"""

import gymnasium
import numpy as np


class WindingRoad(gymnasium.Env):
    """A car goes north at a steady speed; whoever drives turns it. Of the actions, steering alone counts."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(0, 255, (48, 64, 3), np.uint8)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    speed, half_width, metres_a_pixel = 8.0, 3.0, 0.4

    def reset(self, *, seed=None, options=None):
        """Another road for every seed."""
        super().reset(seed=seed)
        self.waves = self.np_random.uniform((0.02, 0, 2), (0.06, 6.28, 5), (3, 3))
        self.y, self.heading = 0.0, 0.0  # metres north, radians to the right of north
        self.x = self.middle(0.0)
        return self.picture(), self.info()

    def step(self, action):
        """A tenth of a second."""
        self.heading += 0.15 * float(action[0])
        self.x += self.speed / 10 * float(np.sin(self.heading))
        self.y += self.speed / 10 * float(np.cos(self.heading))
        info = self.info()
        far_off = abs(info["lane_offset_m"]) > 3 * self.half_width
        return self.picture(), 1.0 - info["wheels_off"], far_off, self.y > 200, info

    def middle(self, y):
        """Metres east of the road's middle, ``y`` metres north."""
        frequency, phase, size = self.waves.T
        return float((size * np.sin(frequency * y + phase)).sum())

    def info(self):
        """Whatever is given under nacdrive's names is shown, recorded and reported."""
        offset = self.x - self.middle(self.y)
        off_road = abs(offset) > self.half_width
        return {
            "speed_mps": self.speed, "progress": self.y / 200, "x_m": self.x, "y_m": self.y,
            "heading_rad": np.pi / 2 - self.heading, "lane_offset_m": offset, "wheels_off": float(off_road),
        }  # fmt: skip

    def picture(self):
        """Grey road on green, the car in the middle of the lowest row."""
        rows, columns = np.mgrid[47:-1:-1, -32:32] * self.metres_a_pixel
        middle = np.array([self.middle(self.y + ahead) for ahead in rows[:, 0]]) - self.x
        road = abs(columns - middle[:, None]) < self.half_width
        return np.where(road[:, :, None], np.uint8(120), np.array((40, 140, 40), np.uint8))


def make_env():
    """What ``--env my_env:make_env`` calls."""
    return WindingRoad()
