"""The shipped models answer today what they answered when they were made: numbers in ``golden.json`` beside this file.

``python -m tests.models.test_golden`` writes that file anew, for when a shipped model is replaced.
"""

import hashlib
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
FRAMES = 20
"""Of a policy: its window, of 12 at most, is full and slides over eight frames more, and Top-K, where it has one,
leaves four of them out. The eighth and the ninth score are at least 0.002 apart on these pictures: the last digit of
another processor chooses no other."""
GAPS = (1.0, 0.5, 1.0, 2.0, 0.75, 1.0, 1.5)
"""From one frame to the next, in turn, as multiples of a policy's own."""
STEPS = 6
"""Of a series; fewer than the keys that Top-K keeps."""


def driven(name):
    """Of a policy: what its head gives, frame by frame, on pictures made by arithmetic that come at uneven times; what
    convolutions and attention give of the last; and which weights these are.
    """
    policy = load_policy(shipped("agents") / f"{name}.pt")
    height, width = policy.config.height, policy.config.width
    y, x, c = np.mgrid[:height, :width, :3]
    answers, t_s = [], 0.0
    for i in range(FRAMES):
        frame = (128 + 80 * np.sin((x + 9 * i) / 17 + c) + 40 * np.cos(y / (11 + i))).astype(np.uint8)
        policy.step(frame, t_s)
        answers.append(policy.last_decision().scores)
        t_s += GAPS[i % len(GAPS)] * policy.config.gap_s
    with torch.inference_mode():
        features = policy.network.features(torch.from_numpy(frame)[None])[0].numpy()
    attention = policy.neurons().get("weights", np.zeros(0))
    return {"weights": digest(policy.network), "answers": answers, "features": features, "attention": attention}


def digest(network):
    """The same for the same weights only."""
    made = hashlib.sha256()
    for key, value in sorted(network.state_dict().items()):
        made.update(key.encode() + value.numpy().tobytes())
    return made.hexdigest()[:16]


def answered(name):
    """What a network for series gives on a series made by arithmetic."""
    network, _ = load_series(shipped("agents") / f"{name}.pt", task=name.partition("/")[0])
    steps = torch.arange(STEPS, dtype=torch.float32)
    channels = torch.arange(network.config.channels_in, dtype=torch.float32)
    x = network.mean + network.std * torch.sin(steps[:, None] / 3 + channels)
    with torch.inference_mode():
        y = network(x[None], steps[None] * network.config.gap_s, torch.zeros(1, STEPS, dtype=torch.bool))
    return {"weights": digest(network), "answers": y[0].numpy()}


def compute(name):
    """All that is compared of a model."""
    return driven(name) if name in POLICIES else answered(name)


@pytest.mark.parametrize("name", POLICIES + SERIES)
def test_a_shipped_model_gives_its_golden_outputs(name):
    golden, now = json.loads(GOLDEN.read_text())[name], compute(name)
    assert now.pop("weights") == golden.pop("weights"), "another file: python -m tests.models.test_golden"
    assert now.keys() == golden.keys()
    for part, values in now.items():
        # Sums of thousands lose digits; a layer norm behind the features makes them small again.
        largest = np.abs(golden[part]).max() if part == "features" else 1.0
        np.testing.assert_allclose(values, golden[part], atol=1e-4 * largest, rtol=1e-4, err_msg=part)
    # Numbers that are all alike would show nothing.
    assert np.std(golden["answers"]) > 1e-3


if __name__ == "__main__":
    made = {name: compute(name) for name in POLICIES + SERIES}
    text = json.dumps(made, default=lambda array: np.round(np.asarray(array, np.float64), 7).tolist())
    GOLDEN.write_text(text.replace('}, "', '},\n"') + "\n")
