"""Tiny environments that need a memory: a cue is seen at the start and asked for at the end."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Recall(gymnasium.Env[Any, Any]):
    """Numbers: the cue, whether it is asked for now, and 1. Reward 1 for naming the cue when asked, else 0.

    Args:
        delay: Steps between the cue and the question.
        continuous: The answer is the sign of a number.
        uneven: Steps last between 0.05 and 0.15 s instead of 0.1 s.
        limit: Steps after which an episode is cut off.
    """

    metadata = {"render_modes": [], "render_fps": 10}

    def __init__(
        self, delay: int = 6, *, continuous: bool = False, uneven: bool = False, limit: int | None = None
    ) -> None:
        self.delay, self.continuous, self.uneven, self.limit = delay, continuous, uneven, limit
        self.observation_space: spaces.Space[Any] = spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32) if continuous else spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.step_number, self.t_s = 0, 0.0
        self.cue = int(self.np_random.integers(2))
        return self.seen(), {"t_s": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        asked = self.step_number == self.delay
        answer = int(np.asarray(action).reshape(-1)[0] > 0) if self.continuous else int(action)
        self.step_number += 1
        self.t_s += float(self.np_random.uniform(0.05, 0.15)) if self.uneven else 0.1
        cut = self.limit is not None and self.step_number >= self.limit
        return self.seen(), float(asked and answer == self.cue), asked, cut, {"t_s": self.t_s}

    def seen(self) -> Any:
        sign = 2 * self.cue - 1 if self.step_number == 0 else 0
        return np.array([sign, self.step_number == self.delay, 1.0], dtype=np.float32)


class PictureRecall(Recall):
    """The same as pictures: a white half tells the cue, a white bar asks for it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.observation_space = spaces.Box(0, 255, (16, 16, 3), np.uint8)

    def seen(self) -> Any:
        picture = np.zeros((16, 16, 3), dtype=np.uint8)
        if self.step_number == 0:
            picture[:, 8 * self.cue : 8 * self.cue + 8] = 255
        elif self.step_number == self.delay:
            picture[6:10] = 255
        return picture


def make_picture_recall() -> PictureRecall:
    """For ``--env tests.helpers.memory_tasks:make_picture_recall``."""
    return PictureRecall()


def make_steered_recall() -> PictureRecall:
    """For ``--env tests.helpers.memory_tasks:make_steered_recall``."""
    return PictureRecall(continuous=True)
