from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nacdrive.policies import Policy, PolicyConfig, save_policy
from nacdrive.sims.carracing import BRAKE, STEERING, THROTTLE


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real, untrained policy: what is tested here is the loop around it."""
    torch.manual_seed(0)
    config = PolicyConfig(
        task="carracing",
        model="mha",
        actions=tuple(zip(STEERING, THROTTLE, BRAKE, strict=True)),
        window=2,
        channels=(4, 4, 4),
        d_model=16,
        num_heads=4,
        dense=8,
    )
    path = tmp_path_factory.mktemp("model") / "little.pt"
    save_policy(Policy.new(config, "little"), path, {})
    return path
