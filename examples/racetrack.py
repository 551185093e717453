"""highway-env's racetrack: what its authors' lanes know makes the expert. pip install highway-env

nacdrive record --env racetrack:make_env --driver racetrack:LaneFollower --out track
"""

import cv2
import gymnasium
import highway_env  # noqa: F401 - registers its environments
import numpy as np

from nacdrive.common.action import Action

AHEAD_M, CLEAR_M, DURATION_S, PER_S = 7.0, 20.0, 40, 5
"""How far ahead the car is steered to, and from where on a slower car is passed; seconds, decisions in each."""


class Picture(gymnasium.Wrapper):
    """Shows the road from above, with the car at the bottom and heading up, and says in ``info`` where it is."""

    observation_space = gymnasium.spaces.Box(0, 255, (96, 96, 3), np.uint8)
    metadata = {"render_modes": ["rgb_array"], "render_fps": PER_S}

    def reset(self, **options):
        """The car begins on the first straight, others anywhere."""
        _, info = self.env.reset(**options)
        return self.picture(), info | self.place()

    def step(self, action):
        """Ends with a collision, off the road, or after ``duration`` seconds."""
        _, reward, terminated, truncated, info = self.env.step(action)
        return self.picture(), reward, terminated, truncated, info | self.place()

    def place(self):
        """Under nacdrive's names, y upwards; and the point to steer to: metres ahead + 1j * to the right."""
        car, net = self.unwrapped.vehicle, self.unwrapped.road.network
        along, right = car.lane.local_coordinates(car.position)
        lane = min((car.lane_index, *net.side_lanes(car.lane_index)), key=self.busy)
        route = [lane, net.next_lane(lane, position=car.position)]
        to_point = net.position_heading_along_route(route, along + AHEAD_M, 0.0, lane)[0] - car.position
        x, y = car.position
        return {
            "speed_mps": car.speed, "x_m": x, "y_m": -y, "heading_rad": -car.heading, "lane_offset_m": right,
            "wheels_off": float(not car.on_road), "progress": self.unwrapped.time / DURATION_S,
            "target_m": complex(*to_point) * np.exp(-1j * car.heading),
        }  # fmt: skip

    def busy(self, lane):
        """Whether another car is near on ``lane``."""
        road, car = self.unwrapped.road, self.unwrapped.vehicle
        on = [other for other in road.vehicles if road.network.get_lane(lane).on_lane(other.position)]
        return any(np.linalg.norm(other.position - car.position) < CLEAR_M for other in on if other is not car)

    def picture(self):
        """The rendered road, turned so that the car looks up."""
        turn = cv2.getRotationMatrix2D((75, 75), np.degrees(self.unwrapped.vehicle.heading) + 90, 1.0)
        turn[:, 2] += (48 - 75, 72 - 75)
        return cv2.warpAffine(self.env.render(), turn, (96, 96), borderValue=(100, 100, 100))


def make_env(name="racetrack-v1"):
    """What ``--env racetrack:make_env`` calls; the car's speed is always 10 m/s."""
    config = {"screen_width": 150, "screen_height": 150, "scaling": 2.5, "duration": DURATION_S}
    config |= {"policy_frequency": PER_S, "simulation_frequency": PER_S, "observation": {"type": "Kinematics"}}
    return Picture(gymnasium.make(name, render_mode="rgb_array", config=config))


class LaneFollower:
    """Pure pursuit of the lane's middle; where a car is near, that of the lane beside."""

    name = "lane-follower"

    def reset(self, env):
        """It remembers nothing."""

    def act(self, frame, info):
        """Steers on the circle through the point; 45 degrees are the most that the car can."""
        target = info["target_m"]
        return Action(np.arctan(2 * 5.0 * target.imag / abs(target) ** 2) / (np.pi / 4), 0.0, 0.0)
