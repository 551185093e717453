from __future__ import annotations

from nacdrive.rl.config import PpoConfig

ABOUT = {"env": "CarRacing-v3", "actions": "discrete", "repeat": 4, "decisions": 1}


def tiny(**changes: object) -> PpoConfig:
    """A training of seconds."""
    small = {
        "timesteps": 384,
        "n_envs": 4,
        "n_steps": 32,
        "batch_size": 64,
        "eval_every": 10**9,
        "eval_episodes": 1,
        "checkpoint_every_s": 0.0,
        "seed": 3,
        "workers": 2,
    }
    return PpoConfig(**(small | changes))  # type: ignore[arg-type]
