"""A policy that steers continuously: the paper's Udacity network, whose preprocessing is part of the model."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch

from nacdrive.models import load_policy, save_policy
from nacdrive.models.driving import NEUTRAL, YUV, DrivingNetwork, area_weights
from nacdrive.viz.saliency import GradCam
from tests.helpers.udacity_policy import udacity_policy

MODELS = ["nac-exact", "nac-euler", "nac-steady", "lstm", "dense"]


def frames_of(count, seed=0):
    """Smooth pictures: what a camera gives, and noise does not."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (count, 10, 20, 3), dtype=np.uint8)
    return np.stack([cv2.resize(frame, (320, 160), interpolation=cv2.INTER_CUBIC) for frame in small])


def test_preprocessing_is_that_of_opencv():
    frames = frames_of(5)
    own = udacity_policy().network.preprocess(torch.from_numpy(frames))
    assert own.dtype == torch.uint8
    for frame, seen in zip(frames, own.numpy(), strict=True):
        cut = cv2.resize(frame[60:-25], (200, 66), interpolation=cv2.INTER_AREA)
        np.testing.assert_allclose(seen.astype(int), cv2.cvtColor(cut, cv2.COLOR_RGB2YUV), atol=1)


@pytest.mark.parametrize(
    "crop, resize, width", [((60, 135), (66, 200), 320), ((0, 61), (30, 50), 97), ((3, 47), (44, 32), 48)]
)
def test_resizing_block_by_block_equals_the_whole_matrices(crop, resize, width):
    """The camera's sizes; sizes without a common divisor; rows that stay."""
    rows = crop[1] - crop[0]
    shape = {"height": 160 if width == 320 else 64, "width": width}
    network = DrivingNetwork(
        replace(udacity_policy().config, **shape, crop=crop, resize=resize, channels=(4,), kernels=(3,), strides=(2,))
    )
    frames = torch.randint(0, 256, (3, *shape.values(), 3), generator=torch.manual_seed(0), dtype=torch.uint8)
    whole = area_weights(rows, resize[0]) @ (
        frames[:, slice(*crop)].float().permute(0, 3, 1, 2) @ area_weights(width, resize[1]).T
    )
    expected = whole.permute(0, 2, 3, 1) @ torch.tensor(YUV).T + torch.tensor(NEUTRAL)
    torch.testing.assert_close(network.preprocess(frames.float()), expected, atol=1e-3, rtol=0)
    other = network.preprocess(frames) != expected.round().clamp(0, 255).to(torch.uint8)
    assert other.float().mean() < 1e-4  # another order of sums may round a half the other way


@pytest.mark.parametrize("model", MODELS)
def test_driving_step_by_step_equals_the_network_on_the_prepared_sequence(model):
    policy, frames = udacity_policy(model), frames_of(7)
    t = np.arange(7) * 0.07
    for _ in range(2):  # a second drive must not remember the first
        policy.reset()
        driven = [policy.step(frame, t_s, 13.4) for frame, t_s in zip(frames, t, strict=True)]
    prepared = policy.network.preprocess(torch.from_numpy(frames))
    with torch.no_grad():
        whole = policy.network(prepared[None], torch.from_numpy(t)[None])[0, :, 0].numpy()
    np.testing.assert_allclose([action.steering for action in driven], np.clip(whole, -1, 1), atol=1e-4)
    assert {(a.throttle, a.brake, a.choice, a.logits) for a in driven} == {(0.0, 0.0, None, None)}


def test_steering_never_leaves_its_range():
    policy = udacity_policy()
    with torch.no_grad():
        policy.network.head[-1].bias.fill_(-7.0)
    assert policy.step(frames_of(1)[0], 0.0).steering == -1.0


def test_the_window_ends_where_it_says():
    policy, frames = udacity_policy(window=2), frames_of(4)
    t = torch.arange(4.0)[None] * 0.07
    with torch.no_grad():
        whole = policy.network(torch.from_numpy(frames)[None], t)[0, -1]
        alone = policy.network(torch.from_numpy(frames[2:])[None], t[:, 2:])[0, -1]
        less = policy.network(torch.from_numpy(frames[3:])[None], t[:, 3:])[0, -1]
    torch.testing.assert_close(whole, alone, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(whole, less)


def test_a_saved_policy_steers_as_before(tmp_path):
    policy, frames = udacity_policy("nac-euler"), frames_of(3)
    save_policy(policy, tmp_path / "m.pt")
    loaded = load_policy(tmp_path / "m.pt", expect_task="udacity")
    assert loaded.config == policy.config
    assert not any(name.startswith("preprocess") for name in policy.network.state_dict())
    for i, frame in enumerate(frames):
        assert loaded.step(frame, i * 0.07).steering == policy.step(frame, i * 0.07).steering


def test_neurons_and_circuit_are_there():
    policy = udacity_policy()
    for i, frame in enumerate(frames_of(4)):
        policy.step(frame, i * 0.07)
    states = policy.neurons()
    assert states["phi"].shape == (20, 3)
    assert policy.circuit()["groups"]["command"] > 0


def test_saliency_lies_in_the_rows_that_are_seen_and_speaks_for_the_side_that_is_steered_to():
    policy, frame = udacity_policy(), frames_of(1, seed=3)[0]
    policy.step(frame, 0.0)
    cam = GradCam(policy)
    map_ = cam()
    assert map_.shape == (160, 320)
    assert map_.max() == pytest.approx(1.0)
    assert map_[:60].max() == map_[135:].max() == 0.0
    steering = policy.network(torch.from_numpy(frame)[None, None], torch.zeros(1, 1)).item()
    np.testing.assert_array_equal(map_, cam(choice=0 if steering > 0 else 1))
    assert not np.array_equal(map_, cam(choice=1 if steering > 0 else 0))
