"""A policy for the Udacity simulator is trained from a log and practises on the built-in tracks."""

import json

import numpy as np
import pytest

from nacdrive.cli.train import run
from nacdrive.datasets.recording import Recording
from nacdrive.models import load_policy, save_policy
from nacdrive.rollout.dagger import Practice, practise
from nacdrive.rollout.offline_eval import cross_validate, errors, predict
from nacdrive.rollout.train_config import TrainConfig
from nacdrive.tasks import Sample
from nacdrive.tasks.udacity import Udacity
from nacdrive.training.config import FitConfig
from tests.helpers.udacity_logs import make_log
from tests.helpers.udacity_policy import udacity_policy


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Seventeen seconds of driving, whose right steering can be read from the colour of the road."""
    steps = 244
    rows = np.zeros((steps, 4))
    rows[:, 0] = 0.5 * np.sign(np.sin(np.arange(steps) / 20))
    rows[:, 3] = 20
    return make_log(tmp_path_factory.mktemp("udacity") / "log", steps, rows=rows)


def test_train_goes_from_a_log_to_a_policy_that_has_practised(log, tmp_path, capsys):
    config = TrainConfig(
        task="udacity", model="nac-steady", data=(log,), window=2, epochs=1, valid_share=0.5, dagger=1,
        dagger_episodes=2, max_frames=20, workers=1, out=tmp_path / "run", precision="bfloat16",
    )  # fmt: skip
    assert run(config) == 0
    policy = load_policy(tmp_path / "run" / "nac_steady.pt", expect_task="udacity")
    assert policy.config.gap_s == pytest.approx(0.07, abs=0.01)
    assert policy.meta["round"] == 1
    assert policy.meta["valid_mae"] < 0.8
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [0, 1]
    assert "valid_mae" in rows[0]
    assert "validation MAE" in capsys.readouterr().out
    practised = Recording.open(tmp_path / "run" / "dagger-1", source="udacity")
    assert practised.meta["expert"] == "geometric"
    assert len(practised) == 2


def test_practice_is_labelled_by_the_geometric_driver(tmp_path):
    path = tmp_path / "pupil.pt"
    save_policy(udacity_policy(), path)
    practice = Practice(path, "geometric", 1, 2, 0.0, seed=0, max_frames=60)
    driven = []
    practise(practice, tmp_path / "r", 1, driven.append)
    assert {episode.meta["track"] for episode in driven} == {"lake", "mountain"}
    assert all(np.abs(episode.label - episode.steering).max() > 0 for episode in driven)
    practise(practice, tmp_path / "r", 1, driven.append)
    assert len(driven) == 2


def test_errors_by_blocks_are_of_networks_that_did_not_see_them(log):
    samples = [Sample(s.name, {name: x[::4] for name, x in s.fields.items()}) for s in Udacity().load([log])]
    config = FitConfig(epochs=1, batch=8, patience=0, augment=False)
    with pytest.raises(Exception, match="cannot be cut into 5 parts"):
        cross_validate(samples, "dense", 1, config, sides=False)
    parts = []
    rows = cross_validate(
        samples * 3, "dense", 1, config, sides=False, on_fold=lambda number, errors: parts.append(number)
    )
    assert parts == [0, 1, 2, 3, 4]
    assert sum(len(fold) for fold in rows) == 6
    for row in (row for fold in rows for row in fold):
        assert row["zero_mse"] == pytest.approx(0.25, abs=0.01)
        assert row["mean_mse"] <= 0.5


def test_a_drive_predicted_in_pieces_is_the_drive_predicted_at_once(log):
    policy, sample = udacity_policy(window=3), Udacity().load([log])[0]
    pieces = predict(policy, sample, piece=50)
    np.testing.assert_allclose(pieces, predict(policy, sample, piece=1000), atol=1e-5)
    target = sample.fields["target"]
    assert errors(target, target, 0.0)["mse"] == 0
    assert errors(pieces, target)["mae"] == pytest.approx(float((pieces - target).abs().mean()))
