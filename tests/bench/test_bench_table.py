"""The grid of models, tasks and folds: complete, resumable, and no failure stops it."""

import csv
import dataclasses
import importlib.util
import json
import os

import pytest
import torch

from nacdrive.bench import paper
from nacdrive.bench.cell import kind_of, run_cell
from nacdrive.bench.config import TableConfig
from nacdrive.bench.grid import compute, finished, left_out, plan, rest_of_smoke
from nacdrive.bench.tables import entries, write_tables
from nacdrive.common.errors import UserError

torch.set_num_threads(1)
QUIET = (lambda cell, news: None, lambda cell, result: None)


@pytest.fixture
def config(tmp_path):
    return TableConfig(
        tasks=("emnist",), models=("lstm", "gru"), folds=2, most=40, references=False,
        data=tmp_path, out=tmp_path / "out", workers=2,
    )  # fmt: skip


def test_a_grid_is_computed_once_and_then_only_read(config):
    grid = plan(config)
    assert [cell.key for cell in grid.cells] == ["emnist/lstm/0", "emnist/gru/0", "emnist/lstm/1", "emnist/gru/1"]
    results = compute(grid, config, *QUIET)
    assert all(row["status"] == "done" for row in results.values())
    again = dataclasses.replace(config, resume=True, models=("lstm",))
    begun = []
    compute(plan(again), again, lambda cell, news: begun.append(cell.key), QUIET[1])
    assert not begun
    # Cells of models that are no longer asked for are kept.
    assert set(finished(config.folder)) == set(results)
    row = results["emnist/gru/1"]
    assert row["record"]["config"]["seed"] == 0
    assert row["record"]["versions"]["torch"]
    assert row["made_up"] == ["emnist"]
    assert (config.folder / "cells/emnist-gru-1/model.pt").is_file()


def test_the_same_seed_gives_the_same_number(config):
    results = compute(plan(config), config, *QUIET)
    other = dataclasses.replace(config, out=config.folder / "other", models=("gru",))
    again = compute(plan(other), other, *QUIET)
    assert again["emnist/gru/0"]["scores"] == results["emnist/gru/0"]["scores"]


def test_a_failed_cell_is_reported_and_stops_nothing(config):
    grid = plan(config)
    broken = dataclasses.replace(grid.cells[0], data_dirs={"emnist": config.folder / "nowhere"})
    cells = [broken, grid.cells[1], grid.cells[3]]
    results = compute(dataclasses.replace(grid, cells=cells), config, *QUIET)
    bad = results["emnist/lstm/0"]
    assert (bad["status"], bad["kind"]) == ("failed", "error")
    assert "lacks train-images" in bad["reason"]
    write_tables(config.folder, list(results.values()), config, "command")
    assert "1 of 1 trainings failed: error" in (config.folder / "table.md").read_text()
    # It is tried again when the run is resumed.
    again = dataclasses.replace(config, resume=True)
    assert compute(plan(again), again, *QUIET)["emnist/lstm/0"]["status"] == "done"


def test_a_process_that_dies_is_a_failed_cell(config):
    grid = plan(config)
    # Ends the process when the cell's data are read: an exit without a word.
    fatal = dataclasses.replace(grid.cells[0], data_dirs=Suicide())
    rows = compute(dataclasses.replace(grid, cells=[fatal, grid.cells[1]]), config, *QUIET)
    assert "exit code 3" in rows["emnist/lstm/0"]["reason"]
    assert rows["emnist/gru/0"]["status"] == "done"


class Suicide(dict):
    def __getitem__(self, key):
        os._exit(3)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UserError("the loss is no longer a finite number at ..."), "not finite"),
        (torch.OutOfMemoryError("CUDA"), "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"), "memory"),
        (KeyError("x"), "error"),
    ],
)
def test_failures_are_told_apart(error, kind):
    assert kind_of(error) == kind


def test_answers_that_are_not_finite_fail_the_cell(config, monkeypatch):
    monkeypatch.setattr("nacdrive.bench.cell.outputs", lambda *a, **k: [torch.full((10,), torch.nan)])
    result = run_cell(plan(config).cells[0])
    assert (result["status"], result["kind"]) == ("failed", "not finite")


