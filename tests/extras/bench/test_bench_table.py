"""The grid of models, tasks and folds: complete, resumable, and no failure stops it."""

import csv
import dataclasses
import importlib.util
import json
import math
import os
import re
import shutil
import sys
from pathlib import Path
from statistics import fmean, stdev

import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.extras.bench import cell as cell_module
from nacdrive.extras.bench import paper
from nacdrive.extras.bench.cell import failed_with, run_cell, set_width
from nacdrive.extras.bench.config import TableConfig
from nacdrive.extras.bench.grid import compute, finished, left_out, plan, rest_of_smoke
from nacdrive.extras.bench.report import sections
from nacdrive.extras.bench.tables import Entry, entries, latex, markdown, statistics_of, write_tables
from nacdrive.rollout.evaluate import claim, identify
from nacdrive.tasks import load_task
from nacdrive.tasks.registry import PAPER_TASKS

torch.set_num_threads(1)
HERE = Path(__file__).parent
QUIET = (lambda cell, news: None, lambda cell, result: None)


@pytest.fixture
def config(tmp_path):
    return TableConfig(
        tasks=("emnist",), models=("lstm", "gru"), folds=2, most=40, references=False,
        data=tmp_path, out=tmp_path / "out", workers=2,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A grid that was computed once, and its results; nobody writes there."""
    folder = tmp_path_factory.mktemp("grid")
    config = TableConfig(
        tasks=("emnist",), models=("lstm", "gru"), folds=2, most=40, references=False,
        data=folder, out=folder / "out", workers=2,
    )  # fmt: skip
    grid = plan(config)
    assert [cell.key for cell in grid.cells] == ["emnist/lstm/0", "emnist/gru/0", "emnist/lstm/1", "emnist/gru/1"]
    return config, compute(grid, config, *QUIET)


@pytest.fixture
def computed(run, tmp_path):
    """A copy of that grid to go on with."""
    config, results = run
    shutil.copytree(config.folder, tmp_path / "out")
    return dataclasses.replace(config, out=tmp_path / "out"), results


def test_a_grid_is_computed_once_and_then_only_read(computed):
    config, results = computed
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


def test_the_same_seed_gives_the_same_number(run, tmp_path):
    config, results = run
    other = dataclasses.replace(config, out=tmp_path / "other", models=("gru",))
    grid = plan(other)
    again = compute(dataclasses.replace(grid, cells=grid.cells[:1]), other, *QUIET)
    assert again["emnist/gru/0"]["scores"] == results["emnist/gru/0"]["scores"]


def test_a_failed_cell_is_reported_and_stops_nothing(config):
    grid = plan(config)
    broken = dataclasses.replace(grid.cells[0], data_dirs={"emnist": config.folder / "nowhere"})
    cells = [broken, grid.cells[1]]
    results = compute(dataclasses.replace(grid, cells=cells), config, *QUIET)
    bad = results["emnist/lstm/0"]
    assert (bad["status"], bad["kind"]) == ("failed", "error")
    assert "lacks train-images" in bad["reason"]
    write_tables(config.folder, list(results.values()), config, "command")
    assert "1 of 1 trainings failed: error" in (config.folder / "table.md").read_text()
    # It is tried again when the run is resumed.
    again = dataclasses.replace(config, resume=True)
    once_more = dataclasses.replace(plan(again), cells=grid.cells[:1])
    assert compute(once_more, again, *QUIET)["emnist/lstm/0"]["status"] == "done"


def test_a_table_of_failures_alone_ends_with_another_exit_code(config, monkeypatch, capsys):
    from nacdrive.extras.bench import grid as grid_module
    from nacdrive.extras.bench.verb import table

    def without_data(config):
        made = plan(config)
        constants, model, *_ = made.cells
        cells = [constants, dataclasses.replace(model, data_dirs={"emnist": config.folder / "nowhere"})]
        return dataclasses.replace(made, cells=cells)

    monkeypatch.setattr(grid_module, "plan", without_data)
    assert table(dataclasses.replace(config, references=True))[0] == 1
    assert "every model has failed; the reasons are above" in capsys.readouterr().err


def test_folds_that_a_task_has_not_are_told(config):
    from nacdrive.extras.bench.verb import fewer_folds

    cells = plan(config).cells
    assert fewer_folds(cells, 0) == fewer_folds(cells, 2) == []
    assert fewer_folds(cells, 3) == ["emnist has 2 folds and no more, and --folds is 3"]


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
    assert failed_with(error)[0] == kind


def test_answers_that_are_not_finite_fail_the_cell(config, monkeypatch):
    monkeypatch.setattr("nacdrive.extras.bench.cell.outputs", lambda *a, **k: [torch.full((10,), torch.nan)])
    result = run_cell(plan(config).cells[0])
    assert (result["status"], result["kind"]) == ("failed", "not finite")


def test_tables_hold_the_papers_number_beside_ours(computed):
    config = dataclasses.replace(computed[0], models=("gru",))
    results = [row for row in computed[1].values() if row["model"] == "gru"]
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


def test_a_table_does_not_go_on_in_an_evaluation(config):
    config.folder.mkdir(parents=True, exist_ok=True)
    for name in (".nacdrive-result", "evaluation.json"):
        (config.folder / name).write_text('"evaluation.json"\n')
    with pytest.raises(UserError, match=r"another kind of result \(no run\.json is in it\)"):
        plan(dataclasses.replace(config, resume=True))
    assert len(list(config.folder.glob("*.json"))) == 1


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


def test_the_first_cell_of_a_layer_chooses_the_learning_rate_of_its_others(config):
    config = dataclasses.replace(config, models=("gru",), learning_rates=(1e-6, 1e-3), workers=1, most=100, epochs=2)
    grid = plan(config)
    assert [cell.chooses for cell in grid.cells] == [True, False]
    results = compute(grid, config, *QUIET)
    rates = [row["fit"]["learning_rate"] for row in results.values()]
    # A millionth learns nothing.
    assert rates == [1e-3, 1e-3]
    folder = config.folder / "cells/emnist-gru-0"
    losses = {
        rate: json.loads((folder / f"rate-{rate}/metrics.jsonl").read_text().splitlines()[-1])["valid_loss"]
        for rate in ("1e-06", "0.001")
    }
    assert losses["0.001"] < losses["1e-06"]
    (section,) = sections([row | {"made_up": []} for row in results.values()])
    assert "learning rate chosen among 1e-06, 0.001" in section.title


def test_a_rate_that_diverges_is_none_to_choose_and_fails_where_it_is_alone(config, monkeypatch):
    def diverging(network, task, train, valid, fit_config, *arguments, **options):
        if fit_config.learning_rate > 0.1:
            raise UserError("the loss is no longer a finite number at ...")
        return fit(network, task, train, valid, fit_config, *arguments, **options)

    fit = cell_module.fit
    monkeypatch.setattr(cell_module, "fit", diverging)
    config = dataclasses.replace(config, models=("gru",), workers=1, most=100, epochs=1)
    for rates, status in (((1.0, 1e-3), "done"), ((1e-3, 1.0), "done"), ((0.9, 1.0), "failed")):
        some = dataclasses.replace(config, learning_rates=rates, overwrite=True)
        cell = next(cell for cell in plan(some).cells if cell.chooses)
        result = run_cell(cell)
        assert result["status"] == status and (status == "failed" or result["fit"]["learning_rate"] == 1e-3)


def test_a_layer_gets_the_width_that_has_so_many_parameters(config):
    config = dataclasses.replace(config, models=("gru", "mha-lag"), parameters=60_000, folds=1)
    results = [run_cell(cell) for cell in plan(config).cells]
    assert [row["status"] for row in results] == ["done", "done"]
    assert all(abs(row["parameters"] / 60_000 - 1) < 0.1 for row in results)
    (section,) = sections([row | {"made_up": []} for row in results])
    assert "about 60,000 parameters" in section.title


def test_a_layer_without_heads_has_any_width_and_a_row_says_where_none_fits(config):
    task, cell = load_task("emnist"), plan(config).cells[0]
    fold = task.folds(cell.data_dirs, 2, 0, cell.size)[0]

    def error(model, width):
        task.d_model = width
        return abs(sum(p.numel() for p in task.network(model, fold.train).parameters()) - 60_000)

    # contiformer-linear has two features a head at least, which the least width lacks.
    for model, step in (("gru", 1), ("mha", task.num_heads), ("cfc", 1), ("contiformer-linear", task.num_heads)):
        set_width(task, dataclasses.replace(cell, model=model, parameters=60_000), fold)
        best = task.d_model
        assert best % step == 0
        assert error(model, best) <= min(error(model, best + step), error(model, best - step))
    config = dataclasses.replace(config, parameters=9_000)
    counts = {"gru": 9_901, "s4": 9_900}
    rows = [Entry("emnist", name, 1, 1, (), {}, count, 1.0, made_up=False) for name, count in counts.items()]
    shown = markdown(rows, config, "command")
    assert "| 9,901 (no width within 10 %) |" in shown and "| 9,900 |" in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tasks": ("emnist", "carracing"), "parameters": 9_000}, "the network of carracing has no width to choose"),
        (
            {"tasks": ("pronostia",), "learning_rates": (1e-3, 1e-2)},
            "pronostia has no validation part to choose --learning-rates by",
        ),
        ({"models": ("nac-lag-lag",)}, "there is no 'nac-lag-lag': 'nac-lag' has its lags already"),
    ],
)
def test_what_no_cell_could_do_is_refused_before_any(config, options, words):
    with pytest.raises(UserError, match=words):
        plan(dataclasses.replace(config, **options))


def test_a_cut_last_line_of_the_results_is_computed_again(computed):
    config = computed[0]
    path = config.folder / "results.jsonl"
    path.write_text(path.read_text()[:-50])
    again = dataclasses.replace(config, resume=True)
    assert len(compute(plan(again), again, *QUIET)) == 4
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_task_that_a_protocol_lacks_is_named_with_the_reason():
    (line,) = left_out(TableConfig()).values()
    assert line.startswith("hust: only under --protocol paper. Nothing in HUST runs to failure")
    assert left_out(TableConfig(protocol="paper")) == left_out(TableConfig(tasks=("par",))) == {}
    rest = rest_of_smoke(TableConfig())
    assert rest is not None
    assert (rest.tasks, rest.protocol, rest.folder) == (("hust",), "paper", TableConfig().folder / "paper")
    assert rest_of_smoke(TableConfig(budget="cpu")) is rest_of_smoke(rest) is None


def test_every_number_of_the_paper_is_as_it_prints_it():
    # The lines of its text, in which mean and deviation stand without a sign between them.
    lines = [line for line in (HERE / "paper_table1.txt").read_text().splitlines() if line.strip()]
    tasks = ["emnist", "par", "carracing", "udacity", "pronostia", "xjtu-sy", "hust"]
    assert len(lines) == len(paper.names()) == 33
    for line, (model, name) in zip(lines, paper.names().items(), strict=True):
        printed, *numbers = [cell.strip() for cell in line.strip("|").split("|")]
        assert name.startswith(printed)
        for task, number in zip(tasks, numbers, strict=True):
            digits = 4 if task == "udacity" else 2
            mean, std = re.fullmatch(rf"(\d+\.\d{{{digits}}})\s*(\d+\.\d{{{digits}}})", number).groups()
            assert paper.printed(task, model) == (float(mean), float(std)), (task, model)
    assert paper.printed("emnist", "contiformer-linear") is None
    assert paper.in_order(["nac-exact", "other", "rnn"]) == ["rnn", "nac-exact", "other"]


def test_the_notebooks_other_means_stand_beside_the_tables():
    said = {task: " ".join(paper.remarks(task)) for task in PAPER_TASKS}
    assert "GRU-ODE 39.11 (45.11 in the table), CTA 35.16 (39.16 in the table)" in said["pronostia"]
    assert "GRU 31.86 (41.86 in the table)" in said["hust"]
    assert sum(text.count("in the table)") for text in said.values()) == 6
    assert paper.remarks("emnist") == []


@pytest.mark.parametrize("protocol", ["paper", "scripts"])
def test_a_column_at_one_step_says_that_it_compares_heads(config, protocol):
    config = dataclasses.replace(config, tasks=("par",), protocol=protocol)
    rows = [
        {"task": "par", "asked": ["par"], "model": "nac-constant", "status": "failed", "kind": "error", "made_up": []}
    ]
    text = markdown(entries(rows, config), config, "command")
    assert "At T = 1 a column compares heads, not attention" in text
    assert "`nac-constant`: NAC as the authors' code computes it" in text
    assert ("where it contradicts Table 4: epochs 100." in text) == (protocol == "scripts")
    assert not [line for task in PAPER_TASKS for line in paper.remarks(task) if "T = 1" in line]


def test_every_runtime_of_the_paper_is_as_it_prints_it():
    by_name = {}
    for line in (HERE / "paper_runtime.txt").read_text().splitlines():
        printed, throughput, memory = [cell.strip() for cell in line.strip("|").split("|")][:3]
        by_name.setdefault(printed, []).append((float(throughput), float(memory)))
    for model, name in paper.names().items():
        numbers = by_name.pop(name, None) or by_name["NAC-"][:1]
        # Both of "NAC-phi" have lost their letter in the text.
        if name.startswith("NAC-phi"):
            numbers = [by_name["NAC-"].pop(0)]
        assert paper.runtime(model) == numbers[0], model


def test_folds_come_before_models_so_that_half_a_run_is_a_table(config):
    grid = plan(dataclasses.replace(config, seeds=2, references=True))
    assert [cell.key for cell in grid.cells] == [
        "emnist/references/0", "emnist/lstm/0", "emnist/gru/0",
        "emnist/references/1", "emnist/lstm/1", "emnist/gru/1",
        "emnist/lstm/0/1", "emnist/gru/0/1", "emnist/lstm/1/1", "emnist/gru/1/1",
    ]  # fmt: skip
    assert len({cell.fit_seed for cell in grid.cells if cell.model == "gru"}) == 4
    assert len({cell.folder for cell in grid.cells}) == 10


def test_seeds_train_anew_on_the_same_fold_and_the_table_tells_how_far_they_differ(config):
    config = dataclasses.replace(config, models=("gru",), folds=1, seeds=3, references=True, workers=1)
    results = list(compute(plan(config), config, *QUIET).values())
    trained = [row for row in results if row["model"] == "gru"]
    assert len({row["train_sequences"] for row in trained}) == 1
    assert len({row["fit"]["seed"] for row in trained}) == 3
    scores = [row["scores"]["emnist"]["accuracy"] for row in trained]
    gru, constant = write_tables(config.folder, results, config, "command")
    assert (gru.done, gru.folds) == (3, 1)
    assert gru.values["accuracy"] == (pytest.approx(fmean(scores)), None, pytest.approx(stdev(scores)))
    text = (config.folder / "table.md").read_text()
    assert f"{fmean(scores):.2f} (± {stdev(scores):.2f})" in text
    # What is no model stands in the table too, made by the same command.
    assert (constant.model, constant.reference, constant.parameters) == ("most frequent class", True, 0)
    assert "| *most frequent class* |" in text
    # More seeds are added to a run that is there.
    more = dataclasses.replace(config, seeds=4, resume=True)
    begun = []
    compute(plan(more), more, lambda cell, news: begun.append(cell.key), QUIET[1])
    assert set(begun) == {"emnist/gru/0/3"}


def test_deviations_are_those_of_samples_over_folds_and_over_seeds():
    stat = statistics_of([[1.0, 3.0], [5.0, 9.0]])
    assert stat == (4.5, pytest.approx(stdev([2.0, 7.0])), pytest.approx(math.sqrt((2.0 + 8.0) / 2)))
    assert statistics_of([[1.0]]) == (1.0, None, None)


def test_a_row_says_on_which_code_and_machine_it_was_made(config):
    record = run_cell(plan(config).cells[0])["record"]
    checkout = (HERE.parents[2] / ".git").exists()
    assert re.fullmatch(r"[0-9a-f]{40}\+?" if checkout else "None", str(record["commit"]))
    assert record["processor"]
    assert record["threads"] == 1
    assert record["load"] >= 0
    assert record["instructions"]


def test_latex_says_what_the_papers_numbers_beside_ours_are(computed):
    config = dataclasses.replace(computed[0], models=("gru",))
    results = [row for row in computed[1].values() if row["model"] == "gru"]
    write_tables(config.folder, results, config, "command")
    assert "which is another question" in (config.folder / "table.tex").read_text()
    paper_protocol = dataclasses.replace(config, protocol="paper")
    assert "another question" not in latex(entries(results, paper_protocol), paper_protocol)


@pytest.mark.nightly
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


def test_a_table_is_not_resumed_on_recordings_that_have_changed(tmp_path):
    recording = shutil.copytree(shipped("recordings") / "carracing-sample", tmp_path / "carracing")
    config = TableConfig(
        tasks=("carracing",), models=("dense",), most=20, references=False, data=tmp_path, out=tmp_path / "out"
    )
    plan(config)
    again = dataclasses.replace(config, resume=True)
    # Other tasks may come to it.
    plan(dataclasses.replace(again, tasks=("carracing", "synthetic-decay")))
    plan(again)
    manifest = json.loads((recording / "recording.json").read_text())
    # Another episode in the place of one; of as few as these none can be missing.
    other = recording / "episode-3999999.parquet"
    (recording / manifest["episodes"][0]["file"]).rename(other)
    manifest["episodes"][0]["file"] = other.name
    (recording / "recording.json").write_text(json.dumps(manifest))
    with pytest.raises(
        UserError, match=r"out was begun with other data of carracing, all of it: .* another --out, or --overwrite"
    ):
        plan(again)


def test_a_cell_that_was_stopped_in_its_drives_goes_on_with_them(tmp_path, monkeypatch):
    config = TableConfig(
        tasks=("carracing",), models=("dense",), most=20, drive=1, references=False, data=tmp_path, out=tmp_path / "out"
    )
    (cell,) = plan(config).cells[:1]
    begun = []

    def evaluate(drive, seeds, out, **options):
        out.mkdir(exist_ok=True)
        claim(out / "evaluation.json", identify(drive))
        begun.append(drive.checksum)
        if len(begun) == 1:
            raise KeyboardInterrupt
        return {"return": {"mean": 5.0}, "expert_fraction": None}

    monkeypatch.setattr("nacdrive.extras.bench.cell.evaluate", evaluate)
    with pytest.raises(KeyboardInterrupt):
        run_cell(cell)
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--resume"])
    result = run_cell(cell)
    assert result["status"] == "done", result["reason"]
    assert result["scores"]["carracing"]["return"] == 5 and begun[0] == begun[1]


@pytest.mark.nightly
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
