"""Options of a bench, the cells that they make, and the time of one pass."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nacdrive.extras.bench import cell as cell_module
from nacdrive.extras.bench.cell import Cell, cell_folder, compute_cell, fit_config, peak_mib
from nacdrive.extras.bench.config import PlanConfig, RobustnessConfig, RunConfig, RuntimeConfig, TableConfig
from nacdrive.extras.bench.grid import complete, read_cells, row_problem, size, with_rate
from nacdrive.extras.bench.runtime import cells as runtime_cells
from nacdrive.extras.bench.runtime import markdown as runtime_markdown
from nacdrive.extras.bench.runtime import timed
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Size
from tests.helpers.bench_results import CONFIG, done


def test_a_layers_time_stands_in_milliseconds_beside_the_papers() -> None:
    row = {"model": "mha", "device": "cpu", "status": "done", "time_s": 0.0123, "time_std_s": 0.001,
           "throughput_per_s": 81.3, "peak_mib": 2.25, "parameters": 12_345}  # fmt: skip
    assert list(runtime_cells(row)) == ["mha", "12.30 ± 1.00", "81.3", "2.2", "12,345", "243.9", "69.05"]
    assert list(runtime_cells(row | {"model": "own:L", "peak_mib": None}))[3:] == ["-", "12,345", "-", "-"]
    failed = {"model": "mha", "device": "cuda", "status": "failed", "kind": "memory"}
    assert list(runtime_cells(failed)) == ["mha", "failed (memory)", "-", "-", "-", "243.9", "69.05"]
    shown = runtime_markdown([row, failed, row], RuntimeConfig(), "the command")
    assert shown.startswith("10 forward passes after one to warm up: 1024 steps, 64 features, 4 heads, batch 1, ")
    assert shown.count("### cpu") == shown.count("### cuda") == 1 and shown.count("| mha |") == 3
    assert shown.endswith("|\n") and "Command: `the command`." in shown


def test_a_pass_takes_as_long_as_it_takes() -> None:
    began = time.perf_counter()
    assert 0.01 <= timed(lambda: time.sleep(0.01), "cpu") <= time.perf_counter() - began


def test_a_bench_without_options_is_a_small_one() -> None:
    config = TableConfig()
    assert (config.budget, config.protocol, config.folder) == ("smoke", "sequence", Path("runs/bench-sequence-smoke"))
    assert (config.seeds, config.references, config.fold_count, config.learning_rates) == (1, True, 1, ())
    assert [TableConfig(budget=budget).fold_count for budget in ("cpu", "full")] == [1, 5]
    assert TableConfig(folds=3, budget="full").fold_count == 3
    assert (config.epochs, config.parameters, config.drive, config.models, config.tasks) == (0, 0, 0, (), ())
    assert TableConfig(workers=3).parallel == 3 and TableConfig(device="cuda:0").parallel == 1
    assert RunConfig().hours == 1 and RunConfig().resume and not RunConfig(overwrite=True).resume
    assert PlanConfig().costs == () and RobustnessConfig(data=(Path("a"),)).most_tests == 0
    runtime = RuntimeConfig()
    assert (runtime.steps, runtime.features, runtime.heads, runtime.passes) == (1024, 64, 4, 10)
    assert (runtime.threads, runtime.batch_size, runtime.devices) == (1, 1, ("cpu",))


def test_what_is_given_takes_the_place_of_the_budget() -> None:
    usual = load_task("emnist").sizes["cpu"]
    assert size(TableConfig(budget="cpu"), "emnist") == usual
    given = size(TableConfig(budget="cpu", epochs=3, most=9, drive=2), "emnist")
    assert given == dataclasses.replace(usual, epochs=3, max_samples=9, drive=2)


def cell_of(**more: Any) -> Cell:
    common: dict[str, Any] = {"task": "emnist", "tasks": ("emnist",), "model": "gru", "fold": 0, "folds": 2}
    common |= {"protocol": "sequence", "size": Size(2), "seed": 5, "device": "cpu", "data_dirs": {}, "folder": Path()}
    return Cell(**common | more)


def test_every_training_has_a_seed_and_a_name_of_its_own() -> None:
    cells = [cell_of(fold=fold, repeat=repeat) for repeat in range(2) for fold in range(2)]
    assert [cell.fit_seed for cell in cells] == [5, 6, 1005, 1006]
    assert [cell.key for cell in cells] == ["emnist/gru/0", "emnist/gru/1", "emnist/gru/0/1", "emnist/gru/1/1"]
    assert cell_folder(Path("run"), "my:Task/gru/0") == Path("run/cells/my-Task-gru-0")
    rates = [dataclasses.replace(cell, learning_rates=(0.1, 0.01)) for cell in cells]
    assert [cell.chooses for cell in rates] == [True, False, False, False] and not cells[0].chooses
    chosen = {"emnist/gru/0": {"fit": {"learning_rate": 0.01}}}
    assert [with_rate(cell, chosen).learning_rate for cell in rates] == [None, 0.01, 0.01, 0.01]
    assert with_rate(rates[1], {}).learning_rate is None and with_rate(cells[1], chosen).learning_rate is None
    # Of a cell that was trained before the choice, for the one that chooses had failed, nothing stays.
    known = {"status": "done", "asked": ["emnist"], "fit": {"learning_rate": 0.003}}
    assert complete(with_rate(rates[1], {}), known) and not complete(with_rate(rates[1], chosen), known)
    assert complete(with_rate(rates[0], chosen), known) and not complete(rates[0], None)


def test_a_budget_never_lengthens_a_training() -> None:
    task = load_task("emnist")
    usual = task.settings["epochs"]
    assert fit_config(task, cell_of()).epochs == 2 and fit_config(task, cell_of()).seed == 5
    assert fit_config(task, cell_of(size=Size())).epochs == fit_config(task, cell_of(size=Size(10**6))).epochs == usual


def test_a_cell_under_way_reports_what_share_of_its_steps_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    news: list[dict[str, Any]] = []
    monkeypatch.setattr(cell_module, "report", news.append)
    update = SimpleNamespace(steps=10, epochs=4, train_loss=0.5, progress=SimpleNamespace(epoch=2, step=3))

    def trained(cell: Cell, on_step: Any) -> dict[str, Any]:
        # The second follows at once, and is no news yet.
        on_step(update)
        on_step(update)
        return {"status": "done"}

    monkeypatch.setattr(cell_module, "run_cell", trained)
    assert compute_cell(cell_of()) == {"status": "done"}
    assert news == [{"state": "reading"}, {"state": "training", "done": 23, "total": 40, "loss": 0.5}]


def test_a_process_knows_how_much_memory_it_has_had() -> None:
    here = peak_mib()
    assert here is None or 50 < here < 100_000


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"repeat": "x"}, "repeat missing or of another type"),
        ({"scores": 3, "record": None}, "scores, record missing or of another type"),
        ({"record": {"config": CONFIG | {"protocol": "x"}}}, "there is no protocol 'x'"),
        ({"record": {"config": {"protocol": "paper"}}}, "it does not say how it was made"),
        ({"scores": {"emnist": 3}}, "a score is no number"),
        ({"fold": None}, "fold missing or of another type"),
        ({"scores": {"emnist": {"a": 1, "b": [1]}}}, None),
        ({"model": "references"}, "references missing or of another type"),
        ({"model": "references", "references": {}}, None),
        ({"model": "references", "status": "failed", "kind": "error"}, None),
        ({"status": "x" * 50}, f"its status is {'x' * 40!r}"),
    ],
)
def test_a_row_of_results_is_whole_or_says_what_it_lacks(
    change: dict[str, Any], problem: str | None, tmp_path: Path
) -> None:
    assert row_problem(done("gru", 90.0) | change) == problem
    if change == {"fold": None}:
        untrained = {name: value for name, value in done("gru", 90.0).items() if name != "epochs"}
        assert row_problem(untrained) == "epochs missing or of another type"
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(done("gru", 90.0)) + "\n")
    assert [row["key"] for row in read_cells(path)] == ["emnist/gru/0"]


def test_what_was_learnt_from_made_up_data_is_made_up_wherever_it_is_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_module, "is_synthetic", lambda folder: folder.name == "made-up")
    real, made_up = tmp_path / "real", tmp_path / "made-up"
    cells = [
        cell_of(data_dirs={"emnist": emnist, "other": other}) for emnist in (real, made_up) for other in (real, made_up)
    ]
    made = [cell_module.identity(cell)["made_up"] for cell in cells]
    assert made == [[], ["other"], ["emnist", "other"], ["emnist", "other"]]
