"""Gymnasium's vector environments behind stable-baselines3's VecEnv, so that its algorithms learn in ``make_vec``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from nacdrive.common.errors import UserError


class GymVecEnv(VecEnv):
    """``envs`` as a VecEnv: ``PPO("CnnPolicy", GymVecEnv(gymnasium.make_vec(...)))``.

    Args:
        envs: Made with ``vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP}``, for stable-baselines3 expects the
            first observation of the next episode in the step that ends one.

    Raises:
        UserError: if they begin the next episode in another step.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        mode = envs.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.SAME_STEP:
            raise UserError(
                f"stable-baselines3 expects the next episode in the step that ends one, and these environments have "
                f"{mode}: make them with vector_kwargs={{'autoreset_mode': gymnasium.vector.AutoresetMode.SAME_STEP}}."
            )
        self.envs = envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> NDArray[Any]:
        """Begin an episode in each; returns [num_envs, ...]. Seeds are those of the last ``seed()``."""
        seeds = None if all(seed is None for seed in self._seeds) else list(self._seeds)
        # Gymnasium's own take a seed for each, though their base class says one.
        observations, infos = self.envs.reset(seed=seeds)  # type: ignore[arg-type]
        self.reset_infos = [_of(infos, index) for index in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return np.array(observations)

    def step_async(self, actions: NDArray[Any]) -> None:
        """Remember the actions; ``step_wait`` sends them."""
        self._actions = actions

    def step_wait(self) -> tuple[NDArray[Any], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """One step in each. Of one that ends, ``info`` is that of its last step, with ``terminal_observation``."""
        observations, rewards, terminated, truncated, infos = self.envs.step(self._actions)
        dones = np.logical_or(terminated, truncated)
        told = []
        for index, done in enumerate(dones):
            info = _of(infos, index)
            if done:
                self.reset_infos[index] = {key: value for key, value in info.items() if not key.startswith("final_")}
                info = {**info["final_info"], "terminal_observation": info["final_obs"]}
                info["TimeLimit.truncated"] = bool(truncated[index] and not terminated[index])
            told.append(info)
        return np.array(observations), np.asarray(rewards, dtype=np.float32), dones, told

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of each."""
        if attr_name == "render_mode":
            return [self.envs.render_mode] * len(list(self._get_indices(indices)))
        found = self.envs.get_attr(attr_name)  # type: ignore[attr-defined]
        return [found[index] for index in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of each, or of some."""
        now = self.get_attr(attr_name)
        for index in self._get_indices(indices):
            now[index] = value
        self.envs.set_attr(attr_name, now)  # type: ignore[attr-defined]

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of each; what those that were not asked for said is dropped."""
        found = self.envs.call(method_name, *args, **kwargs)  # type: ignore[attr-defined]
        return [found[index] for index in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """None is wrapped in anything of stable-baselines3."""
        return [False] * len(list(self._get_indices(indices)))


def _of(infos: Mapping[str, Any], index: int) -> dict[str, Any]:
    """What the vector's ``infos`` say of one environment."""
    found = {}
    for key, values in infos.items():
        if key.startswith("_"):
            continue
        said = infos.get(f"_{key}")
        if said is None or said[index]:
            found[key] = _of(values, index) if isinstance(values, Mapping) else values[index]
    return found
