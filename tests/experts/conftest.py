from __future__ import annotations

from pathlib import Path

import pytest
import torch
from expert_cases import ABOUT

from nacdrive.experts.network import PolicyNet
from nacdrive.experts.policy_file import save_policy


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy file with random weights."""
    torch.manual_seed(0)
    save_policy(tmp_path / "policy.pt", PolicyNet(), ABOUT)
    return tmp_path / "policy.pt"
