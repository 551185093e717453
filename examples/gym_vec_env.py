"""Gymnasium's vector environments behind stable-baselines3's VecEnv, so that its algorithms learn in ``make_vec``.

python gym_vec_env.py 20000     # PPO of stable-baselines3 learns in four environments for so many decisions
"""

import sys

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

SAME_STEP = {"autoreset_mode": AutoresetMode.SAME_STEP}


class GymVecEnv(VecEnv):
    """``envs`` as a VecEnv; made with ``vector_kwargs=SAME_STEP``, for stable-baselines3 expects the first observation
    of the next episode in the step that ends one."""

    def __init__(self, envs):
        if envs.metadata.get("autoreset_mode") is not AutoresetMode.SAME_STEP:
            raise ValueError("the next episode must begin in the step that ends one: give vector_kwargs=SAME_STEP")
        self.envs = envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self):
        """Begin an episode in each; seeds are those of the last ``seed()``."""
        seeds = None if all(seed is None for seed in self._seeds) else list(self._seeds)
        observations, infos = self.envs.reset(seed=seeds)
        self.reset_infos = [info_of(infos, index) for index in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return np.array(observations)

    def step_async(self, actions):
        """Remember the actions; ``step_wait`` sends them."""
        self.actions = actions

    def step_wait(self):
        """One step in each. Of one that ends, ``info`` is that of its last step, with ``terminal_observation``."""
        observations, rewards, terminated, truncated, infos = self.envs.step(self.actions)
        dones = np.logical_or(terminated, truncated)
        every_info = [info_of(infos, index) for index in range(self.num_envs)]
        for index in np.flatnonzero(dones):
            info = every_info[index]
            self.reset_infos[index] = {key: value for key, value in info.items() if not key.startswith("final_")}
            cut = bool(truncated[index] and not terminated[index])
            last = {"terminal_observation": info["final_obs"], "TimeLimit.truncated": cut}
            every_info[index] = {**info["final_info"], **last}
        return np.array(observations), np.asarray(rewards, dtype=np.float32), dones, every_info

    def close(self):
        """Close the environments."""
        self.envs.close()

    def get_attr(self, attr_name, indices=None):
        """An attribute of each."""
        values = (
            [self.envs.render_mode] * self.num_envs if attr_name == "render_mode" else self.envs.get_attr(attr_name)
        )
        return [values[index] for index in self._get_indices(indices)]

    def set_attr(self, attr_name, value, indices=None):
        """Set an attribute of each, or of some."""
        values = list(self.envs.get_attr(attr_name))
        for index in self._get_indices(indices):
            values[index] = value
        self.envs.set_attr(attr_name, values)

    def env_method(self, method_name, *args, indices=None, **kwargs):
        """Call a method of each; the results of those that were not asked for are dropped."""
        results = self.envs.call(method_name, *args, **kwargs)
        return [results[index] for index in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class, indices=None):
        """None is wrapped in anything of stable-baselines3."""
        return [False] * len(list(self._get_indices(indices)))


def info_of(infos, index):
    """What the vector's ``infos`` say of one environment."""
    own = {key: value for key, value in infos.items() if not key.startswith("_")}
    own = {key: value for key, value in own.items() if f"_{key}" not in infos or infos[f"_{key}"][index]}
    return {key: info_of(value, index) if isinstance(value, dict) else value[index] for key, value in own.items()}


if __name__ == "__main__":
    import nacdrive.envs  # noqa: F401  (registers the environments with Gymnasium)

    envs = gymnasium.make_vec(
        "nacdrive/CarRacingFast-v0", num_envs=4, vector_kwargs=SAME_STEP, observation="grey", max_frames=80
    )
    learner = PPO("CnnPolicy", GymVecEnv(envs), n_steps=32, batch_size=64, n_epochs=1, seed=0, device="cpu", verbose=1)
    learner.learn(int(sys.argv[1]))
