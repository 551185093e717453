"""CarRacing and Udacity on the bench."""

import pytest
import torch

from nacdrive.common.paths import shipped
from nacdrive.datasets.synthetic import make_up
from nacdrive.models import load_policy
from nacdrive.tasks.problem import load_problem
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import fit
from nacdrive.training.predict import outputs

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("udacity")
    make_up("udacity", folder)
    return {"udacity": folder, "carracing": shipped("recordings") / "carracing-sample"}


def fold_of(task, protocol, places, most):
    problem = load_problem(task, protocol)
    return problem, problem.folds({task: places[task]}, 1, 0, most)[0]


def test_episodes_are_held_out_whole(places):
    _, fold = fold_of("carracing", "sequence", places, 90)
    parts = [{s.name for s in part} for part in (fold.train, fold.valid, fold.tests["carracing"])]
    assert all(parts)
    assert not parts[0] & parts[1] and not parts[0] & parts[2] and not parts[1] & parts[2]


def test_blocks_of_a_drive_are_held_out_with_a_gap(places):
    _, fold = fold_of("udacity", "sequence", places, None)
    times = [torch.cat([s.fields["t"] for s in part]) for part in (fold.train, fold.tests["udacity"])]
    assert (times[0][:, None] - times[1]).abs().min() >= 1.0
    assert any("left camera" in s.name for s in fold.train)
    assert not any("camera" in s.name for s in fold.tests["udacity"])


@pytest.mark.parametrize("task", ["carracing", "udacity"])
def test_the_papers_frames_are_single_and_shuffled(places, task):
    problem, fold = fold_of(task, "paper", places, 60)
    assert {len(s) for s in [*fold.train, *fold.valid]} == {1}
    assert [s.name for s in fold.valid] == [s.name for s in fold.tests[task]]
    network = problem.network("lstm", fold.train).eval()
    answers = outputs(network, problem, fold.tests[task], batch=8)
    again = outputs(network, problem, fold.tests[task][::-1], batch=3)[::-1]
    torch.testing.assert_close(torch.cat(answers), torch.cat(again), atol=1e-5, rtol=1e-4)


def test_the_authors_udacity_network_runs_over_64_maps(places):
    problem, fold = fold_of("udacity", "paper", places, 40)
    network = problem.network("mha", fold.train)
    assert (network.sequence.in_features, network.maps) == (18, 64)


@pytest.mark.parametrize("task", ["carracing", "udacity"])
def test_a_cell_of_driving_leaves_a_policy_that_drives(places, tmp_path, task):
    problem, fold = fold_of(task, "sequence", places, 90)
    torch.manual_seed(0)
    network = problem.network("lstm", fold.train)
    config = FitConfig(**{**problem.settings, "epochs": 1})
    fit(network, problem, fold.train[:1], fold.valid[:1], config, tmp_path)
    scores = problem.score(task, outputs(network, problem, fold.tests[task]), fold.tests[task])
    assert all(value >= 0 for value in scores.values())
    problem.save(network, tmp_path / "model.pt", {})
    policy = load_policy(tmp_path / "model.pt", expect_task=task)
    frame = fold.tests[task][0].fields["frames"][0].numpy()
    if task == "carracing":
        assert policy.step(frame, 0.0).choice in range(5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("task", ["carracing", "udacity"])
def test_trains_and_answers_on_cuda(places, tmp_path, task):
    problem, fold = fold_of(task, "sequence", places, 90)
    network = problem.network("nac-exact", fold.train)
    config = FitConfig(**{**problem.settings, "epochs": 1})
    fit(network, problem, fold.train, fold.valid, config, tmp_path, device="cuda")
    assert all(y.isfinite().all() for y in outputs(network, problem, fold.tests[task], device="cuda"))
