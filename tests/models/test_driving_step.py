"""A live step by NumPy against its naive twin, the network itself."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from nacdrive.models import Policy, PolicyConfig, load_policy
from nacdrive.models.driving_step import MOST, DrivingStep

FIVE = tuple((steering, 0.1, 0.0) for steering in (-1.0, -0.5, 0.0, 0.5, 1.0))
CONFIG = PolicyConfig(task="carracing", model="nac-steady", actions=FIVE, window=3)
FORMS: dict[str, dict[str, Any]] = {
    "as published": {},
    "projected": {"projection": 24, "strides": (3, 2, 2)},
    "without instruments": {"masked_rows": (84, 96)},
    "cropped and resized": {"crop": (20, 90), "resize": (40, 48), "yuv": True},
    "masked and resized": {"resize": (48, 48), "masked_rows": (40, 48), "projection": 8},
    "one convolution": {"channels": (4,), "kernels": (7,), "strides": (4,)},
    "steering and pedal": {"actions": (), "pedal": True},
    "another layer": {"model": "gru"},
    "exponential": {"activation": "elu"},
}


def frames(config: PolicyConfig, count: int = 4) -> NDArray[np.uint8]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (count, config.height, config.width, 3), dtype=np.uint8)


def step_of(policy: Policy) -> DrivingStep:
    step = DrivingStep.of(policy.network, None)
    assert step is not None
    return step


@torch.inference_mode()
def check_equal(policy: Policy, step: DrivingStep) -> None:
    """Features and outputs of ``step`` are those of the network."""
    for frame in frames(policy.config):
        features = policy.network.features(torch.from_numpy(frame).unsqueeze(0))
        torch.testing.assert_close(step.features(frame), features, rtol=1e-5, atol=1e-5)
        y = torch.randn(1, policy.config.d_model)
        np.testing.assert_allclose(step.outputs(y), policy.network.head(y)[0].numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_gives_what_the_network_gives(form: dict[str, Any]) -> None:
    torch.manual_seed(1)
    policy = Policy.new(replace(CONFIG, **form))
    check_equal(policy, step_of(policy))


@pytest.mark.parametrize("name", ["nac_steady", "nac_exact", "nac_euler", "nac_steady_continuous"])
def test_shipped_policies_decide_by_it_as_by_torch(name: str) -> None:
    fast, slow = load_policy(f"carracing/{name}"), load_policy(f"carracing/{name}")
    slow.network.vision[0].register_forward_hook(lambda *_: None)
    for k, frame in enumerate(frames(fast.config, 8)):
        fast.step(frame, 0.08 * k)
        slow.step(frame, 0.08 * k)
        assert (fast._by_numpy is None, slow._by_numpy is None) == (False, True)
        np.testing.assert_allclose(fast._scores, slow._scores, atol=2e-5)


def test_it_follows_the_weights() -> None:
    policy = Policy.new(CONFIG)
    frame = frames(CONFIG)[0]
    policy.step(frame, 0.0)
    before = policy._by_numpy
    policy.step(frame, 0.08)
    assert policy._by_numpy is before
    with torch.no_grad():
        policy.network.vision[0].weight.mul_(2.0)
    policy.step(frame, 0.16)
    assert policy._by_numpy is not before and policy._by_numpy is not None
    check_equal(policy, policy._by_numpy)
    policy.replace_weights(Policy.new(CONFIG).network.state_dict())
    assert policy._by_numpy is not None
    check_equal(policy, policy._by_numpy)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_a_copy_makes_its_own(how: Any) -> None:
    policy = Policy.new(CONFIG)
    policy.step(frames(CONFIG)[0], 0.0)
    other = how(policy)
    assert other._by_numpy is None
    with torch.no_grad():
        other.network.vision[0].weight.mul_(2.0)
    other.step(frames(CONFIG)[1], 0.08)
    assert other._by_numpy is not None and other._by_numpy is not policy._by_numpy
    check_equal(other, other._by_numpy)


def test_torch_takes_what_numpy_is_not_made_for() -> None:
    elu, mixed = (Policy.new(replace(CONFIG, activation="elu")) for _ in range(2))
    elu.network.head[1] = nn.ELU(0.5)
    mixed.network.vision[1] = nn.ReLU()
    large = Policy.new(replace(CONFIG, channels=(32, 64, 64), strides=(1, 2, 2)))
    double, training, odd = (Policy.new(CONFIG) for _ in range(3))
    double.network.double()
    training.network.train()
    odd.network.vision[0] = nn.Conv2d(3, 10, 5, 2, padding=1)
    none = Policy.new(replace(CONFIG, channels=(), kernels=(), strides=(), resize=(12, 12)))
    for policy in (elu, mixed, large, double, training, odd, none):
        assert DrivingStep.of(policy.network, None) is None
    for options in ({"dilation": 2}, {"bias": False}, {"groups": 10}):
        odd = Policy.new(CONFIG)
        odd.network.vision[2] = nn.Conv2d(10, 20, 5, 2, **options)
        assert DrivingStep.of(odd.network, None) is None
    odd = Policy.new(CONFIG)
    odd.network.head[2] = nn.Linear(CONFIG.dense, 5, bias=False)
    assert DrivingStep.of(odd.network, None) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert DrivingStep.of(Policy.new(CONFIG).network, None) is None
    assert MOST < 32 * 75 * 92 * 92


def test_who_looks_on_or_changes_the_mode_later_is_not_passed_over() -> None:
    policy, calls = Policy.new(CONFIG), []
    for k, frame in enumerate(frames(CONFIG, 2)):
        policy.step(frame, 0.08 * k)
    assert policy._by_numpy is not None
    hook = policy.last_conv.register_forward_hook(lambda *_: calls.append(1))
    policy.step(frames(CONFIG)[2], 0.16)
    hook.remove()
    policy.step(frames(CONFIG)[3], 0.24)
    assert calls == [1] and policy._by_numpy is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        policy.step(frames(CONFIG)[3], 0.32)
    assert policy._by_numpy is None
    policy.network.dropout.train()
    policy.step(frames(CONFIG)[3], 0.4)
    assert policy._by_numpy is None, "dropout while it drives is somebody's wish"


def test_what_torch_does_not_count_as_a_change_counts_from_the_next_episode_on() -> None:
    policy = Policy.new(CONFIG)
    frame = frames(CONFIG)[0]
    policy.step(frame, 0.0)
    policy.network.vision[0].weight.data.mul_(1.5)
    policy.reset()
    policy.step(frame, 0.0)
    twin = Policy(policy.network)
    twin.step(frame, 0.0)
    np.testing.assert_array_equal(policy._scores, twin._scores)


def test_the_frame_is_left_as_it_is() -> None:
    policy = Policy.new(replace(CONFIG, masked_rows=(84, 96)))
    frame = frames(CONFIG)[0]
    before = frame.copy()
    step_of(policy).features(frame)
    np.testing.assert_array_equal(frame, before)
