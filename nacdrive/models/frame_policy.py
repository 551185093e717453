"""What every policy can be asked, whatever its network runs on: one decision on one frame."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.models.config import PolicyConfig


class FramePolicy:
    """The ways to ask a policy for a decision: ``step`` with the time, ``act`` of the Driver protocol, ``predict``."""

    name: str
    config: PolicyConfig
    _next_t_s = 0.0

    @property
    def task(self) -> str:
        return self.config.task

    @property
    def repeat(self) -> int:
        """Frames of the simulator per decision that it was trained at."""
        return self.config.repeat

    def reset(self, env: Any = None) -> None:
        """Forget the episode before; ``env`` as of the Driver protocol, and not used."""
        self._next_t_s = 0.0

    def step(self, frame: NDArray[np.uint8], t_s: float, speed_mps: float | None = None) -> Action:
        """Decide on one frame, taken ``t_s`` seconds after the episode began."""
        raise NotImplementedError

    def act(self, frame: NDArray[np.uint8], info: Mapping[str, Any] | None = None) -> Action:
        """Decide on one frame [height, width, 3], RGB; without the time ``info["t_s"]`` the frames come at the pace of
        the training. ``env.step`` of every environment of nacdrive takes the result as it is.
        """
        about = info or {}
        t_s = self.seconds(about.get("frame_t_s", about.get("t_s", self._next_t_s)))
        self._next_t_s = t_s + self.config.gap_s
        return self.step(frame, t_s, about.get("speed_mps"))

    def seconds(self, t_s: Any) -> float:
        """A time as a float; a ``UserError`` for one that is no number, which would stay in the memory."""
        try:
            if math.isfinite(t_s):
                return float(t_s)
        except (TypeError, ValueError, OverflowError):
            pass
        raise UserError(f"{self.name}: the time is {t_s}: give the seconds since the episode began.")

    __call__ = select_action = act

    def predict(
        self, observation: NDArray[np.uint8], state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """As of stable-baselines3's models, for one environment: the action and ``state``, which stays as it is.

        The memory is the policy's own; ``reset()`` or a true ``episode_start`` begins an episode. The action is the
        number of the choice, or float32 [steering, throttle - brake] (continuous CarRacing takes three numbers: use
        ``act`` there). Of a batch of one frame it is a batch of one.

        Raises:
            ValueError: for a batch of several frames.
        """
        if episode_start is not None and np.any(episode_start):
            self.reset()
        frames = np.asarray(observation)
        batch = frames.ndim == 4
        if batch and len(frames) != 1:
            raise ValueError(f"{self.name} remembers one episode at a time, and these are frames of {len(frames)}")
        action = self.act(frames[0] if batch else frames)
        chosen: Any = np.array([action.steering, action.throttle - action.brake], np.float32)
        if action.choice is not None:
            chosen = np.int64(action.choice)
        return (chosen[None] if batch else chosen), state
