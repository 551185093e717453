"""PAR under both protocols, on a made-up file of its format."""

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.datasets.par import ACTIVITIES, ParRecording
from nacdrive.datasets.synthetic import generate
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Size
from nacdrive.tasks.par import LONGEST_S, macro_f1, series
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import fit
from nacdrive.training.predict import outputs

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def data_dirs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("par")
    generate("par", folder)
    return {"par": folder}


def test_a_person_is_held_out_whole(data_dirs):
    folds = load_task("par", "sequence").folds(data_dirs, 5, 0)
    assert [fold.name for fold in folds] == ["person A", "person B", "person C"]
    for fold in folds:
        person = fold.name[-1]
        assert {s.name[0] for s in fold.tests["par"]} == {person}
        assert person not in {s.name[0] for s in [*fold.train, *fold.valid]}
        assert not {s.name for s in fold.train} & {s.name for s in fold.valid}


def test_each_tag_keeps_its_last_value_and_its_age():
    recording = ParRecording(
        "A01", "A", np.array([0.0, 1.0, 3.0]), np.array([2, 0, 2]),
        np.array([[1, 1, 1], [2, 2, 2], [3, 3, 3]], np.float32), np.array([0, 1, 2]),
    )  # fmt: skip
    x = series(recording)["x"].view(3, 4, 4)
    assert x[:, 2].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1], [3, 3, 3, 0]]
    assert x[:, 0].tolist() == [[0, 0, 0, LONGEST_S], [2, 2, 2, 0], [2, 2, 2, 2]]
    assert (x[:, 1, 3] == LONGEST_S).all()


def test_rows_of_the_paper_are_balanced_and_of_one_person(data_dirs):
    fold = load_task("par", "paper").folds(data_dirs, 1, 0)[0]
    labels = torch.stack([s.labels["target"] for s in [*fold.train, *fold.tests["par"]]])
    assert (torch.bincount(labels) == 80).all()
    assert fold.train[0].fields["x"].shape == (1, 4)


def test_macro_f1_counts_every_class_alike():
    truth = torch.tensor([0] * 8 + [1, 1])
    assert macro_f1(truth, truth) == 1
    # All 0: class 0 has precision 0.8 and recall 1, class 1 nothing.
    assert macro_f1(torch.zeros(10, dtype=torch.long), truth) == pytest.approx((2 * 8 / 18) / 2)


@pytest.mark.nightly
def test_made_up_activities_are_learnt(data_dirs, tmp_path):
    task = load_task("par", "sequence")
    fold = task.folds(data_dirs, 1, 0)[0]
    torch.manual_seed(0)
    network = task.network("gru", fold.train)
    config = FitConfig(**{**task.settings, "epochs": 15, "learning_rate": 1e-2})
    fit(network, task, fold.train, fold.valid, config, tmp_path)
    scores = task.score("par", outputs(network, task, fold.tests["par"]), fold.tests["par"])
    assert scores["accuracy"] > 3 * 100 / len(ACTIVITIES)
    assert 0 < scores["f1"] <= 100


def test_of_one_person_a_recording_is_held_out_and_a_recording_alone_cannot_be(data_dirs, tmp_path):
    lines = [row for row in (data_dirs["par"] / "readings.txt").read_text().splitlines() if row.startswith("A")]
    (tmp_path / "ConfLongDemo_JSI.txt").write_text("\n".join(lines))
    alone = {"par": tmp_path}
    with pytest.warns(UserWarning):
        folds = load_task("par", "sequence").folds(alone, 5, 0)
    names = sorted({row.split(",")[0] for row in lines})
    assert [fold.name for fold in folds] == [f"recording {name}" for name in names][:5]
    for fold in folds:
        held, kept, learnt = ({s.name for s in part} for part in (fold.tests["par"], fold.valid, fold.train))
        assert held == {fold.name.split()[1]} and not held & (kept | learnt) and not kept & learnt
    one = [row for row in lines if row.startswith(names[0])]
    (tmp_path / "ConfLongDemo_JSI.txt").write_text("\n".join(one))
    with pytest.warns(UserWarning), pytest.raises(UserError, match="holds one recording: one more is needed"):
        load_task("par", "sequence").folds(alone, 1, 0)
    with pytest.warns(UserWarning), pytest.raises(UserError, match="person B alone"):
        load_task("par", "paper").folds(alone, 1, 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_trains_and_answers_on_cuda(data_dirs, tmp_path):
    task = load_task("par", "sequence")
    fold = task.folds(data_dirs, 1, 0, Size(max_samples=8, max_tests=8))[0]
    network = task.network("nac-exact", fold.train)
    config = FitConfig(**{**task.settings, "epochs": 1})
    fit(network, task, fold.train, fold.valid, config, tmp_path, device="cuda")
    assert all(y.isfinite().all() for y in outputs(network, task, fold.tests["par"], device="cuda"))


def test_a_person_with_one_recording_is_learnt_from():
    def recording(name):
        return ParRecording(
            name, name[0], np.arange(80.0), np.zeros(80, int), np.ones((80, 3), np.float32), np.arange(80) % 2
        )

    recordings = [recording(name) for name in ("A01", "A02", "B01", "C01", "D01")]
    fold = load_task("par", "sequence").fold("person D", recordings[4:], recordings, Size())
    names = [{s.name.split()[0] for s in part} for part in (fold.train, fold.valid, fold.tests["par"])]
    assert names == [{"A01", "B01", "C01"}, {"A02"}, {"D01"}]
