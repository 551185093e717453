"""The lap as PPO learns on it: decisions of several frames, a shaped reward, early ends, exact replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.drivers.ppo import split_pedal
from nacdrive.drivers.ppo_network import FrameStack
from nacdrive.envs.carracing.fast_renderer import FastCarRacing
from nacdrive.envs.seeds import EXPERT_TRAINING
from nacdrive.rl.config import Shaping

MAX_FRAMES = 1000
REWARD_SCALE = 0.01
NEARLY_ALL = 0.95
"""Share of visited tiles from which a stall no longer counts as a failure."""


@dataclass(frozen=True)
class Decision:
    """What one decision led to."""

    reward: float
    terminated: bool
    truncated: bool
    episode: dict[str, float] | None
    """At the end of an episode: raw return, frames, share of tiles, lap finished."""


class TrainingEnv:
    """One environment of the training: five actions (or steering and pedal), each held for ``repeat`` frames.

    Its state is its seed, the number of its episode and the actions since the start of it, for the simulator is
    deterministic: ``state()`` and ``restore()`` continue exactly where a checkpoint was written.
    """

    def __init__(self, seed: int, index: int, repeat: int = 4, continuous: bool = False) -> None:
        self.env = FastCarRacing(continuous=continuous)
        self.seed, self.index, self.repeat, self.continuous = seed, index, repeat, continuous
        self.episode = -1
        self.stack = FrameStack()
        self.shaping = Shaping()
        self.actions: list[Any] = []

    def reset(self) -> NDArray[np.uint8]:
        """Start the next episode; the tracks follow from (seed, index, episode) alone."""
        self.episode += 1
        rng = np.random.default_rng((self.seed, self.index, self.episode))
        self.env.drawing = False
        self.env.reset(seed=int(rng.integers(EXPERT_TRAINING.start, EXPERT_TRAINING.stop)))
        self.actions = []
        self.frames = 0
        self.idle = 0
        self.raw_return = 0.0
        self.furthest = 0
        self.stack.reset()
        return self.stack.push(self.env.grey())

    def step(self, action: Any) -> tuple[NDArray[np.uint8], Decision]:
        """Hold ``action`` for ``repeat`` frames; returns the stack uint8 [4, 48, 48] and what it led to."""
        env, shaping = self.env, self.shaping
        action = action.tolist() if isinstance(action, np.ndarray) else int(action)
        self.actions.append(action)
        given: Any = split_pedal(action) if self.continuous else action
        before = env.tile_visited_count
        reward, finished, left_field = 0.0, False, False
        for _ in range(self.repeat):
            _, gained, ended, _, info = env.step(given)
            self.frames += 1
            self.raw_return += gained
            left_field = ended and not info["lap_finished"]
            finished = ended and not left_field
            reward += 0.0 if left_field else gained
            reward -= shaping.grass * env.grass_share()
            if shaping.speed:
                reward -= shaping.speed * max(0.0, env.speed() - shaping.speed_limit)
            if ended or self.frames >= MAX_FRAMES:
                break
        reward -= shaping.missed_tile * self._missed()
        self.idle = 0 if env.tile_visited_count > before else self.idle + 1
        stalled = self.idle >= shaping.patience
        share = env.tile_visited_count / len(env.track)
        truncated = finished or self.frames >= MAX_FRAMES or (stalled and share > NEARLY_ALL)
        terminated = left_field or (stalled and not truncated)
        over = terminated or truncated
        episode = dict(r=self.raw_return, l=self.frames, tiles=share, finished=float(finished)) if over else None
        return self.stack.push(env.grey()), Decision(reward * REWARD_SCALE, terminated, truncated, episode)

    def _missed(self) -> int:
        """Tiles that have newly been left behind unvisited."""
        road: list[Any] = self.env.road or []
        ahead = road[self.furthest + 1 : self.furthest + 30]
        reached = max((i for i, tile in enumerate(ahead, 1) if tile.road_visited), default=0)
        self.furthest += reached
        return sum(not tile.road_visited for tile in ahead[:reached])

    def state(self) -> dict[str, Any]:
        """What ``restore`` needs, in plain numbers."""
        return {"episode": self.episode, "actions": list(self.actions)}

    def restore(self, state: dict[str, Any]) -> NDArray[np.uint8]:
        """Drive the episode in progress again up to where ``state`` was taken; returns the stack."""
        self.episode = state["episode"] - 1
        stack = self.reset()
        for action in state["actions"]:
            stack, _ = self.step(np.asarray(action) if self.continuous else action)
        return stack
