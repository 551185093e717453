"""What an expert is: it drives, and it says what it would do while someone else drives."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action


class ExpertEpisode(Protocol):
    """An expert riding along in one episode; it keeps its own memory of the frames."""

    def observe(self, frame: NDArray[np.uint8]) -> Action:
        """What the expert would do now; call it once per decision, in order.

        ``frame`` is uint8 [96, 96, 3]; decisions lie ``Expert.repeat`` simulator frames apart.
        """


class Expert(Protocol):
    """Someone to learn from."""

    name: str
    repeat: int
    """Simulator frames for which each of its actions is held."""

    def reset(self) -> None:
        """Forget the episode; call it before the first ``act`` of the next one."""

    def act(self, frame: NDArray[np.uint8]) -> Action:
        """Decide on a frame, uint8 [96, 96, 3]; deterministic."""

    def new_episode(self, env: gymnasium.Env[Any, Any] | None = None) -> ExpertEpisode:
        """An independent memory for one more episode, so that one expert can label many at once."""
