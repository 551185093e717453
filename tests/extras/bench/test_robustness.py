"""Trained layers under conditions of which their training knew nothing."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.common.result_folder import release_folders
from nacdrive.extras.bench.cell import Cell, run_cell
from nacdrive.extras.bench.conditions import CONDITIONS, HIDDEN, Condition, changed, conditions_for
from nacdrive.extras.bench.config import RobustnessConfig
from nacdrive.extras.bench.robustness import Job, is_of
from nacdrive.extras.bench.robustness_tables import change_text, tables, verdict
from nacdrive.extras.bench.verb import robustness
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Size
from nacdrive.tasks.sample import Sample

torch.set_num_threads(1)


def decay() -> tuple[Any, list[Sample]]:
    task = load_task("synthetic-decay")
    return task, task.part("test", 0, 40)


def test_fewer_steps_keep_their_times_and_the_last_one_stays() -> None:
    task, samples = decay()
    few, fewer = (changed(task, samples, Condition("drop", percent), 1.0, 0) for percent in (10, 50))
    assert 0.4 < sum(map(len, fewer)) / sum(map(len, samples)) < 0.6
    for whole, some, least in zip(samples, few, fewer, strict=True):
        times = whole.fields["t"].tolist()
        # What is missing at 10 % is missing at 50 % too.
        assert set(least.fields["t"].tolist()) <= set(some.fields["t"].tolist()) <= set(times)
        assert least.fields["t"][-1] == times[-1]
        assert least.labels is whole.labels


@pytest.mark.parametrize("name", ["synthetic-decay", "synthetic-since", "synthetic-recall", "synthetic-recall-decay"])
def test_dropping_empty_steps_loses_nothing_that_was_shown(name: str) -> None:
    task = load_task(name)
    samples = task.part("test", 0, 40)
    found = changed(task, samples, Condition("drop-spare", 50), 1.0, 0)
    assert sum(map(len, found)) < sum(map(len, samples))
    for whole, rest in zip(samples, found, strict=True):
        shown = [row.fields["x"].abs().sum(dim=1) > 0 for row in (whole, rest)]
        assert torch.equal(whole.fields["x"][shown[0]], rest.fields["x"][shown[1]])
        assert torch.equal(whole.fields["t"][shown[0]], rest.fields["t"][shown[1]])
        assert whole.fields["t"][-1] == rest.fields["t"][-1]


def test_clocks_err_as_they_are_told_to() -> None:
    task, samples = decay()
    gaps = [s.fields["t"].diff() for s in samples]
    by = {
        c.key: [s.fields["t"].diff() for s in changed(task, samples, c, 3.0, 0)]
        for c in CONDITIONS
        if c.kind in ("jitter", "shuffle", "hide")
    }
    assert all((a / b - 1).abs().max() <= 0.5 for a, b in zip(by["jitter-50"], gaps, strict=True))
    assert max(float((a / b - 1).abs().max()) for a, b in zip(by["jitter-50"], gaps, strict=True)) > 0.4
    assert all((a / b - 1).abs().max() <= 0.1 + 1e-9 for a, b in zip(by["jitter-10"], gaps, strict=True))
    for a, b in zip(by["shuffle"], gaps, strict=True):
        torch.testing.assert_close(a.sort().values, b.sort().values)
    assert all(bool((gap - 3.0).abs().max() < 1e-9) for gap in by["hide"])


def test_time_features_are_hidden_too_where_a_task_has_some() -> None:
    task = load_task("emnist")
    x = torch.tensor([[0.0, 5.0, 5.0], [1.0, 2.0, 7.0], [0.0, 9.0, 16.0]])
    sample = Sample("a digit", {"x": x, "t": x[:, 2]}, {"target": torch.tensor(3)})
    assert [c.key for c in conditions_for(task, [sample])][-2:] == ["hide", "hide-all"]
    (layer_alone,) = changed(task, [sample], HIDDEN, 4.0, 0)
    assert torch.equal(layer_alone.fields["x"], x) and layer_alone.fields["t"].tolist() == [5.0, 9.0, 13.0]
    (everywhere,) = changed(task, [sample], Condition("hide-all"), 4.0, 0)
    assert everywhere.fields["x"].tolist() == [[0.0, 5.0, 5.0], [1.0, 2.0, 9.0], [0.0, 9.0, 13.0]]
    assert x[1, 2] == 7.0  # the sample itself is as it was
    plain, samples = decay()
    assert "hide-all" not in [c.key for c in conditions_for(plain, samples)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layer that feels time, and one that feels none."""
    folder = tmp_path_factory.mktemp("run")
    name, size = "synthetic-since", Size(1, 200, 24)
    with (folder / "results.jsonl").open("w") as file:
        for model in ("contiformer-linear", "gru"):
            cell = Cell(name, (name,), model, 0, 1, "sequence", size, 0, "cpu", {}, folder)
            cell = dataclasses.replace(cell, folder=folder / "cells" / cell.key.replace("/", "-"))
            file.write(json.dumps(run_cell(cell)) + "\n")
    return folder


