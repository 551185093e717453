"""Freeway, a game of Atari's: a chicken crosses ten lanes, a point each time. pip install ale-py

nacdrive record --env freeway:make_env --driver freeway:LookAhead --max-frames 500 --out chicken
"""

import ale_py  # noqa: F401 - registers its environments
import gymnasium
import numpy as np

NOTHING, UP, DOWN = range(3)
SPEEDS = np.array([0.8, 1, 1.33, 2, 4, -4, -2, -1.33, -1, -0.8])
"""Of the lanes from the lowest up, in columns a decision."""
AHEAD, WIDTH = 6, 160


class Memory(gymnasium.Wrapper):
    """Says in ``info`` what the console's memory knows: the chicken's row, the cars' columns, the score."""

    def reset(self, **options):
        """A seed decides which actions stick: the console repeats the last one a quarter of the time."""
        observation, info = self.env.reset(**options)
        return observation, info | self.state()

    def step(self, action):
        """Four frames of the console."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, info | self.state()

    def state(self):
        """Rows count from below, lanes are 16 high; ``progress`` is how far it is across."""
        memory = self.unwrapped.ale.getRAM()
        row = int(memory[14])
        return {"row": row, "columns": memory[108:118].astype(float), "progress": (row - 6) / 172}


def make_env():
    """What ``--env freeway:make_env`` calls; decisions come 15 times a second."""
    env = Memory(gymnasium.make("ALE/Freeway-v5"))
    env.metadata = {**env.metadata, "render_fps": 15}
    return env


class LookAhead:
    """Goes up where no car will be, else waits, else goes back."""

    name = "look-ahead"

    def reset(self, env):
        """``env`` says what each of its actions is."""
        self.env = env

    def act(self, frame, info):
        """It decides by rows and columns alone."""
        row, columns = info["row"], info["columns"]
        if is_free(row, columns, 4, AHEAD):
            choice = UP
        elif is_free(row, columns, 0, 2):
            choice = NOTHING
        else:
            choice = DOWN if is_free(row, columns, -4, 2) else UP
        return self.env.action_of(choice)


class AlwaysUp(LookAhead):
    """Looks at nothing: what a policy must beat that has learnt anything."""

    name = "always-up"

    def act(self, frame, info):
        """The same whatever comes."""
        return self.env.action_of(UP)


def is_free(row, columns, rows_a_decision, decisions):
    """Whether the chicken meets no car where it goes so many rows in each of so many decisions."""
    ahead = np.arange(1, decisions + 1)[:, None]
    below = np.clip(row + rows_a_decision * ahead, 6, 178) - 16 * np.arange(10)
    column = (columns + SPEEDS * ahead) % WIDTH
    return not np.any((below >= 13) & (below <= 31) & (column >= 37) & (column <= 53))
