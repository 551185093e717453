"""Checkpoints of the PPO training: everything that the next update depends on, as tensors and plain numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO

from nacdrive.common.errors import UserError
from nacdrive.common.tensor_file import read_tensor_file, write_tensor_file
from nacdrive.rl.recurrent_buffer import History
from nacdrive.rl.recurrent_ppo import RecurrentPPO
from nacdrive.rl.vec_env import ParallelVecEnv

KIND = "nacdrive ppo checkpoint"
VERSION = 1


def write_checkpoint(
    path: Path, model: PPO, laps: ParallelVecEnv, average: dict[str, torch.Tensor], seconds: float
) -> None:
    """Write the run's whole state between two updates, atomically: a full disk leaves the previous one in place."""
    numpy_state: Any = np.random.get_state(legacy=True)
    state = {
        "decisions": model.num_timesteps,
        "updates": model._n_updates,
        "seconds": seconds,
        "policy": model.policy.state_dict(),
        "optimiser": model.policy.optimizer.state_dict(),
        "average": average,
        "torch_rng": torch.get_rng_state(),
        "numpy_rng": (torch.from_numpy(numpy_state[1].astype(np.int64)), int(numpy_state[2])),
        "episode_starts": torch.from_numpy(np.asarray(model._last_episode_starts)),
        "episodes": [dict(episode) for episode in model.ep_info_buffer or ()],
        "laps": laps.state(),
    }
    if isinstance(model, RecurrentPPO):
        assert model._last_t is not None
        parts = {name: torch.from_numpy(value) for name, value in model.rollout_buffer.upcoming._asdict().items()}
        state["history"] = {**parts, "last_t": torch.from_numpy(model._last_t)}
    write_tensor_file(path, KIND, VERSION, state)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint; nothing in it is executed; ``UserError`` if it is missing, damaged or another kind of file."""
    if not path.is_file():
        raise UserError(f"{path} does not exist: there is no checkpoint to resume from; start without --resume.")
    return read_tensor_file(path, KIND, VERSION, advice="start anew with --overwrite")


def restore(model: PPO, laps: ParallelVecEnv, state: dict[str, Any]) -> None:
    """Continue exactly where ``state`` was written."""
    model.policy.load_state_dict(state["policy"])
    model.policy.optimizer.load_state_dict(state["optimiser"])
    model.num_timesteps = state["decisions"]
    model._n_updates = state["updates"]
    model._last_obs = laps.restore(state["laps"])
    model._last_episode_starts = state["episode_starts"].numpy()
    if isinstance(model, RecurrentPPO):
        kept = {name: value.numpy() for name, value in state["history"].items()}
        model._last_t = kept.pop("last_t")
        model.rollout_buffer.upcoming = History(**kept)
    key, position = state["numpy_rng"]
    np.random.set_state(("MT19937", key.numpy().astype(np.uint32), position, 0, 0.0))
    torch.set_rng_state(state["torch_rng"])
