"""Many training laps in the workers of the process pool, behind stable-baselines3's VecEnv."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from nacdrive.common.parallel import Actors
from nacdrive.models.agents.view import SIDE, STACK
from nacdrive.rl.config import Shaping
from nacdrive.rl.training_env import answer, make_envs

OBSERVATIONS = spaces.Box(0, 255, (STACK, SIDE, SIDE), dtype=np.uint8)
DISCRETE = spaces.Discrete(5)
CONTINUOUS = spaces.Box(-1, 1, (2,), dtype=np.float32)


class ParallelVecEnv(VecEnv):
    """``n_envs`` training laps in ``n_workers`` workers; the same seed gives the same laps for any split.

    Agents choose from ``actions``. ``options`` are those of ``TrainingEnv``; with ``env``, another environment as
    ``--env`` names it, those of ``DrivingTrainingEnv``.
    """

    def __init__(
        self,
        n_envs: int,
        n_workers: int,
        seed: int,
        actions: spaces.Space[Any] = DISCRETE,
        *,
        ray: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(n_envs, OBSERVATIONS, actions)
        self.shares = [range(a, b) for a, b in pairwise(np.linspace(0, n_envs, n_workers + 1).astype(int).tolist())]
        self.actors = Actors(answer, make_envs, [(seed, share, options) for share in self.shares], ray=ray)

    def _ask(self, verb: str, values: Sequence[Any] | None = None) -> list[Any]:
        return self.actors.ask([(verb, value) for value in values or [None] * len(self.shares)])

    def _by_share(self, values: Any) -> list[Any]:
        return [values[share.start : share.stop] for share in self.shares]

    def reset(self) -> np.ndarray:
        return np.concatenate(self._ask("reset"))

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        answers = self._ask("step", self._by_share(self._actions))
        rewards, infos = zip(*(pair for _, led_to in answers for pair in led_to), strict=True)
        dones = np.array(["episode" in info for info in infos])
        return np.concatenate([stacks for stacks, _ in answers]), np.array(rewards, np.float32), dones, list(infos)

    def shape(self, shaping: Shaping) -> None:
        self._ask("shape", [shaping] * len(self.shares))

    def state(self) -> list[dict[str, Any]]:
        """State of every lap, for a checkpoint."""
        return [state for answer in self._ask("state") for state in answer]

    def restore(self, states: list[dict[str, Any]]) -> np.ndarray:
        """Bring every lap to its state of a checkpoint; returns the observations."""
        return np.concatenate(self._ask("restore", self._by_share(states)))

    def close(self) -> None:
        self.actors.close()

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs

    # The laps live in other processes; of their attributes stable-baselines3 asks for the render mode alone.

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        if attr_name == "render_mode":
            return [None] * self.num_envs
        raise AttributeError(attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(attr_name)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise AttributeError(method_name)
