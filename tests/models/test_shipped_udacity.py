"""The policies in agents/udacity steer as the geometric driver does, on roads under skies that no training saw."""

import numpy as np
import pytest

from nacdrive.common.camera_mount import SCENE, STRAIGHT
from nacdrive.common.paths import find_model
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.envs.udacity_track.options import RoadOptions
from nacdrive.models import load_policy
from nacdrive.rollout.record import EpisodeDriver
from nacdrive.rollout.record_config import RecordConfig


@pytest.fixture(scope="module")
def drives():
    """One on each fixed track, for each way in which the cameras may hang."""
    found = {}
    for mount in (SCENE, STRAIGHT):
        road = RoadOptions(camera_mount=mount)
        expert = EpisodeDriver(RecordConfig(env="udacity-track", max_frames=300, sides=False, road=road))
        found[mount] = [expert.record(POLICY_TEST.start + 500 + k) for k in range(2)]
    return found


@pytest.mark.parametrize(
    ("name", "model", "mount"),
    [
        ("nac_steady", "nac-steady", SCENE),
        ("pilotnet", "dense", SCENE),
        ("nac_exact", "nac-exact", STRAIGHT),
        ("nac_euler", "nac-euler", STRAIGHT),
    ],
)
def test_a_shipped_policy_steers_as_the_geometric_driver(name, model, mount, drives):
    path = find_model(name, "udacity")
    policy = load_policy(path, expect_task="udacity")
    assert policy.config.model == model and policy.config.upright == (mount == SCENE)
    assert all(path.with_suffix(ending).exists() for ending in (".md", ".metrics.jsonl"))
    for drive in drives[mount]:
        assert drive.meta["camera_mount"] == mount
        policy.reset()
        steered = [policy.step(f, float(t)).steering for f, t in zip(drive.decoded(), drive.t_s, strict=True)]
        error = np.abs(np.array(steered) - drive.label).mean()
        assert error < 0.06
        assert error < 0.6 * np.abs(drive.label).mean()
