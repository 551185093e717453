"""MiniGrid: walls with gaps between the corner where one begins and the goal. pip install minigrid

nacdrive record --env crossing:make_env --driver crossing:ShortestPath --out maze
"""

from collections import deque

import gymnasium
import minigrid  # noqa: F401 - registers its environments
from minigrid.core.constants import DIR_TO_VEC
from minigrid.wrappers import ImgObsWrapper, RGBImgPartialObsWrapper

ACTIONS = ("left", "right", "forward")


class Steps(gymnasium.Wrapper):
    """Of seven actions those that move, with the names that ``GymEnv`` asks for; ``info`` has the shortest way."""

    action_space = gymnasium.spaces.Discrete(len(ACTIONS))

    def get_action_meanings(self):
        """Names of the actions."""
        return ACTIONS

    def reset(self, **options):
        """Another maze for every seed."""
        observation, info = self.env.reset(**options)
        return observation, info | {"best": self.best()}

    def step(self, action):
        """A turn, or a step ahead; the reward at the goal is the larger the sooner one is there."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        info |= {"best": self.best(), "progress": float(terminated)}
        if terminated:
            info["ended"] = "at the goal"
        return observation, reward, terminated, truncated, info

    def best(self):
        """The first action of a shortest way, by breadth-first search over cells and directions."""
        maze = self.unwrapped
        start = (*map(int, maze.agent_pos), int(maze.agent_dir))
        queue, first = deque([start]), {start: 2}
        while queue:
            x, y, direction = place = queue.popleft()
            cell = maze.grid.get(x, y)
            if cell is not None and cell.type == "goal":
                return first[place]
            east, south = DIR_TO_VEC[direction]
            ahead = maze.grid.get(x + east, y + south)
            steps = [(x, y, (direction - 1) % 4), (x, y, (direction + 1) % 4)]
            if ahead is None or ahead.can_overlap():
                steps.append((x + east, y + south, direction))
            for action, after in enumerate(steps):
                if after not in first:
                    first[after] = action if place == start else first[place]
                    queue.append(after)
        return 2


def make_env():
    """What ``--env crossing:make_env`` calls: the seven by seven cells ahead, as a picture of 56 by 56."""
    maze = gymnasium.make("MiniGrid-SimpleCrossingS9N3-v0", max_steps=100)
    return Steps(ImgObsWrapper(RGBImgPartialObsWrapper(maze)))


class ShortestPath:
    """Takes the first step of a shortest way."""

    name = "shortest-path"

    def reset(self, env):
        """Where an action is a choice, ``env`` says what each of them is."""
        self.env = env

    def act(self, frame, info):
        """It decides by what the maze itself knows."""
        return self.env.action_of(info["best"])
