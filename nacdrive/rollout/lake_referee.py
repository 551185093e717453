"""A drive on a built-in track and its score, which the environment keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.envs.udacity_track.env import UdacityTrackEnv
from nacdrive.rollout.results import Row


class Referee:
    """``env`` must have been made with ``recover``."""

    def __init__(self, env: UdacityTrackEnv) -> None:
        self.env = env
        self.action_space = env.action_space

    @property
    def interventions(self) -> int:
        """So far."""
        return self.env.interventions

    def reset(self, *, seed: int | None = None) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start the drive of ``seed``."""
        return self.env.reset(seed=seed)

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.uint8], Any, bool, bool, dict[str, Any]]:
        """Carry out one decision."""
        return self.env.step(action)

    def row(self) -> Row:
        """The score of the drive."""
        return {**self.env.episode_meta(), **self.env.metrics()}
