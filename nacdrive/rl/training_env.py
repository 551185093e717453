"""Episodes as PPO learns on them: decisions of several frames, a shaped reward, early ends, exact replay."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
from nacdrive.rl.config import MAX_FRAMES, Shaping

REWARD_SCALE = 0.01
NEARLY_ALL = 0.95
"""Share of visited tiles from which a stall no longer counts as a failure."""


Outcome = tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]
"""What a decision led to, as of Gymnasium's ``step``: ``info`` has ``t_s`` of the observation, at the end of an
``episode`` its raw return ``r`` and frames ``l``, and of CarRacing the share of ``tiles`` and if it ``finished``."""


class ResumableEpisodes(ABC):
    """Episodes that go on exactly where a checkpoint was written, for they are driven again from their beginning.

    What is driven in them follows from ``seed``, ``index``, the number of the episode and the actions alone.
    """

    def __init__(self, seed: int, index: int, continuous: bool, view: View | None = None) -> None:
        self.seed, self.index, self.continuous = seed, index, continuous
        self.stack = FrameStack(view)
        self.episode = -1
        self.shaping = Shaping()
        self.actions: list[Any] = []
        self.raw_return = 0.0

    def reset(self) -> NDArray[np.uint8]:
        """Start the next episode; returns the stack uint8 [4, 48, 48]."""
        self.episode += 1
        rng = np.random.default_rng((self.seed, self.index, self.episode))
        # One of those that experts learn on.
        frame = self.begin(int(rng.integers(EXPERT_TRAINING.start, EXPERT_TRAINING.stop)))
        self.actions, self.raw_return = [], 0.0
        self.stack.reset()
        return self.stack.push(frame)

    def step(self, action: Any) -> Outcome:
        """Carry out one decision; its observation is the stack uint8 [4, 48, 48]."""
        self.actions.append(action.tolist() if isinstance(action, np.ndarray) else int(action))
        frame, reward, terminated, truncated, info = self.decide(self.actions[-1])
        return self.stack.push(frame), reward, terminated, truncated, info

    @abstractmethod
    def begin(self, seed: int) -> NDArray[np.uint8]:
        """Start the episode of ``seed``; returns its first frame."""

    @abstractmethod
    def decide(self, action: Any) -> Outcome:
        """Carry out ``action``; its observation is the next frame."""

    def state(self) -> dict[str, Any]:
        """What ``restore`` needs, in plain numbers."""
        return {"episode": self.episode, "actions": list(self.actions)}

    def restore(self, state: dict[str, Any]) -> NDArray[np.uint8]:
        """Drive the episode in progress again up to where ``state`` was taken; returns the stack."""
        self.episode = state["episode"] - 1
        stack = self.reset()
        for action in state["actions"]:
            stack, *_ = self.step(np.asarray(action) if self.continuous else action)
        return stack


class TrainingEnv(ResumableEpisodes):
    """One environment of the training: five actions (or steering and pedal), each held for ``repeat`` frames."""

    def __init__(self, seed: int, index: int, repeat: int = 4, continuous: bool = False) -> None:
        super().__init__(seed, index, continuous)
        self.env, self.repeat = FastCarRacing(continuous=continuous), repeat

    def begin(self, seed: int) -> NDArray[np.uint8]:
        self.env.drawing = False
        self.env.reset(seed=seed)
        self.frames = self.idle = self.furthest = 0
        return self.env.grey()

    def decide(self, action: Any) -> Outcome:
        env, shaping = self.env, self.shaping
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
        about: dict[str, Any] = {"t_s": self.frames / FPS}
        if terminated or truncated:
            about["episode"] = dict(r=self.raw_return, l=self.frames, tiles=share, finished=float(finished))
        return env.grey(), reward * REWARD_SCALE, terminated, truncated, about

    def _missed(self) -> int:
        """Tiles that have newly been left behind unvisited."""
        road: list[Any] = self.env.road or []
        ahead = road[self.furthest + 1 : self.furthest + 30]
        reached = max((i for i, tile in enumerate(ahead, 1) if tile.road_visited), default=0)
        self.furthest += reached
        return sum(not tile.road_visited for tile in ahead[:reached])


class DrivingTrainingEnv(ResumableEpisodes):
    """One environment of the training of any ``DrivingEnv``: its own reward times ``reward_scale``, its own ends.

    ``restore`` is exact for an environment that its seed determines.
    """

    def __init__(self, seed: int, index: int, env: str, repeat: int, reward_scale: float = 1.0) -> None:
        self.env, self.reward_scale = make_driving_env(env_spec(env), repeat, index), reward_scale
        super().__init__(seed, index, not self.env.actions, View(rows=None))

    def begin(self, seed: int) -> NDArray[np.uint8]:
        frame, _ = self.env.reset(seed=seed)
        return frame

    def decide(self, action: Any) -> Outcome:
        taken = steering_and_pedal(np.asarray(action)) if self.continuous else self.env.action_of(action)
        frame, reward, terminated, truncated, info = self.env.step(taken)
        self.raw_return += float(reward)
        about: dict[str, Any] = {"t_s": float(info["t_s"])}
        if terminated or truncated:
            about["episode"] = dict(r=self.raw_return, l=float(len(self.actions)))
        return frame, float(reward) * self.reward_scale, bool(terminated), bool(truncated), about


def make_driving_env(spec: EnvSpec, repeat: int, index: int = 0) -> DrivingEnv:
    """The environment of that number: where there are several tracks, they are taken in turn."""
    track = spec.tracks[index % len(spec.tracks)]
    frames = {"repeat": repeat} if spec.frames_per_second is not None else {}
    return spec.make({"track": track or None, **frames})


def action_space(env: DrivingEnv) -> spaces.Space[Any]:
    """What an agent of ``env`` chooses from: its actions, or steering and, where there is one, pedal, in -1 .. 1."""
    if env.actions:
        return spaces.Discrete(len(env.actions))
    numbers = env.action_space.shape or (1,)
    return spaces.Box(-1, 1, (min(2, numbers[0]),), dtype=np.float32)


_laps: list[TrainingEnv | DrivingTrainingEnv] = []


def make_envs(seed: int, indices: range, options: dict[str, Any]) -> None:
    """In a worker: make its share of the environments; those of ``options["env"]``, or CarRacing as it is shaped."""
    kind: Any = DrivingTrainingEnv if "env" in options else TrainingEnv
    _laps[:] = [kind(seed, index, **options) for index in indices]


def answer(order: tuple[str, Any]) -> Any:
    """In a worker: carry out one order on its share of the environments.

    ``step``, ``reset`` and ``restore`` give the observations uint8 [envs, 4, 48, 48], ``step`` with a pair (reward,
    info) per environment; ``state`` gives the states.
    """
    verb, value = order
    if verb == "step":
        stacks, led_to = [], []
        for lap, action in zip(_laps, value, strict=True):
            stack, reward, terminated, truncated, info = lap.step(action)
            if "episode" in info:
                info |= {"terminal_observation": stack.copy(), "TimeLimit.truncated": truncated and not terminated}
                stack = lap.reset()
            stacks.append(stack)
            led_to.append((reward, info))
        return np.stack(stacks), led_to
    if verb == "reset":
        return np.stack([lap.reset() for lap in _laps])
    if verb == "restore":
        return np.stack([lap.restore(state) for lap, state in zip(_laps, value, strict=True)])
    if verb == "shape":
        for lap in _laps:
            lap.shaping = value
        return None
    return [lap.state() for lap in _laps]