def test_models_are_tested_once_and_never_trained(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "out"
    config = RobustnessConfig(data=(run,), workers=1, out=out)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert robustness(config)
    assert "uses time?" in capsys.readouterr().out
    rows = [json.loads(line) for line in (out / "robustness.jsonl").read_text().splitlines()]
    assert [row["key"] for row in rows] == ["synthetic-since/contiformer-linear/0", "synthetic-since/gru/0"]
    for row in rows:
        # The intact sequences are those of the cell's own test, so the score is the cell's own.
        assert row["conditions"]["intact"] == pytest.approx(row["trained"]["scores"]["synthetic-since"], abs=1e-6)
    felt, blind = rows[0]["conditions"], rows[1]["conditions"]
    assert felt["hide"] != felt["intact"]
    assert blind["hide"] == blind["jitter-50"] == blind["shuffle"] == blind["intact"] != blind["drop-50"]
    lines = list(csv.DictReader((out / "robustness.csv").open()))
    assert {line["condition"] for line in lines} == set(felt)
    assert (out / "drop-0-synthetic-since-r2.svg").is_file()
    # The same command goes on where it was stopped, here after one of two models and within a line.
    first, second = (out / "robustness.jsonl").read_text().splitlines()
    (out / "robustness.jsonl").write_text(f"{first}\n{second[:50]}")
    # Also with the folders of more runs, here the same one twice.
    assert robustness(dataclasses.replace(config, data=(run, run)))
    assert "1 of them tested already" in capsys.readouterr().err
    again = [json.loads(line) for line in (out / "robustness.jsonl").read_text().splitlines()]
    assert [row["conditions"] for row in again] == [row["conditions"] for row in rows]
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    # A model that was trained again since then is another one.
    row = json.loads((run / "results.jsonl").read_text().splitlines()[0])
    assert is_of(rows[0], Job(row, run, 0, 0))
    assert not is_of(rows[0], Job(row | {"scores": {"synthetic-since": {"r2": 0.1, "mae": 1.0}}}, run, 0, 0))


def result(model: str, repeat: int, intact: float, hidden: float, sense: str = "gaps") -> Any:
    training = {"protocol": "sequence", "size": {"epochs": 4}, "folds": 1, "seed": 0}
    conditions = {"intact": {"r2": intact, "mae": 0.0}, "hide": {"r2": hidden, "mae": 0.0}}
    return {
        "task": "synthetic-decay", "model": model, "fold": 0, "repeat": repeat, "time_sense": sense, "tests": 10,
        "conditions": conditions, "trained": {"config": training},
    }  # fmt: skip


def test_what_is_not_shown_is_not_said() -> None:
    cases = {
        "a": ([0.9, 0.91, 0.92], [0.5, 0.52, 0.51], "gaps"),
        "b": ([0.9, 0.91, 0.92], [0.5, 0.95, 0.91], "gaps"),
        "c": ([0.8, 0.7, 0.9], [0.8, 0.7, 0.9], "none"),
        "d": ([0.5, 0.52, 0.51], [0.9, 0.91, 0.92], "gaps"),
        "e": ([0.9], [0.1], "gaps"),
    }
    rows = [
        result(model, repeat, *scores, sense)
        for model, (intact, hidden, sense) in cases.items()
        for repeat, scores in enumerate(zip(intact, hidden, strict=True))
    ]
    found = next(part for part in tables(rows) if part.metric.key == "r2")
    said = {model: verdict(found, model) for model in cases}
    wanted = {"a": "uses time", "b": "not shown", "c": "feels no time", "d": "better without", "e": "not shown"}
    assert said == wanted
    assert change_text(found.change("c", HIDDEN), 2) == "0, exactly"
    assert change_text(found.change("e", HIDDEN), 2) == "-0.80, not shown"


def test_trainings_by_other_settings_stand_in_tables_of_their_own() -> None:
    rows = [result("lstm", repeat, 0.9, 0.8) for repeat in range(2)]
    wide = [result("lstm", repeat, 0.5, 0.4) for repeat in range(2)]
    for row in wide:
        row["trained"]["config"] |= {"learning_rates": [0.01, 0.001], "parameters": 20000, "folds": 2}
    parts = [part for part in tables(rows + wide) if part.metric.key == "r2"]
    assert [part.scores["lstm"]["intact"] for part in parts] == [{(0, 0): 0.9, (0, 1): 0.9}, {(0, 0): 0.5, (0, 1): 0.5}]
    chosen = "epochs 4, learning rate chosen among 0.01, 0.001, about 20,000 parameters, folds 2, split of seed 0"
    assert [part.size for part in parts] == ["epochs 4, folds 1, split of seed 0", chosen]


def test_mistakes_are_told(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="name the runs"):
        RobustnessConfig(data=())
    with pytest.raises(UserError, match="--most-tests is -1"):
        RobustnessConfig(data=(run,), most_tests=-1)
    out = tmp_path / "out"
    with pytest.raises(UserError, match=r"holds no results\.jsonl"):
        robustness(RobustnessConfig(data=(tmp_path,), out=out))
    rows = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    alone = tmp_path / "alone"
    for change, sentence in (
        ({}, "model.pt is not there"),
        ({"made_up": ["synthetic-since"]}, "its data were made up"),
        ({"task": "pronostia"}, "an answer for every step"),
        ({"status": "failed", "kind": "error"}, "no trained model to test"),
    ):
        alone.mkdir(exist_ok=True)
        (alone / "results.jsonl").write_text(json.dumps(rows[0] | change) + "\n")
        with pytest.raises(UserError, match=sentence):
            robustness(RobustnessConfig(data=(alone,), out=out))
        assert not out.exists()  # nothing half-written
    with pytest.raises(UserError, match="did you mean 'gru'"):
        robustness(RobustnessConfig(data=(run,), models=("gruu",), out=out))
    with pytest.raises(UserError, match="no trained model to test"):
        robustness(RobustnessConfig(data=(run,), models=("lstm",), out=out))


@pytest.mark.parametrize(
    ("overwrite", "sentence"),
    [(True, "is read here, and --overwrite would delete it"), (False, "holds another kind of result")],
)
def test_the_runs_that_are_tested_are_no_place_for_the_result(
    run: Path, tmp_path: Path, overwrite: bool, sentence: str
) -> None:
    run = shutil.copytree(run, tmp_path / "run")
    (run / "run.json").write_text("{}")
    (run / ".nacdrive-result").write_text("".join(f'"{path.relative_to(run)}"\n' for path in run.rglob("*")))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=sentence):
        robustness(RobustnessConfig(data=(run,), out=run, overwrite=overwrite))
    release_folders()
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
