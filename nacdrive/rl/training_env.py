"""Episodes as PPO learns on them: decisions of several frames, a shaped reward, early ends, exact replay."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from nacdrive.drivers.ppo import split_pedal, steering_and_pedal
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.carracing.fast_renderer import FastCarRacing
from nacdrive.envs.carracing.lazy import FPS
from nacdrive.envs.registry import EnvSpec, env_spec
from nacdrive.envs.seeds import EXPERT_TRAINING
from nacdrive.models.agents.view import FrameStack, View
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
    """At the end of an episode: raw return, frames, and of CarRacing share of tiles, lap finished."""
    t_s: float = 0.0
    """Seconds since the episode began, at the observation that it led to."""


class ResumableEpisodes(ABC):
    """Episodes that go on exactly where a checkpoint was written, for they are driven again from their beginning."""

    episode: int
    actions: list[Any]
    continuous: bool

    @abstractmethod
    def reset(self) -> NDArray[np.uint8]:
        """Start the next episode; returns the stack uint8 [4, 48, 48]."""

    @abstractmethod
    def step(self, action: Any) -> tuple[NDArray[np.uint8], Decision]:
        """Carry out one decision; returns the stack and what it led to."""

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


class TrainingEnv(ResumableEpisodes):
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
        self.env.drawing = False
        self.env.reset(seed=seed_of(self.seed, self.index, self.episode))
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
        t_s = self.frames / FPS
        return self.stack.push(env.grey()), Decision(reward * REWARD_SCALE, terminated, truncated, episode, t_s)

    def _missed(self) -> int:
        """Tiles that have newly been left behind unvisited."""
        road: list[Any] = self.env.road or []
        ahead = road[self.furthest + 1 : self.furthest + 30]
        reached = max((i for i, tile in enumerate(ahead, 1) if tile.road_visited), default=0)
        self.furthest += reached
        return sum(not tile.road_visited for tile in ahead[:reached])


class DrivingTrainingEnv(ResumableEpisodes):
    """One environment of the training of any ``DrivingEnv``: its own reward times ``reward_scale``, its own ends.

    ``restore`` drives the episode in progress again, so that it is exact for an environment that its seed determines.
    """

    def __init__(self, seed: int, index: int, env: str, repeat: int, reward_scale: float = 1.0) -> None:
        spec = env_spec(env)
        self.env = make_driving_env(spec, repeat, index)
        self.continuous = not self.env.actions
        self.seed, self.index, self.reward_scale = seed, index, reward_scale
        self.episode = -1
        self.stack = FrameStack(View(rows=None))
        self.shaping = Shaping()
        self.actions: list[Any] = []

    def reset(self) -> NDArray[np.uint8]:
        """Start the next episode; its seed follows from (seed, index, episode) alone."""
        self.episode += 1
        frame, _ = self.env.reset(seed=seed_of(self.seed, self.index, self.episode))
        self.actions = []
        self.raw_return = 0.0
        self.stack.reset()
        return self.stack.push(frame)

    def step(self, action: Any) -> tuple[NDArray[np.uint8], Decision]:
        """Carry out one decision; returns the stack uint8 [4, 48, 48] and what it led to."""
        action = action.tolist() if isinstance(action, np.ndarray) else int(action)
        self.actions.append(action)
        taken = steering_and_pedal(np.asarray(action)) if self.continuous else self.env.action_of(action)
        frame, reward, terminated, truncated, info = self.env.step(taken)
        self.raw_return += float(reward)
        over = bool(terminated or truncated)
        episode = dict(r=self.raw_return, l=float(len(self.actions))) if over else None
        scaled = float(reward) * self.reward_scale
        decision = Decision(scaled, bool(terminated), bool(truncated), episode, float(info["t_s"]))
        return self.stack.push(frame), decision


def seed_of(seed: int, index: int, episode: int) -> int:
    """Seed of an episode: one of those that experts learn on."""
    rng = np.random.default_rng((seed, index, episode))
    return int(rng.integers(EXPERT_TRAINING.start, EXPERT_TRAINING.stop))


def make_driving_env(spec: EnvSpec, repeat: int, index: int = 0) -> DrivingEnv:
    """The environment of that number: where there are several tracks, they are taken in turn."""
    track = spec.tracks[index % len(spec.tracks)]
    frames = {"repeat": repeat} if spec.frames_per_second is not None else {}
    return spec.make({"track": track or None, **frames})


def action_space(env: DrivingEnv) -> spaces.Space[Any]:
    """What an agent of ``env`` chooses from: its actions, or (steering, pedal) in -1 .. 1, steering alone where that is
    all there is.
    """
    if env.actions:
        return spaces.Discrete(len(env.actions))
    numbers = env.action_space.shape or (1,)
    return spaces.Box(-1, 1, (min(2, numbers[0]),), dtype=np.float32)
