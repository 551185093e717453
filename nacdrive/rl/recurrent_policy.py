"""An actor and a critic behind one memory, shaped as stable-baselines3's policies and as sb3-contrib's recurrent one.

In the place of sb3-contrib's ``lstm_states`` stands a ``MemoryState``, and beside the observations go their times.

A memory is a window of observations, not a stored state: all layers have a window, so training recomputes exactly what
acted. Rollouts batch environments of different ages by ``layer.last``; drives stream by ``step``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import MlpExtractor
from torch import Tensor

from nacdrive.models.agents.memory import Memory, MemorySpec, MemoryState
from nacdrive.rl.recurrent_buffer import Sequences


class RecurrentActorCriticPolicy(ActorCriticPolicy):
    """``ActorCriticPolicy`` whose actor and critic read the features and, beside them, what a memory makes of the past.

    Beside the arguments of ``ActorCriticPolicy`` it takes ``memory``: the name of a sequence layer, or the fields of
    ``MemorySpec``, such as ``{"layer": "nac-steady", "window": 16, "gap_s": 0.08}``; ``UserError`` if it is unknown or
    cannot stream. Observations must be one Box, and actor and critic share their features.
    """

    memory: Memory

    def __init__(self, *args: Any, memory: str | Mapping[str, Any] = "lstm", **options: Any) -> None:
        self.memory_spec = memory_spec(memory)
        space = args[0] if args else options["observation_space"]
        if isinstance(space, spaces.Dict) or not options.get("share_features_extractor", True):
            raise TypeError("a policy with a memory takes observations that are one Box, and shares their features")
        super().__init__(*args, **options)

    def _build_mlp_extractor(self) -> None:
        """The memory, and what stands behind it; called in the middle of the parent's ``__init__``."""
        self.memory = Memory(self.memory_spec, self.features_dim)
        self.mlp_extractor = MlpExtractor(
            self.memory.out_features, net_arch=self.net_arch, activation_fn=self.activation_fn, device=self.device
        )

    def init_state(self, n_envs: int = 1) -> MemoryState:
        return self.memory.init_state(n_envs)

    def state_after(self, observations: NDArray[Any], t: NDArray[np.float64], seen: NDArray[np.int64]) -> MemoryState:
        """What the present weights remember of a history; see ``History`` for the shapes."""
        past, n_envs = t.shape
        if not past:
            return self.init_state(n_envs)
        flat = torch.as_tensor(observations.reshape(past * n_envs, *observations.shape[2:]), device=self.device)
        features = self._features(flat).view(past, n_envs, -1).transpose(0, 1)
        return self.memory.filled_state(
            features, torch.as_tensor(t.T, device=self.device), torch.as_tensor(seen, device=self.device)
        )

    def forward(  # type: ignore[override]
        self,
        obs: Tensor,
        state: MemoryState,
        episode_starts: Tensor,
        deterministic: bool = False,
        t: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, MemoryState]:
        """One decision in every environment: actions, values [n_envs, 1], log-probabilities [n_envs], next state.

        Where ``episode_starts`` [n_envs] is true the state is forgotten. ``t`` [n_envs] counts seconds of the episodes;
        None: the layer's usual gap after the decision before. ``deterministic`` takes the likeliest action.
        """
        joint, state = self.memory.advance(self._features(obs), t, episode_starts, state)
        latent_pi, latent_vf = self.mlp_extractor(joint)
        distribution = self._get_action_dist_from_latent(latent_pi)
        actions = distribution.get_actions(deterministic=deterministic)
        log_prob = distribution.log_prob(actions)
        shape = self.action_space.shape
        assert shape is not None
        return actions.reshape((-1, *shape)), self.value_net(latent_vf), log_prob, state

    def evaluate_actions(  # type: ignore[override]
        self, obs: Sequences, actions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values, log-probabilities and entropies of ``actions`` [N] at the N decisions of ``obs`` that are trained."""
        present = ~obs.padding
        seen = self._features(obs.observations[present])
        # Not index_put: its gradient is slower, and what stands in padding has no meaning.
        rows = (present.flatten().cumsum(0) - 1).clamp(min=0).view_as(present)
        latent_pi, latent_vf = self.mlp_extractor(self.memory(seen[rows], obs.t, obs.padding)[obs.trained])
        distribution = self._get_action_dist_from_latent(latent_pi)
        return self.value_net(latent_vf), distribution.log_prob(actions), distribution.entropy()

    def get_distribution(  # type: ignore[override]
        self, obs: Tensor, state: MemoryState, episode_starts: Tensor, t: Tensor | None = None
    ) -> tuple[Distribution, MemoryState]:
        joint, state = self.memory.advance(self._features(obs), t, episode_starts, state)
        return self._get_action_dist_from_latent(self.mlp_extractor.forward_actor(joint)), state

    def predict_values(  # type: ignore[override]
        self, obs: Tensor, state: MemoryState, episode_starts: Tensor, t: Tensor | None = None
    ) -> Tensor:
        joint, _ = self.memory.advance(self._features(obs), t, episode_starts, state)
        values: Tensor = self.value_net(self.mlp_extractor.forward_critic(joint))
        return values

    def predict(
        self,
        observation: NDArray[Any] | dict[str, NDArray[Any]],
        state: Any = None,
        episode_start: NDArray[np.bool_] | None = None,
        deterministic: bool = False,
        t: NDArray[np.float64] | None = None,
    ) -> tuple[NDArray[Any], Any]:
        """Actions and the next state, as ``predict`` of sb3-contrib's recurrent policy; ``t`` as in ``forward``."""
        self.set_training_mode(False)
        tensor, vectorised = self.obs_to_tensor(observation)
        assert isinstance(tensor, Tensor)
        state = self.init_state(len(tensor)) if state is None else state
        starts = np.zeros(len(tensor), dtype=bool) if episode_start is None else np.atleast_1d(episode_start)
        times = None if t is None else torch.as_tensor(np.atleast_1d(t), dtype=torch.float64, device=self.device)
        with torch.no_grad():
            distribution, state = self.get_distribution(
                tensor, state, torch.as_tensor(starts, device=self.device), times
            )
            actions = distribution.get_actions(deterministic=deterministic).cpu().numpy()
        if isinstance(self.action_space, spaces.Box):
            actions = np.clip(actions, self.action_space.low, self.action_space.high)
        shape = self.action_space.shape
        assert shape is not None
        actions = actions.reshape((-1, *shape))
        return (actions if vectorised else actions.squeeze(axis=0)), state

    def _features(self, obs: Tensor) -> Tensor:
        features = self.extract_features(obs)
        assert isinstance(features, Tensor)
        return features


def memory_spec(memory: str | Mapping[str, Any]) -> MemorySpec:
    """The memory by its name, or by the fields of ``MemorySpec``."""
    return MemorySpec(memory) if isinstance(memory, str) else MemorySpec(**memory)
