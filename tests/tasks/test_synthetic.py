"""The tasks that are made from seeds."""

import numpy as np
import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.extras.bench.config import TableConfig
from nacdrive.extras.bench.grid import compute, plan
from nacdrive.tasks import TASKS, load_task
from nacdrive.tasks.base import Size, Task
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.synthetic import MOST_BITS, SYMBOLS, TAU_S, part_of
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import fit
from nacdrive.training.predict import outputs

torch.set_num_threads(1)
NAMES = [name for name in TASKS.names() if name.startswith("synthetic-")]
SMALL = Size(max_samples=90, max_tests=40)


def answer(name: str, x: np.ndarray, t: np.ndarray) -> float:
    """The truth, worked out anew from what a layer is shown."""
    if name == "synthetic-decay":
        (cue,) = np.flatnonzero(x[:, 0])
        return x[cue, 0] * np.exp((t[cue] - t[-1]) / TAU_S)
    if name == "synthetic-since":
        return (t[-1] - t[np.flatnonzero(x[:, 0])[-1]]) / TAU_S
    if name == "synthetic-xor":
        return sum(int(value) * gap for value, gap in zip(x[1:, 0], np.diff(t), strict=True)) % 2
    asked = x[-1, :SYMBOLS].argmax()
    shown = x[:SYMBOLS, asked].argmax()
    age = t[-1] - t[shown]
    return x[shown, SYMBOLS] * (np.exp(-age / TAU_S) if name == "synthetic-recall-decay" else 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_targets_follow_from_what_is_shown(name):
    for sample in load_task(name).part("train", 3, 50):
        x, t = sample.fields["x"].numpy(), sample.fields["t"].numpy()
        assert float(sample.labels["target"]) == pytest.approx(answer(name, x, t), abs=1e-6)
        assert (np.diff(t) > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_no_sequence_is_in_two_parts_and_all_are_tested_on_the_same(name):
    folds = [*load_task(name).folds({}, 2, 0, SMALL), *load_task(name).folds({}, 1, 7, SMALL)]
    assert [len(fold.train) + len(fold.valid) for fold in folds] == [90] * 3

    def content(samples):
        return {(s.fields["x"].numpy().tobytes(), s.fields["t"].numpy().tobytes()) for s in samples}

    for fold in folds:
        parts = [content(part) for part in (fold.train, fold.valid, fold.tests[name])]
        assert not parts[2] & (parts[0] | parts[1]) and not parts[0] & parts[1]
    assert content(folds[0].tests[name]) == content(folds[2].tests[name])
    assert content(folds[0].train) != content(folds[1].train)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_sequences_and_fewer_are_the_first_of_more(name):
    task = load_task(name)
    few, more = task.part("train", 1, 5), task.part("train", 1, 9)
    for one, other in zip(few, more, strict=False):
        assert all(torch.equal(one.fields[key], other.fields[key]) for key in one.fields)
    assert not torch.equal(few[0].fields["t"], task.part("train", 2, 1)[0].fields["t"]) or name == "synthetic-xor"


def test_the_part_of_a_bit_stream_tells_nothing_of_its_answer():
    random = np.random.default_rng(0)
    odd = {"train": [], "valid": [], "test": []}
    for _ in range(4000):
        bits = random.integers(0, 2, MOST_BITS)
        odd[part_of(bits)].append(bits.sum() % 2)
    assert 0.4 < np.mean(odd["test"]) < 0.6
    assert 350 < len(odd["test"]) < 650


@pytest.mark.parametrize("name", NAMES)
def test_a_table_knows_what_it_must(name):
    task = load_task(name)
    assert isinstance(task, Task) and task.data_folders == () and task.note_of(name)
    assert set(task.sizes) == {"smoke", "cpu", "full"}
    assert bool(load_task(name, "paper").metrics_of(name)) is False


def test_r2_is_1_for_the_truth_and_0_for_its_mean():
    task = load_task("synthetic-since")
    samples = task.part("test", 0, 30)
    truth = torch.stack([s.labels["target"] for s in samples]).float()
    assert task.score(task.name, list(truth[:, None]), samples)["r2"] == pytest.approx(1.0)
    assert task.score(task.name, list(truth.mean().expand(30, 1)), samples)["r2"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.nightly
def test_attention_learns_recall_and_a_constant_does_not(tmp_path):
    task = load_task("synthetic-recall")
    fold = task.folds({}, 1, 0, Size(max_samples=2304, max_tests=256))[0]
    torch.manual_seed(0)
    network = task.network("mha", fold.train)
    fit(network, task, fold.train, fold.valid, FitConfig(**{**task.settings, "epochs": 8}), tmp_path)
    test = fold.tests[task.name]
    assert task.score(task.name, outputs(network, task, test, batch=256), test)["r2"] > 0.9
    constant = task.references(task.name, fold.train, test)["mean of the training part"]
    assert abs(task.score(task.name, constant, test)["r2"]) < 0.05


def test_a_series_without_an_axis_of_features_is_named():
    series = Sample("the first", {"x": torch.zeros(5), "t": torch.arange(5.0)})
    with pytest.raises(UserError, match=r"x of the first has the shape \(5,\): give \[steps, features\]"):
        load_task("synthetic-decay").network("gru", [series])


def test_the_bench_trains_them_without_any_folder_of_data(tmp_path):
    config = TableConfig(tasks=("synthetic-xor",), models=("gru",), data=tmp_path / "none", out=tmp_path / "out")
    results = compute(plan(config), config, lambda cell, news: None, lambda cell, result: None)
    assert {key: result["status"] for key, result in results.items()} == {
        "synthetic-xor/references/0": "done",
        "synthetic-xor/gru/0": "done",
    }
