"""CarRacing and Udacity on the bench."""

from functools import cache

import pytest
import torch

from nacdrive.common.paths import shipped
from nacdrive.models import load_policy
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Size
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import fit
from nacdrive.training.predict import outputs

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def data_dirs(made_up):
    return {"udacity": made_up("udacity"), "carracing": shipped("recordings") / "carracing-sample"}


def fold_of(name, protocol, data_dirs, most):
    return cut(name, protocol, data_dirs[name], most)


@cache
def cut(name, protocol, folder, most):
    task = load_task(name, protocol)
    return task, task.folds({name: folder}, 1, 0, Size(max_samples=most, max_tests=most))[0]


def test_episodes_are_held_out_whole(data_dirs):
    _, fold = fold_of("carracing", "sequence", data_dirs, 90)
    parts = [{s.name for s in part} for part in (fold.train, fold.valid, fold.tests["carracing"])]
    assert all(parts)
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]


def test_blocks_of_a_drive_are_held_out_with_a_gap(data_dirs):
    _, fold = fold_of("udacity", "sequence", data_dirs, None)
    times = [torch.cat([s.fields["t"] for s in part]) for part in (fold.train, fold.tests["udacity"])]
    assert (times[0][:, None] - times[1]).abs().min() >= 1.0
    assert any("left camera" in s.name for s in fold.train)
    assert not any("camera" in s.name for s in fold.tests["udacity"])


@pytest.mark.parametrize("name", ["carracing", "udacity"])
def test_the_papers_frames_are_single_and_shuffled(data_dirs, name):
    task, fold = fold_of(name, "paper", data_dirs, 60)
    assert {len(s) for s in [*fold.train, *fold.valid]} == {1}
    assert [s.name for s in fold.valid] == [s.name for s in fold.tests[name]]
    network = task.network("lstm", fold.train).eval()
    answers = outputs(network, task, fold.tests[name], batch=8)
    again = outputs(network, task, fold.tests[name][::-1], batch=3)[::-1]
    torch.testing.assert_close(torch.cat(answers), torch.cat(again), atol=1e-5, rtol=1e-4)


def test_the_authors_udacity_network_runs_over_64_maps(data_dirs):
    task, fold = fold_of("udacity", "paper", data_dirs, 60)
    network = task.network("mha", fold.train)
    assert (network.sequence.in_features, network.maps) == (18, 64)


@pytest.mark.parametrize("name", ["carracing", "udacity"])
def test_a_cell_of_driving_leaves_a_policy_that_drives(data_dirs, tmp_path, name):
    task, fold = fold_of(name, "sequence", data_dirs, 90)
    torch.manual_seed(0)
    network = task.network("lstm", fold.train)
    config = FitConfig(**{**task.settings, "epochs": 1})
    fit(network, task, fold.train[:1], fold.valid[:1], config, tmp_path)
    scores = task.score(name, outputs(network, task, fold.tests[name]), fold.tests[name])
    assert all(value >= 0 for value in scores.values())
    task.save(network, tmp_path / "model.pt", {})
    policy = load_policy(tmp_path / "model.pt", expect_task=name)
    frame = fold.tests[name][0].fields["frames"][0].numpy()
    if name == "carracing":
        assert policy.step(frame, 0.0).choice in range(5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ["carracing", "udacity"])
def test_trains_and_answers_on_cuda(data_dirs, tmp_path, name):
    task, fold = fold_of(name, "sequence", data_dirs, 90)
    network = task.network("nac-exact", fold.train)
    config = FitConfig(**{**task.settings, "epochs": 1})
    fit(network, task, fold.train, fold.valid, config, tmp_path, device="cuda")
    assert all(y.isfinite().all() for y in outputs(network, task, fold.tests[name], device="cuda"))
