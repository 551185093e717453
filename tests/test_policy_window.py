"""A trained policy with a shorter window decides as the whole one would of those frames, and all keys are all keys."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from tests.helpers.small_policies import small_policy, smooth_frames
from tools.policy_window import taught_otherwise, with_all_keys

KIND = "nac-key-driving"
"""Nine frames, of which Top-K keeps three."""


def answers(policy, frames, times):
    policy.reset()
    return [policy.step(frame, float(t_s)).logits for frame, t_s in zip(frames, times, strict=True)]


def test_a_shorter_window_is_as_if_nothing_had_come_before():
    policy = small_policy(KIND)
    frames, times = smooth_frames(policy, 14)
    short, whole = with_all_keys(policy, 4), with_all_keys(policy)
    driven = answers(short, frames, times)
    for end in (4, 9, 14):
        alone = answers(whole, frames[end - 4 : end], times[end - 4 : end])
        np.testing.assert_allclose(driven[end - 1], alone[-1], atol=1e-4)
    assert np.abs(np.array(driven[9:]) - np.array(answers(whole, frames, times)[9:])).max() > 1e-3


def test_all_keys_leave_none_out_and_change_no_weight():
    policy = small_policy(KIND)
    frames, times = smooth_frames(policy, 9)
    whole = with_all_keys(policy)
    assert "topk" not in whole.config.options
    assert whole.meta["taught_with"] == {"window": 9, "topk": 3}
    weights = policy.network.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in whole.network.state_dict().items())
    kept = []
    for each in (policy, whole):
        answers(each, frames, times)
        kept.append((each.neurons()["weights"] > 0).sum(-1))
    assert (kept[0] == 3).all() and (kept[1] == 9).all()


@pytest.mark.parametrize("window", [0, 10])
def test_a_window_that_was_not_taught_is_refused(window):
    with pytest.raises(UserError, match=r"window of 9 frames: give --window from 1 to 9"):
        with_all_keys(small_policy(KIND), window)


@pytest.mark.parametrize("between_frames", [False, True])
def test_a_policy_that_remembers_nothing_is_refused(between_frames):
    with pytest.raises(UserError, match="remembers nothing: give a policy whose layer does"):
        with_all_keys(small_policy("dense-choices"), between_frames=between_frames)


def test_another_mode_has_the_same_weights_and_decides_otherwise():
    policy = with_all_keys(small_policy(KIND))
    frames, times = smooth_frames(policy, 9)
    exact = with_all_keys(policy, mode="exact")
    back = with_all_keys(exact, mode="steady")
    assert (exact.config.options["mode"], back.config.options["mode"]) == ("exact", "steady")
    assert "taught with 9 and the 3 best keys of a query in steady mode" in taught_otherwise(exact)
    as_it_was = np.array(answers(policy, frames, times))
    np.testing.assert_array_equal(answers(back, frames, times), as_it_was)
    assert np.abs(np.array(answers(exact, frames, times)) - as_it_was).max() > 1e-4


def test_only_a_layer_that_has_modes_is_read_in_another():
    with pytest.raises(UserError, match="has no nac-key, whose modes share their weights"):
        with_all_keys(small_policy("long-gru"), mode="euler")
