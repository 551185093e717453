"""A set of the UEA archive: series as long as they are, what is missing, the parts, and files that are none."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.datasets.inspect import contents
from nacdrive.datasets.synthetic import generate
from nacdrive.datasets.uea import read_series_set
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Size
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import fit
from nacdrive.training.predict import outputs

torch.set_num_threads(1)
HEADER = "# a comment\n@problemName Small\n@timeStamps false\n@dimensions 2\n@classLabel true a b\n@data\n"


@pytest.fixture(scope="module")
def waves(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "uea"
    generate("uea", folder)
    return folder


def small(folder: Path, train: str, test: str = "1,2:3,4:a\n", header: str = HEADER) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "Small_TRAIN.ts").write_text(header + train)
    (folder / "Small_TEST.ts").write_text(HEADER + test)
    return folder


def test_series_keep_their_lengths_and_what_is_missing_is_not_made_up(tmp_path):
    series = "".join(f"{i},?,3:4,5,6:a\n{i},2:4,5:b\n" for i in range(5))
    folder = small(tmp_path / "uea", series)
    data = read_series_set(folder)
    assert (data.name, data.classes, len(data.train), len(data.test)) == ("Small", ("a", "b"), 10, 1)
    assert data.train[0].x.shape == (3, 2) and np.isnan(data.train[0].x[1, 0]) and data.train[1].label == 1
    assert data.train[1].place.endswith("Small_TRAIN.ts line 8")
    task = load_task("uea")
    (fold,) = task.folds({"uea": folder}, 1, 0)
    assert task.outputs == 2 and task.window == 3 and task.meta["data_set"] == "Small"
    assert (len(fold.train), len(fold.valid), len(fold.tests["uea"])) == (8, 2, 1)
    one = next(row for row in fold.train if len(row) == 3)
    learnt = [row.fields["x"] for row in fold.train]
    mean = torch.cat([x[:, 0][x[:, 2] == 0] for x in learnt]).mean()
    torch.testing.assert_close(one.fields["x"][1], torch.tensor([mean, 5.0, 1.0, 0.0]))
    assert one.fields["t"].tolist() == [0, 1, 2]
    # Where nothing is missing there is no feature that says so.
    (plain,) = load_task("uea").folds({"uea": small(tmp_path / "plain", "1,2:3,4:a\n" * 5 + "1,2:3,4:b\n" * 5)}, 1, 0)
    assert plain.train[0].fields["x"].shape == (2, 2)


def test_folds_choose_by_other_parts_and_test_on_the_archives_own(waves):
    task = load_task("uea")
    folds = task.folds({"uea": waves}, 5, 0)
    chosen = [{row.name for row in fold.valid} for fold in folds]
    assert len(set().union(*chosen)) == 60 and sum(map(len, chosen)) == 60
    for fold, valid in zip(folds, chosen, strict=True):
        assert not valid & {row.name for row in fold.train} and len(fold.tests["uea"]) == 40
        assert {int(row.labels["target"]) for row in fold.valid} == {0, 1}
    limited = task.folds({"uea": waves}, 1, 0, Size(1, 20, 10))[0]
    assert (len(limited.train), len(limited.tests["uea"])) == (20, 10)


def test_a_layer_learns_waves_of_two_lengths(waves, tmp_path):
    task = load_task("uea")
    (fold,) = task.folds({"uea": waves}, 1, 0)
    torch.manual_seed(0)
    network = task.network("gru", fold.train)
    config = FitConfig(**{**task.settings, "batch_size": 4, "epochs": 20})
    fit(network, task, fold.train, fold.valid, config, tmp_path)
    answers = outputs(network, task, fold.tests["uea"], batch=8)
    assert task.score("uea", answers, fold.tests["uea"])["accuracy"] > 90
    (finding,) = contents("uea", waves)
    assert finding.text == ("Waves: 60 series to learn from and 40 to test on, 2 classes, 2 dimensions, 12 to 24 steps")


@pytest.mark.parametrize(
    ("train", "header", "sentence"),
    [
        ("1,2:3,4:c\n", HEADER, r"Small_TRAIN\.ts line 7 is no series .* classes a, b"),
        ("1,2:3:a\n", HEADER, "line 7 is no series of equally long dimensions"),
        ("1,x:3,4:a\n", HEADER, "line 7 is no series"),
        ("a\n", HEADER, "line 7 is no series"),
        ("", HEADER, "holds no series"),
        ("1,2:3,4:a\n", HEADER.replace("@classLabel true a b", "@classLabel false"), "it has class labels"),
        ("1,2:3,4:a\n", HEADER.replace("@timeStamps false", "@timeStamps true"), "no time stamps"),
        ("1,2:a\n", HEADER, "classes or dimensions of Small_TRAIN.ts and Small_TEST.ts differ"),
        ("1,2:3,4:a\n", HEADER.replace("true a b", "true b a"), "classes or dimensions of"),
    ],
)
def test_a_file_that_is_no_set_is_said_in_a_sentence(train, header, sentence, tmp_path):
    with pytest.raises(UserError, match=sentence):
        read_series_set(small(tmp_path, train, header=header))


def test_another_folder_is_said_in_a_sentence(waves, tmp_path):
    folder = shutil.copytree(waves, tmp_path / "uea")
    shutil.copy(folder / "Waves_TRAIN.ts", folder / "Waves_eq_TRAIN.ts")
    with pytest.raises(UserError, match=r"has the parts of Waves, Waves_eq: give NAME_TRAIN"):
        read_series_set(folder)
    (folder / "Waves_eq_TRAIN.ts").unlink()
    (folder / "Waves_TEST.ts").unlink()
    with pytest.raises(UserError, match=r"Waves_TEST\.ts does not exist: copy it beside the other part"):
        read_series_set(folder)
    with pytest.raises(UserError, match=r"has no NAME_TRAIN\.ts"):
        read_series_set(tmp_path)


def test_one_series_to_learn_from_is_too_few(tmp_path):
    folder = small(tmp_path / "uea", "1,2:3,4:a\n")
    with pytest.raises(UserError, match="Small has 1 series to learn from and 1 to test on: it needs 2 and 1 at least"):
        load_task("uea").folds({"uea": folder}, 1, 0)
