"""The policies in agents/udacity steer as the geometric driver does, on roads under skies that no training saw."""

import numpy as np
import pytest

from nacdrive.common.camera_mount import SCENE
from nacdrive.common.paths import find_model
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.models import load_policy
from nacdrive.rollout.record import EpisodeDriver
from nacdrive.rollout.record_config import RecordConfig


@pytest.fixture(scope="module")
def drives():
    """One on each fixed track."""
    expert = EpisodeDriver(RecordConfig(env="udacity-track", max_frames=160, sides=False))
    return [expert.record(POLICY_TEST.start + 500 + k) for k in range(2)]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("nac_steady", "nac-key"),
        ("pilotnet", "dense"),
        pytest.param("nac_exact", "nac-key", marks=pytest.mark.nightly),
        pytest.param("nac_euler", "nac-key", marks=pytest.mark.nightly),
    ],
)
def test_a_shipped_policy_steers_as_the_geometric_driver(name, model, drives):
    path = find_model(name, "udacity")
    policy = load_policy(path, expect_task="udacity")
    assert policy.config.model == model and policy.config.upright
    assert all(path.with_suffix(ending).exists() for ending in (".md", ".metrics.jsonl"))
    for drive in drives:
        assert drive.meta["camera_mount"] == SCENE
        policy.reset()
        steered = [policy.step(f, float(t)).steering for f, t in zip(drive.decoded(), drive.t_s, strict=True)]
        error = np.abs(np.array(steered) - drive.label).mean()
        assert error < 0.06
        assert error < 0.6 * np.abs(drive.label).mean()
