"""Every task of the paper's table trains: one step under each protocol, with the outputs that its labels ask for."""

import json
import math
import os
import re
import shutil

import pytest
import torch

from nacdrive.common.paths import shipped
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Size
from nacdrive.tasks.registry import PAPER_TASKS, trained_on
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import fit
from nacdrive.training.predict import outputs

torch.set_num_threads(1)
CLASSES = {"emnist": 10, "par": 11, "carracing": 5}
"""Of the tasks that choose; the others answer one number."""
NAC_OF_SCRIPTS = {
    "emnist": (8, 1.0, 64, 8), "par": (8, 1.0, 32, 4), "carracing": (10, 1.5, 64, 16), "udacity": (10, 1.0, 64, 16),
    "pronostia": (10, 1.5, 16, 8),
}  # fmt: skip
"""K, the constant quadrature's time, width and heads of NAC in the authors' k-fold scripts."""
EPOCHS_OF_SCRIPTS = {"emnist": 75, "par": 100, "carracing": 70, "udacity": 10, "pronostia": 50}
ELSEWHERE = {("hust", "sequence")}
"""A task that a protocol cannot have: its data hold no times."""


@pytest.fixture(scope="module")
def data_dirs(made_up, tmp_path_factory):
    """As much of each data set as a step takes: the first snapshots of a bearing, every third frame of a drive."""
    root = tmp_path_factory.mktemp("little")

    def later(folder, names):
        return [name for name in names if (number := re.search(r"(\d+)\.csv$", name)) and int(number[1]) > 12]

    for name in PAPER_TASKS:
        if name != "carracing":
            shutil.copytree(made_up(name), root / name, copy_function=os.link, ignore=later)
    log = root / "udacity/driving_log.csv"
    lines = log.read_text().splitlines(keepends=True)
    log.unlink()  # a link to the one of all
    log.write_text("".join(lines[::3]))
    return {name: root / name for name in PAPER_TASKS} | {"carracing": shipped("recordings") / "carracing-sample"}


@pytest.mark.parametrize("protocol", ["sequence", "paper", "scripts"])
@pytest.mark.parametrize("name", PAPER_TASKS)
def test_one_step(data_dirs, tmp_path, name, protocol):
    task = load_task(name, protocol)
    assert bool(task.metrics_of(name)) == ((name, protocol) not in ELSEWHERE)
    if not task.metrics_of(name):
        return
    where = {key: data_dirs[key] for key in {name, trained_on(name)}}
    fold = task.folds(where, 1, 0, Size(max_samples=64, max_tests=16))[0]
    torch.manual_seed(0)
    network = task.network("nac-exact" if protocol == "scripts" else "lstm", fold.train, **task.nac_options)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    config = FitConfig(**{**task.settings, "epochs": 1})
    fit(network, task, fold.train[: config.batch_size], fold.valid[:2], config, tmp_path)
    loss = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["train_loss"]
    if name in CLASSES:
        # That of a guess among so many.
        assert loss == pytest.approx(math.log(CLASSES[name]), abs=0.3)
    else:
        assert 0 < loss < 1
    assert any(not value.equal(before[key]) for key, value in network.state_dict().items())
    answers = outputs(network, task, fold.tests[name])
    assert {answer.shape[-1] for answer in answers} == {CLASSES.get(name, 1)}
    if protocol == "scripts":
        layer = network.sequence.nac
        assert (layer.topk, layer.options.delta_t, layer.d_model, layer.num_heads) == NAC_OF_SCRIPTS[trained_on(name)]
        assert task.settings["epochs"] == EPOCHS_OF_SCRIPTS[trained_on(name)]
    scores = task.score(name, answers, fold.tests[name])
    assert scores and all(math.isfinite(value) for value in scores.values())
