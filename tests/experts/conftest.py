from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nacdrive.experts.network import PolicyNet
from nacdrive.experts.policy_file import save_policy
from nacdrive.experts.ppo_config import PpoConfig

ABOUT = {"env": "CarRacing-v3", "actions": "discrete", "repeat": 4, "decisions": 1}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy file with random weights."""
    torch.manual_seed(0)
    save_policy(tmp_path / "policy.pt", PolicyNet(), ABOUT)
    return tmp_path / "policy.pt"


def tiny(**changes: object) -> PpoConfig:
    """A training of seconds."""
    small = {
        "timesteps": 768,
        "n_envs": 4,
        "n_steps": 64,
        "batch_size": 64,
        "eval_every": 10**9,
        "eval_episodes": 1,
        "checkpoint_every_s": 0.0,
        "seed": 3,
    }
    return PpoConfig(**(small | changes))  # type: ignore[arg-type]
