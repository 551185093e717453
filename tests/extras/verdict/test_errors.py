"""Steering errors on recorded drives."""

import numpy as np
import pytest

from nacdrive.common.files import write_json
from nacdrive.common.runs import plain
from nacdrive.extras.verdict.log_verdict import errors, predict
from nacdrive.tasks import Sample
from nacdrive.tasks.udacity import Udacity
from nacdrive.training.config import FitConfig
from tests.helpers.udacity_logs import make_log
from tests.helpers.udacity_policy import udacity_policy
from tools.udacity_offline import cross_validate, refuse_others


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Seventeen seconds of driving, whose right steering can be read from the colour of the road."""
    steps = 244
    rows = np.zeros((steps, 4))
    rows[:, 0] = 0.5 * np.sign(np.sin(np.arange(steps) / 20))
    rows[:, 3] = 20
    return make_log(tmp_path_factory.mktemp("udacity") / "log", steps, rows=rows)


def test_errors_of_networks_that_were_trained_otherwise_are_not_gone_on_with(tmp_path):
    kept = {"config": plain(FitConfig(epochs=5)), "vision": "None"}
    write_json(tmp_path / "lstm-window-1.json", kept | {"folds": []})
    refuse_others(tmp_path / "lstm-window-1.json", kept | {"sides": False})
    for other in ({"config": plain(FitConfig(epochs=4))}, {"vision": "lake.pt"}):
        with pytest.raises(SystemExit, match=f"made with another {next(iter(other))}: give another --out"):
            refuse_others(tmp_path / "lstm-window-1.json", kept | other)


@pytest.mark.nightly
def test_errors_by_blocks_are_of_networks_that_did_not_see_them(log):
    samples = [Sample(s.name, {name: x[::4] for name, x in s.fields.items()}) for s in Udacity().load([log])]
    config = FitConfig(epochs=1, batch_size=8, patience=0, augment=False)
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
    policy, whole = udacity_policy(window=3), Udacity().load([log])[0]
    sample = Sample(whole.name, {name: x[:60] for name, x in whole.fields.items()})
    pieces = predict(policy, sample, piece=25)
    np.testing.assert_allclose(pieces, predict(policy, sample, piece=1000), atol=1e-5)
    target = sample.fields["target"]
    assert errors(target, target, 0.0)["mse"] == 0
    assert errors(pieces, target)["mae"] == pytest.approx(float((pieces - target).abs().mean()))