def test_tables_hold_the_papers_number_beside_ours(config):
    config = dataclasses.replace(config, models=("gru",))
    results = list(compute(plan(config), config, *QUIET).values())
    found = write_tables(config.folder, results, config, "the command")
    assert [(e.task, e.model, e.done, e.failed) for e in found] == [("emnist", "gru", 2, ())]
    text = (config.folder / "table.md").read_text()
    assert "95.85 ± 0.22" in text
    assert "MADE-UP DATA, not a result" in text
    assert "the command" in text
    with (config.folder / "table.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["made_up"], row["paper_mean"]) == ("True", "95.85")
    assert float(row["mean"]) == found[0].values["accuracy"][0]
    assert r"(95.85 $\pm$ 0.22)" in (config.folder / "table.tex").read_text()


def test_a_run_with_other_options_is_not_mixed_in(config):
    plan(config)
    with pytest.raises(UserError, match="--most 40 instead of 41"):
        plan(dataclasses.replace(config, most=41, resume=True))
    with pytest.raises(UserError, match="already holds a result"):
        plan(config)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"models": ("lsmt",)}, "did you mean 'lstm'"),
        ({"tasks": ("emnits",)}, "did you mean 'emnist'"),
        ({"budget": "cpu"}, "there are no data in .*mnist"),
        ({"device": "tpu"}, "device"),
    ],
)
def test_mistakes_are_told_before_anything_is_computed(config, change, sentence):
    with pytest.raises(UserError, match=sentence):
        plan(dataclasses.replace(config, **change))


def test_a_cut_last_line_of_the_results_is_computed_again(config):
    config = dataclasses.replace(config, models=("gru",))
    compute(plan(config), config, *QUIET)
    path = config.folder / "results.jsonl"
    path.write_text(path.read_text()[:-50])
    again = dataclasses.replace(config, resume=True)
    assert len(compute(plan(again), again, *QUIET)) == 2
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_task_that_a_protocol_lacks_is_named_with_the_reason():
    (line,) = left_out(TableConfig()).values()
    assert line.startswith("hust: only under --protocol paper. Nothing in HUST runs to failure")
    assert left_out(TableConfig(protocol="paper")) == left_out(TableConfig(tasks=("par",))) == {}
    rest = rest_of_smoke(TableConfig())
    assert rest is not None
    assert (rest.tasks, rest.protocol, rest.folder) == (("hust",), "paper", TableConfig().folder / "paper")
    assert rest_of_smoke(TableConfig(budget="cpu")) is rest_of_smoke(rest) is None


def test_the_papers_table_is_whole():
    assert len(paper.names()) == 33
    assert paper.printed("emnist", "nac-pw") == paper.Printed(96.64, 0.12)
    assert paper.printed("hust", "ltc") == paper.Printed(61.82, 15.64)
    assert paper.printed("udacity", "nac-32k") == paper.Printed(0.017, 0.0007)
    assert paper.runtime("nac-pw") == (0.117, 5042.09)
    assert paper.in_order(["nac-exact", "other", "rnn"]) == ["rnn", "nac-exact", "other"]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_cells_run_on_a_local_ray_cluster(config, monkeypatch):
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    config = dataclasses.replace(config, models=("gru",), ray="local")
    grid = plan(config)
    broken = dataclasses.replace(grid.cells[1], data_dirs={"emnist": config.folder / "nowhere"})
    results = compute(dataclasses.replace(grid, cells=[grid.cells[0], broken]), config, *QUIET)
    assert results["emnist/gru/0"]["status"] == "done"
    assert "lacks train-images" in results["emnist/gru/1"]["reason"]
    assert [e.done for e in entries(list(results.values()), config)] == [1]


@pytest.mark.slow
def test_a_policy_of_the_bench_drives_the_tracks_it_is_asked_to(tmp_path):
    config = TableConfig(
        tasks=("carracing",), models=("dense",), most=60, drive=1, references=False, data=tmp_path, out=tmp_path / "out"
    )
    (result,) = compute(plan(config), config, *QUIET).values()
    assert result["status"] == "done", result
    scores = result["scores"]["carracing"]
    assert -100 <= scores["return"] <= 950
    assert scores["expert_fraction"] < 1.2
    (entry,) = write_tables(config.folder, [result], config, "command")
    assert "return" in entry.values
