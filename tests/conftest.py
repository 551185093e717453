"""Fixtures that several rooms share."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

# A job that a shell starts in the background ignores SIGINT, and so would every command that the tests interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real, untrained policy: what is tested with it is the loop around it."""
    import torch

    from nacdrive.envs.carracing.env import BRAKE, STEERING, THROTTLE
    from nacdrive.models import Policy, PolicyConfig, save_policy

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


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """The file of a PPO expert with random weights."""
    import torch

    from nacdrive.drivers.ppo_network import PolicyNet, save_policy
    from tests.helpers.expert_cases import ABOUT

    torch.set_num_threads(1)
    torch.manual_seed(0)
    save_policy(tmp_path / "policy.pt", PolicyNet(), ABOUT)
    return tmp_path / "policy.pt"
