"""The trained models for series that come with nacdrive."""

import os
import shutil
from pathlib import Path

import pytest
import torch

from nacdrive.common.paths import shipped
from nacdrive.datasets.downloads import unpacked
from nacdrive.extras.bearings.life import predict_lives
from nacdrive.extras.bearings.runs import read_runs
from nacdrive.extras.bearings.task import Bearings
from nacdrive.extras.bearings.wear import wear_curves
from nacdrive.extras.predict.predictions import predict_digits
from nacdrive.training.predict import TrainedSeries

torch.set_num_threads(1)
XJTU = Path(__file__).resolve().parents[3] / "shared/data/xjtu_features.tar.xz"
MNIST = XJTU.parent / "mnist"
CARDS = sorted(path for task in ("emnist", "pronostia") for path in (shipped("agents") / task).glob("*.pt"))


@pytest.mark.parametrize("path", CARDS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_shipped_model_loads_and_has_its_card_and_log(path):
    model = TrainedSeries.load(path.name, path.parent.name, "cpu")
    assert model.path == path
    assert model.meta["made_up"] == []
    assert path.name in path.with_suffix(".md").read_text()
    assert path.with_suffix(".metrics.jsonl").is_file()
    assert f"{sum(p.numel() for p in model.network.parameters()):,} parameters" in path.with_suffix(".md").read_text()


def test_pronostia_and_emnist_have_a_nac():
    assert {path.parent.name for path in CARDS} == {"emnist", "pronostia"}


@pytest.mark.skipif(not MNIST.is_dir(), reason="MNIST is not on this machine")
@pytest.mark.parametrize(("name", "least"), [("nac_exact.pt", 0.75), ("nac_lag.pt", 0.96)])
def test_the_shipped_digit_models_read_digits(name, least):
    answers = predict_digits(TrainedSeries.load(name, "emnist", "cpu"), MNIST, 500)
    assert sum(answer.right for answer in answers) / len(answers) > least


@pytest.mark.skipif(not XJTU.is_file(), reason="the published XJTU-SY features are not on this machine")
def test_the_shipped_bearing_model_sees_wear_where_no_training_was(tmp_path):
    model = TrainedSeries.load("nac_exact.pt", "pronostia", "cpu")
    for name in ("Bearing1_1", "Bearing1_3"):  # to read them all takes seconds
        (file,) = unpacked(XJTU).rglob(f"{name}_features*.csv")
        (tmp_path / file.name).symlink_to(file)
    lives = read_runs("xjtu-sy", tmp_path)
    assert len(lives) == 2
    samples = Bearings().cut(lives)
    for curve in wear_curves(model.predict(samples), samples).values():
        assert curve.rmse < 0.15
        assert curve.predicted[: len(curve.t_s) // 3].max() < 0.1
        assert curve.predicted[-3:].min() > 0.8


def test_a_bearing_without_wear_has_the_remaining_life_of_its_age_and_says_so(made_up, tmp_path):
    bearing = tmp_path / "Full_Test_Set/Bearing2_7"
    shutil.copytree(made_up("pronostia"), tmp_path, copy_function=os.link, dirs_exist_ok=True)
    for file in sorted(bearing.glob("acc_*.csv"))[12:]:
        file.unlink()
    model = TrainedSeries.load("nac_exact.pt", "pronostia", "cpu")
    (prediction,) = predict_lives(model, bearing).values()
    assert len(prediction.curve.t_s) == 12
    assert not prediction.life.worn.any()
    # The shipped file is older than the field of lives: those of the data set stand in, and that is said.
    assert prediction.basis == "6 lives of PRONOSTIA, for the model file tells none"
    assert (prediction.life.low_s < prediction.life.median_s).all()
    assert (prediction.life.median_s < prediction.life.high_s).all()
    assert "by age alone" in prediction.life.basis(-1)
    (own,) = predict_lives(model, bearing, [3600.0] * 5).values()
    assert 900 < own.life.median_s[-1] < 1800 < prediction.life.median_s[-1]
