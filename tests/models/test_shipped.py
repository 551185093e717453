"""The policies in agents/ load, know how they were made, and decide as their teacher does."""

import pytest
import torch

from nacdrive.common.paths import shipped
from nacdrive.models import load_policy
from nacdrive.tasks import load_task

AGENTS = shipped("agents") / "carracing"


@pytest.fixture(scope="module")
def episodes():
    return load_task("carracing").load([shipped("recordings") / "carracing-sample"])


@pytest.mark.parametrize(
    ("model", "layer"), [("nac-steady", "nac-key"), ("nac-exact", "nac-key"), ("nac-euler", "nac-key")]
)
def test_a_shipped_policy_decides_as_the_expert_in_recordings(model, layer, episodes):
    name = model.replace("-", "_")
    policy = load_policy(AGENTS / f"{name}.pt", expect_task="carracing")
    assert policy.config.model == layer
    assert policy.meta["config"]["model"] == model
    assert all((AGENTS / f"{name}{ending}").exists() for ending in (".md", ".metrics.jsonl"))
    agreed = total = 0
    for episode in episodes:
        with torch.inference_mode():
            scores = policy.network(episode.fields["frames"][None], episode.fields["t"][None])[0]
        agreed += int((scores.argmax(dim=1) == episode.fields["target"]).sum())
        total += len(episode)
    assert agreed / total > 0.8
