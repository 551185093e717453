"""A policy at the wheel, looked into from another thread."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from nacdrive.drivers.exported import ExportedPolicy
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.envs.registry import env_spec
from nacdrive.models import Policy
from tests.helpers.small_policies import small_policy, smooth_frames

ACTIONS = env_spec("carracing").actions


def check_between_two_drives(policy: Policy | ExportedPolicy) -> None:
    """There is no decision to explain; of an exported one tests/extras/export asks it, which has imported ONNX."""
    driver = PolicyDriver(policy)
    (frame,), _ = smooth_frames(policy, 1)
    env: Any = SimpleNamespace(actions=ACTIONS)
    for _ in range(2):
        driver.reset(env)
        # A simulator that comes back resets the policy while another thread still looks at the drive before.
        assert driver.why() is None and driver.look(lambda _: frame, frame) is None and not driver.neurons()
        driver.act(frame, {"t_s": 0.0})
        why = driver.why()
        assert why is not None and why["sentence"] and driver.look(lambda _: frame, frame) is frame


def test_between_two_drives_there_is_no_decision_to_explain() -> None:
    check_between_two_drives(small_policy("nac-steady-choices"))


def test_the_reason_is_that_of_the_weights_that_drive() -> None:
    policy = small_policy("nac-steady-choices")
    driver = PolicyDriver(policy)
    frames, times = smooth_frames(policy, 5)
    driver.reset(SimpleNamespace(actions=ACTIONS))  # type: ignore[arg-type]
    for frame, t_s in zip(frames, times, strict=True):
        driver.act(frame, {"t_s": float(t_s)})
    before = driver.why()
    torch.manual_seed(1)
    other = policy.network.state_dict() | {
        name: weight + 0.3 * torch.randn_like(weight) for name, weight in policy.network.named_parameters()
    }
    driver.replace_weights(other)
    after = driver.why()
    assert after == policy.meter().measure(policy.last_decision()).explain(ACTIONS) != before
