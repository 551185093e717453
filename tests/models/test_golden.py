"""The shipped models answer today what they answered when they were made: numbers in ``golden.json`` beside this file.

``python -m tests.models.test_golden`` writes that file anew, for when a shipped model is replaced.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nacdrive.common.paths import shipped
from nacdrive.models import load_policy
from nacdrive.models.series import load_series

GOLDEN = Path(__file__).with_name("golden.json")
POLICIES = [f"{task}/{name}" for task in ("carracing", "udacity") for name in ("nac_steady", "nac_exact", "nac_euler")]
POLICIES += ["udacity/pilotnet", "carracing/nac_steady_continuous"]
SERIES = ["emnist/nac_exact", "emnist/nac_lag", "pronostia/nac_exact"]
STEPS = 6
"""Fewer than the keys that Top-K keeps: no selection can turn on the last digit of another processor."""


def driven(name):
    """What a policy's head gives, frame by frame, on pictures made by arithmetic."""
    policy = load_policy(shipped("agents") / f"{name}.pt")
    height, width = policy.config.height, policy.config.width
    y, x, c = np.mgrid[:height, :width, :3]
    answers = []
    for i in range(STEPS):
        frame = (128 + 80 * np.sin((x + 9 * i) / 17 + c) + 40 * np.cos(y / (11 + i))).astype(np.uint8)
        policy.step(frame, i * policy.config.gap_s)
        answers.append(policy.last_decision().scores.tolist())
    return answers


def answered(name):
    """What a network for series gives on a series made by arithmetic."""
    network, _ = load_series(shipped("agents") / f"{name}.pt", task=name.partition("/")[0])
    steps = torch.arange(STEPS, dtype=torch.float32)
    channels = torch.arange(network.config.channels_in, dtype=torch.float32)
    x = network.mean + network.std * torch.sin(steps[:, None] / 3 + channels)
    with torch.inference_mode():
        y = network(x[None], steps[None] * network.config.gap_s, torch.zeros(1, STEPS, dtype=torch.bool))
    return y[0].tolist()


def compute():
    """All answers by the model's name."""
    return {**{name: driven(name) for name in POLICIES}, **{name: answered(name) for name in SERIES}}


@pytest.mark.parametrize("name", POLICIES + SERIES)
def test_a_shipped_model_gives_its_golden_outputs(name):
    golden = np.array(json.loads(GOLDEN.read_text())[name])
    now = np.array(driven(name) if name in POLICIES else answered(name))
    np.testing.assert_allclose(now, golden, atol=2e-4, rtol=2e-4)
    # Numbers that are all alike would show nothing.
    assert golden.std() > 1e-3


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(compute()) + "\n")
