"""Many training laps in a few worker processes, frames in shared memory, behind stable-baselines3's VecEnv."""

from __future__ import annotations

import multiprocessing as mp
import signal
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import cv2
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from nacdrive.common.errors import UserError
from nacdrive.common.runs import start_method
from nacdrive.drivers.ppo_network import SIDE, STACK
from nacdrive.rl.config import Shaping
from nacdrive.rl.training_env import TrainingEnv

OBSERVATIONS = spaces.Box(0, 255, (STACK, SIDE, SIDE), dtype=np.uint8)
DISCRETE = spaces.Discrete(5)
CONTINUOUS = spaces.Box(-1, 1, (2,), dtype=np.float32)
STEP, RESET, STATE, RESTORE, SHAPE, CLOSE = range(6)


def work(
    pipe: Connection, memory: Any, shape: tuple[int, ...], seed: int, envs: range, options: dict[str, Any]
) -> None:
    """Body of a worker: obey the pipe; observations go through shared memory."""
    # Ctrl-C reaches every process of the terminal: the main one decides, and its end closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
    frames = np.frombuffer(memory, dtype=np.uint8).reshape(shape)
    laps = [TrainingEnv(seed, index, **options) for index in envs]
    while True:
        try:
            order, value = pipe.recv()
        except EOFError:
            return
        answer: Any = None
        if order == STEP:
            answer = []
            for lap, index, action in zip(laps, envs, value, strict=True):
                stack, decision = lap.step(action)
                last = None
                if decision.episode is not None:
                    last = stack.copy()
                    stack = lap.reset()
                frames[index] = stack
                answer.append((decision, last))
        elif order == RESET:
            for lap, index in zip(laps, envs, strict=True):
                frames[index] = lap.reset()
        elif order == STATE:
            answer = [lap.state() for lap in laps]
        elif order == RESTORE:
            for lap, index, state in zip(laps, envs, value, strict=True):
                frames[index] = lap.restore(state)
        elif order == SHAPE:
            for lap in laps:
                lap.shaping = value
        else:
            return
        pipe.send(answer)


class SharedMemoryVecEnv(VecEnv):
    """``n_envs`` training laps in ``n_workers`` processes; the same seed gives the same laps for any split."""

    def __init__(self, n_envs: int, n_workers: int, seed: int, *, repeat: int = 4, continuous: bool = False) -> None:
        super().__init__(n_envs, OBSERVATIONS, CONTINUOUS if continuous else DISCRETE)
        context: Any = mp.get_context(start_method())
        shape = (n_envs, *OBSERVATIONS.shape)
        memory = context.RawArray("B", int(np.prod(shape)))
        self.frames = np.frombuffer(memory, dtype=np.uint8).reshape(shape)
        bounds = np.linspace(0, n_envs, n_workers + 1).astype(int).tolist()
        self.shares = [range(a, b) for a, b in pairwise(bounds)]
        self.pipes: list[Connection] = []
        self.processes = []
        options = {"repeat": repeat, "continuous": continuous}
        for share in self.shares:
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, memory, shape, seed, share, options), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def _ask(self, order: int, values: Sequence[Any]) -> list[Any]:
        try:
            for pipe, value in zip(self.pipes, values, strict=True):
                pipe.send((order, value))
            return [pipe.recv() for pipe in self.pipes]
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise UserError(
                "a worker process of the training died (out of memory?): run the same command with --resume, "
                "with fewer --n-envs if it happens again."
            ) from error

    def reset(self) -> np.ndarray:
        """Start every lap; returns uint8 [n_envs, 4, 48, 48]."""
        self._ask(RESET, [None] * len(self.pipes))
        return self.frames.copy()

    def step_async(self, actions: np.ndarray) -> None:
        """Remember the actions; ``step_wait`` sends them."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Drive one decision in every lap; a lap that ends starts its next episode at once."""
        answers = self._ask(STEP, [self._actions[share.start : share.stop] for share in self.shares])
        rewards = np.zeros(self.num_envs, dtype=np.float32)
        dones = np.zeros(self.num_envs, dtype=bool)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for index, (decision, last) in enumerate(item for answer in answers for item in answer):
            rewards[index] = decision.reward
            if decision.episode is not None:
                dones[index] = True
                infos[index] = {
                    "episode": decision.episode,
                    "terminal_observation": last,
                    "TimeLimit.truncated": decision.truncated and not decision.terminated,
                }
        return self.frames.copy(), rewards, dones, infos

    def shape(self, shaping: Shaping) -> None:
        """Use this shaping of the reward from now on."""
        self._ask(SHAPE, [shaping] * len(self.pipes))

    def state(self) -> list[dict[str, Any]]:
        """State of every lap, for a checkpoint."""
        return [state for answer in self._ask(STATE, [None] * len(self.pipes)) for state in answer]

    def restore(self, states: list[dict[str, Any]]) -> np.ndarray:
        """Bring every lap to its state of a checkpoint; returns the observations."""
        self._ask(RESTORE, [states[share.start : share.stop] for share in self.shares])
        return self.frames.copy()

    def close(self) -> None:
        """End the worker processes."""
        for pipe in self.pipes:
            try:
                pipe.send((CLOSE, None))
            except (BrokenPipeError, OSError):
                continue
        for process in self.processes:
            process.join(timeout=5)
            if process.is_alive():
                process.terminate()

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """No lap is wrapped in anything."""
        return [False] * self.num_envs

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Only what stable-baselines3 asks for: the render mode, of which there is none."""
        if attr_name == "render_mode":
            return [None] * self.num_envs
        raise AttributeError(attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Not offered: the laps live in other processes."""
        raise AttributeError(attr_name)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Not offered: the laps live in other processes."""
        raise AttributeError(method_name)
