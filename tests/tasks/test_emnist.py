"""E-MNIST under both protocols."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nacdrive.datasets.synthetic import generate
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Size
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import fit
from nacdrive.training.predict import outputs

torch.set_num_threads(1)
MNIST = Path(__file__).resolve().parents[3] / "shared/data/mnist"


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    generate("emnist", folder)
    return {"emnist": folder}


@pytest.mark.parametrize("protocol", ["sequence", "paper"])
def test_folds_share_no_image(digits, protocol):
    folds = load_task("emnist", protocol).folds(digits, 3, 0, Size(max_samples=200, max_tests=200))
    if protocol == "paper":
        assert [fold.name for fold in folds] == ["fold 1 of 5", "fold 2 of 5", "fold 3 of 5"]
    for fold in folds:
        names = [{s.name for s in part} for part in (fold.train, fold.valid, fold.tests["emnist"])]
        assert not names[0] & (names[1] | names[2])
        # The paper's protocol chooses the epoch on what it reports: that is its leak, kept on purpose.
        assert (names[1] == names[2]) == (protocol == "paper")


def test_a_sequence_holds_the_runs_of_its_image_and_their_times(digits):
    sample = load_task("emnist", "sequence").folds(digits, 1, 0, Size(max_samples=20, max_tests=20))[0].train[0]
    value, duration, end = sample.fields["x"].T
    assert int(duration.sum()) == 28 * 28 == int(sample.fields["t"][-1])
    assert torch.equal(end, duration.cumsum(0))
    assert set(value.tolist()) <= {0.0, 1.0}
    assert (value.diff() != 0).all()


def test_rows_of_the_paper_are_256_long_and_their_durations_scaled(digits):
    sample = load_task("emnist", "paper").folds(digits, 1, 0, Size(max_samples=20, max_tests=20))[0].train[0]
    assert sample.fields["x"].shape == (256, 2)
    assert float(sample.fields["x"][:, 1].sum()) == pytest.approx(256, rel=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", ["sequence", "paper"])
def test_made_up_digits_are_learnt(digits, tmp_path, protocol):
    task = load_task("emnist", protocol)
    fold = task.folds(digits, 1, 0, Size(max_samples=600, max_tests=600))[0]
    torch.manual_seed(0)
    network = task.network("gru", fold.train)
    config = FitConfig(**{**task.settings, "epochs": 10, "learning_rate": 5e-3})
    fit(network, task, fold.train, fold.valid, config, tmp_path)
    scores = task.score("emnist", outputs(network, task, fold.tests["emnist"]), fold.tests["emnist"])
    assert scores["accuracy"] > 60


@pytest.mark.skipif(not MNIST.is_dir(), reason="MNIST is not on this machine")
def test_real_digits_average_53_events():
    samples = (
        load_task("emnist", "sequence").folds({"emnist": MNIST}, 1, 0, Size(max_samples=500, max_tests=500))[0].train
    )
    assert 48 < np.mean([len(s) for s in samples]) < 58


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_trains_and_answers_on_cuda(digits, tmp_path):
    task = load_task("emnist", "sequence")
    fold = task.folds(digits, 1, 0, Size(max_samples=64, max_tests=64))[0]
    network = task.network("nac-exact", fold.train)
    config = FitConfig(**{**task.settings, "epochs": 1})
    fit(network, task, fold.train, fold.valid, config, tmp_path, device="cuda")
    answers = outputs(network, task, fold.tests["emnist"], device="cuda")
    assert all(y.isfinite().all() for y in answers)
