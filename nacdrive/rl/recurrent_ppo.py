"""PPO with a memory: stable-baselines3's ``PPO``, whose rollouts carry a state and whose minibatches are sequences."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import NatureCNN
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv

from nacdrive.models.agents.memory import MemoryState
from nacdrive.rl.recurrent_buffer import RecurrentRolloutBuffer
from nacdrive.rl.recurrent_policy import RecurrentActorCriticPolicy, memory_spec


class RecurrentCnnPolicy(RecurrentActorCriticPolicy):
    """The policy whose features are those of stable-baselines3's ``NatureCNN``, if no others are asked for."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"features_extractor_class": NatureCNN, **options})


class RecurrentPPO(PPO):
    """``PPO`` for ``RecurrentActorCriticPolicy``; the loss, the schedules and the files are those of ``PPO``.

    An environment tells the seconds since its episode began as ``info["t_s"]``; where it does not, decisions are the
    memory's ``gap_s`` apart.

        model = RecurrentPPO("CnnPolicy", env, policy_kwargs={"memory": {"layer": "nac-steady", "window": 16}})

    ``policy`` may be ``CnnPolicy`` or ``MlpPolicy``, which name the features, or a class; ``sequence_length`` is the
    most decisions of a training sequence; all other arguments are those of ``PPO``.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "CnnPolicy": RecurrentCnnPolicy,
        "MlpPolicy": RecurrentActorCriticPolicy,
    }
    rollout_buffer: RecurrentRolloutBuffer
    policy: RecurrentActorCriticPolicy

    def __init__(self, policy: Any, *args: Any, sequence_length: int = 32, **options: Any) -> None:
        self.sequence_length = sequence_length
        self._last_t: NDArray[np.float64] | None = None
        super().__init__(policy, *args, **options)

    def _setup_model(self) -> None:
        self.rollout_buffer_class = RecurrentRolloutBuffer
        self.rollout_buffer_kwargs = {
            "window": memory_spec(self.policy_kwargs.get("memory", "lstm")).window,
            "sequence_length": self.sequence_length,
        }
        super()._setup_model()

    def _setup_learn(self, *args: Any, **options: Any) -> Any:
        before = self._last_obs
        result = super()._setup_learn(*args, **options)
        if self._last_obs is not before or self._last_t is None:
            assert self.env is not None
            self.rollout_buffer.forget()
            self._last_t = np.array([float(info.get("t_s", 0.0)) for info in self.env.reset_infos])
        return result

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """As ``PPO.collect_rollouts``, with a state that is forgotten where an episode begins.

        The state is made anew of the history by the present weights: what acts is what will be learnt from.
        """
        assert isinstance(rollout_buffer, RecurrentRolloutBuffer)
        assert self._last_obs is not None and self._last_t is not None
        assert not self.use_sde, "state-dependent exploration is not for a policy with a memory"
        self.policy.set_training_mode(False)
        rollout_buffer.reset()
        callback.on_rollout_start()
        with torch.no_grad():
            state = self.policy.state_after(*rollout_buffer.history)
        for _ in range(n_rollout_steps):
            starts = torch.as_tensor(np.asarray(self._last_episode_starts), device=self.device)
            with torch.no_grad():
                seen = obs_as_tensor(self._last_obs, self.device)  # type: ignore[arg-type]
                seconds = torch.as_tensor(self._last_t, device=self.device)
                chosen, values, log_probs, state = self.policy(seen, state, starts, t=seconds)
            actions = chosen.cpu().numpy()
            carried_out = actions
            if isinstance(self.action_space, spaces.Box):
                carried_out = np.clip(actions, self.action_space.low, self.action_space.high)
            new_obs, rewards, dones, infos = env.step(carried_out)
            self.num_timesteps += env.num_envs
            callback.update_locals(locals())
            if not callback.on_step():
                return False
            self._update_info_buffer(infos, dones)
            gap_s = self.policy.memory_spec.gap_s
            t = np.array([float(info.get("t_s", was + gap_s)) for info, was in zip(infos, self._last_t, strict=True)])
            for index in np.flatnonzero(dones):
                last = infos[index].get("terminal_observation")
                if last is not None and infos[index].get("TimeLimit.truncated", False):
                    rewards[index] += self.gamma * self._value_of_last(last, t[index], state, int(index))
            rollout_buffer.add(
                self._last_obs, actions, rewards, self._last_episode_starts, values, log_probs, t=self._last_t
            )
            begun = np.array([float(info.get("t_s", 0.0)) for info in env.reset_infos])
            self._last_obs, self._last_episode_starts = new_obs, dones  # type: ignore[assignment]
            self._last_t = np.where(dones, begun, t)
        with torch.no_grad():
            values = self.policy.predict_values(
                obs_as_tensor(new_obs, self.device),  # type: ignore[arg-type]
                state,
                torch.as_tensor(dones, device=self.device),
                torch.as_tensor(self._last_t, device=self.device),
            )
        rollout_buffer.compute_returns_and_advantage(last_values=values, dones=dones)
        rollout_buffer.remember(dones)
        callback.update_locals(locals())
        callback.on_rollout_end()
        return True

    def _value_of_last(self, observation: NDArray[Any], t: float, state: MemoryState, index: int) -> float:
        """Value of what the episode of one environment ended with, had it gone on."""
        own = MemoryState(*(part[index : index + 1] for part in state))
        seen, _ = self.policy.obs_to_tensor(observation)
        assert isinstance(seen, torch.Tensor)
        with torch.no_grad():
            goes_on = torch.zeros(1, dtype=torch.bool, device=self.device)
            seconds = torch.tensor([t], dtype=torch.float64, device=self.device)
            return float(self.policy.predict_values(seen, own, goes_on, seconds))

    def predict(self, *arguments: Any, **options: Any) -> tuple[NDArray[Any], Any]:
        """As of the policy, whose ``t`` it takes too."""
        return self.policy.predict(*arguments, **options)
