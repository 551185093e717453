"""A policy that gives more gas steers as it did, and its pedal is what was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from tests.helpers.small_policies import small_policy, smooth_frames
from tools.policy_pedal import with_pedal


def test_the_pedal_is_a_factor_and_an_offset_of_what_it_was_and_the_steering_as_before():
    policy = small_policy("nac-steady-steers")
    frames, times = smooth_frames(policy, 8)
    changed = with_pedal(policy, 1.1, 0.07)
    given = []
    for each in (policy, changed):
        each.reset()
        outputs = [
            (each.step(frame, float(t_s)), each.last_decision().scores)[1]
            for frame, t_s in zip(frames, times, strict=True)
        ]
        given.append(np.array(outputs))
    np.testing.assert_array_equal(given[1][:, 0], given[0][:, 0])
    np.testing.assert_allclose(given[1][:, 1], 1.1 * given[0][:, 1] + 0.07, atol=1e-5)
    assert np.ptp(given[0][:, 1]) > 1e-3
    assert changed.meta["pedal"] == {"factor": 1.1, "offset": 0.07}
    assert "pedal" not in policy.meta
    assert with_pedal(changed, 1.0, 0.1).meta["pedal"] == {
        "factor": 1.0,
        "offset": 0.1,
        "before": changed.meta["pedal"],
    }


def test_a_policy_without_a_pedal_is_refused():
    with pytest.raises(UserError, match="gives no pedal"):
        with_pedal(small_policy("nac-steady-choices"), 1.1, 0.07)
    with pytest.raises(UserError, match=r"factor nan and offset 0\.07: give two finite numbers"):
        with_pedal(small_policy("nac-steady-steers"), float("nan"), 0.07)
