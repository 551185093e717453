"""What a person reads of a bench: tables, lines of progress, costs, figures; each from results worked out by hand."""

from __future__ import annotations

import csv
import dataclasses
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.progress import Progress

from nacdrive.extras.bench import cell as cell_module
from nacdrive.extras.bench import paper, report
from nacdrive.extras.bench.cell import Cell, cell_folder, compute_cell, fit_config, peak_mib
from nacdrive.extras.bench.conditions import CONDITIONS, MEANING, Condition
from nacdrive.extras.bench.config import PlanConfig, RobustnessConfig, RunConfig, RuntimeConfig, TableConfig
from nacdrive.extras.bench.cost import Cost, busy, estimate, text
from nacdrive.extras.bench.grid import read_cells, row_problem, size, with_rate
from nacdrive.extras.bench.report import compare, cost_figure, curves_figure, limits_of, sections
from nacdrive.extras.bench.robustness_tables import change_text, drop_figure, mean_text, rows_of, tables, text_of
from nacdrive.extras.bench.runtime import cells as runtime_cells
from nacdrive.extras.bench.runtime import markdown as runtime_markdown
from nacdrive.extras.bench.runtime import timed
from nacdrive.extras.bench.tables import Entry, Stat, csv_text, failures, latex, markdown, markdown_cells, number
from nacdrive.extras.bench.verb import Board, line
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Metric, Size

ACCURACY = load_task("emnist").metrics_of("emnist")[0]
SIZE = {"epochs": 8, "max_samples": None, "max_tests": None, "drive": 0}
CONFIG = {"protocol": "sequence", "size": SIZE, "folds": 1, "seed": 0}


def done(model: str, score: float, repeat: int = 0, train_s: float = 10.0, **more: Any) -> Any:
    key = f"emnist/{model}/0" + (f"/{repeat}" if repeat else "")
    return {
        "key": key, "task": "emnist", "model": model, "fold": 0, "repeat": repeat, "asked": ["emnist"], "made_up": [],
        "status": "done", "scores": {"emnist": {ACCURACY.key: score}}, "parameters": 12_345, "train_s": train_s,
        "wall_s": train_s + 1, "epochs": 8, "train_sequences": 100, "record": {"config": CONFIG},
    } | more  # fmt: skip


def reached(model: str, **more: Any) -> Entry:
    known: dict[str, Any] = {
        "task": "emnist", "model": model, "done": 3, "folds": 2, "failed": (), "made_up": False,
        "values": {ACCURACY.key: Stat(90.126, 1.234, 0.5)}, "parameters": 12_345, "train_s": 61.5,
    }  # fmt: skip
    return Entry(**known | more)


# ---------------------------------------------------------------- tables


def test_a_number_has_its_deviations_where_there_are_any() -> None:
    metric = Metric("a", "A", higher=True, digits=1)
    for stat, shown in (
        (Stat(1.25, None, None), "1.2"),
        (Stat(1.0, 0.26, None), "1.0 ± 0.3"),
        (Stat(1.0, None, 0.26), "1.0 (± 0.3)"),
        (Stat(1.0, 2.0, 3.0), "1.0 ± 2.0 (± 3.0)"),
    ):
        assert number(metric, {"a": stat}) == shown
    assert number(metric, {"b": Stat(1.0, None, None)}) == "-"


def test_failures_are_counted_and_their_kinds_named_once() -> None:
    assert failures(reached("gru")) == ""
    failed = reached("gru", failed=("memory", "error", "memory"))
    assert failures(failed) == "3 of 6 trainings failed: error, memory"
    cells = markdown_cells(failed, [ACCURACY])
    assert cells[0] == "gru" and cells[3:] == ["3 (3 of 6 trainings failed: error, memory)", "12,345", "62"]


def test_a_reference_is_in_italics_and_what_nobody_measured_a_dash() -> None:
    cells = markdown_cells(reached("always 0", reference=True, parameters=None, train_s=None, values={}), [ACCURACY])
    assert cells == ["*always 0*", "-", "-", "3", "-", "-"]


@pytest.mark.parametrize(
    ("protocol", "words"), [("sequence", "which is another question"), ("paper", "its own protocol.")]
)
def test_a_table_names_its_protocol_budget_command_and_which_way_is_better(protocol: Any, words: str) -> None:
    config = TableConfig(protocol=protocol, budget="cpu")
    text_ = markdown([reached("gru"), reached("mean", reference=True)], config, "nacdrive bench table")
    assert text_.startswith(f"Protocol `{protocol}`, budget `cpu`. Command: `nacdrive bench table`.\n\nmean ± ")
    assert words in text_ and "### emnist\n" in text_ and "MADE-UP" not in text_ and text_.endswith("|\n")
    metrics = load_task("emnist", protocol).metrics_of("emnist")
    arrows = " | ".join(f"{metric.title} {'↑' if metric.higher else '↓'}" for metric in metrics)
    assert f"| model | {arrows} | paper | trainings | parameters | training, s |" in text_
    made_up = markdown([reached("gru", made_up=True), reached("rnn")], config, "")
    assert "### emnist - MADE-UP DATA, not a result\n" in made_up


def test_a_program_reads_the_same_of_a_table() -> None:
    config = TableConfig(budget="full")
    (row, *_) = csv.DictReader(csv_text([reached("gru", failed=("error", "memory"))], config).splitlines())
    theirs = paper.printed("emnist", "gru")
    assert theirs is not None
    shown = {**row} | {"paper_mean": float(row["paper_mean"]), "paper_std": float(row["paper_std"])}
    assert shown == {
        "protocol": "sequence", "budget": "full", "task": "emnist", "model": "gru", "measure": ACCURACY.key,
        "mean": "90.126", "std": "1.234", "seed_std": "0.5", "paper_mean": theirs[0], "paper_std": theirs[1],
        "folds": "2", "trainings": "3", "failed": "error; memory", "parameters": "12345", "train_s": "61.5",
        "made_up": "False",
    }  # fmt: skip
    alone = reached("own", values={ACCURACY.key: Stat(1.0, None, None)})
    (row, *_) = csv.DictReader(csv_text([alone], config).splitlines())
    assert (row["mean"], row["std"], row["seed_std"], row["paper_mean"]) == ("1.0", "", "", "")


def test_latex_has_a_row_for_each_model_and_behind_them_what_is_none() -> None:
    entries = [reached("mean", reference=True), reached("gru"), reached("own", made_up=True)]
    lines = latex(entries, TableConfig()).splitlines()
    assert lines[0] == "% needs \\usepackage{booktabs,xcolor}"
    rows = [row for row in lines if "textcolor" in row]
    assert [row.split(" & ")[0] for row in rows] == ["GRU", "own", r"\emph{mean}"]
    assert r"emnist (made up) $\uparrow$" in "\n".join(lines)
    assert rows[1].count(r"\textcolor{gray}{(-)}") == 1


# ---------------------------------------------------------------- lines of progress


def test_a_result_is_one_line() -> None:
    failed = {"status": "failed", "kind": "memory", "reason": "too much"}
    assert line(failed) == "FAILED (memory): too much"
    result = done("gru", 91.23456, train_s=12.6)
    assert line(result) == f"emnist {ACCURACY.key} 91.23 (13 s)"
    result |= {"scores": {}, "references": {"mean": {"emnist": {"a": 0.5, "confusion": [1, 2]}}}}
    del result["train_s"]
    assert line(result) == "mean: emnist a 0.5"


def test_a_board_has_a_bar_for_the_whole_and_one_for_each_cell_under_way() -> None:
    progress = Progress(disable=True)
    board = Board(progress, 2)
    one: Any = SimpleNamespace(key="emnist/gru/0")
    (whole,) = progress.tasks
    assert (whole.total, whole.completed) == (2, 0)
    board.under_way(one, {"state": "reading"})
    board.under_way(one, {"state": "training", "done": 3, "total": 9, "loss": 0.123456})
    (_, bar) = progress.tasks
    assert (bar.description, bar.completed, bar.total, bar.fields["state"]) == ("emnist/gru/0", 3, 9, "loss 0.1235")
    board.done(one, done("gru", 90.0))
    assert progress.tasks == [whole] and whole.completed == 1
    # A cell that was there before has no bar.
    board.done(SimpleNamespace(key="emnist/rnn/0"), done("rnn", 90.0))  # type: ignore[arg-type]
    assert whole.completed == 2


# ---------------------------------------------------------------- costs


def test_costs_are_added_up_in_core_hours_and_hours_with_workers() -> None:
    costs = [Cost("emnist", "gru", 5, 2, 5400.0, 512.4), Cost("par", "own:Layer", 3, 0, None, None)]
    lines = text(costs, 3).splitlines()
    assert lines[0].split() == ["task", "model", "cells", "done", "core-hours", "MiB"]
    assert lines[1].split() == ["emnist", "gru", "5", "2", "1.50", "512"]
    assert lines[2].split() == ["par", "own:Layer", "3", "0", "unknown", "-"]
    assert len(set(map(len, lines[:3]))) == 1, "columns stand below each other"
    assert lines[3] == "6 cells to compute: 1.5 core-hours, 0.5 hours with 3 workers"
    assert lines[4].startswith("and 3 cells of layers that no result tells of")
    assert len(text(costs[:1], 1).splitlines()) == 3


def test_the_share_in_which_a_cell_had_a_core() -> None:
    def of(config: dict[str, Any], **times: float) -> float:
        return busy({"train_s": 5.0, "wall_s": 10.0, "record": {"config": config}} | times)

    assert of({}, cpu_s=4.0) == 0.4
    assert of({"device": "cpu"}, cpu_s=40.0) == of({}) == of({"device": "cuda"}, cpu_s=4.0) == 1
    # What went on from a checkpoint has trained for longer than it was there.
    assert of({}, cpu_s=4.0, train_s=11.0) == 1 and of({}, cpu_s=4.0, train_s=10.0) == 0.4


def test_a_cell_of_a_size_that_was_measured_costs_what_the_middle_one_of_them_took() -> None:
    cell = Cell("emnist", ("emnist",), "gru", 0, 1, "sequence", Size(8), 0, "cpu", {}, Path())
    rows = [done("gru", 1.0, k, train_s) for k, train_s in enumerate((10.0, 20.0, 90.0))]
    assert estimate(cell, rows) == 21 and estimate(cell, []) is None
    # Of another size the longest tells most: 8 epochs of 100 sequences, for 4 of 50.
    half = dataclasses.replace(cell, size=Size(4, 50))
    short = done("gru", 1.0, 3, 2.0, epochs=1), done("gru", 1.0, 4, 2.0, train_sequences=1)
    assert estimate(half, [*rows, *short]) == pytest.approx(10 / 4 + 1)


# ---------------------------------------------------------------- the report


@pytest.fixture
def comparison() -> report.Comparison:
    scores = {"s4": (89.0, 89.1, 88.9), "mha": (80.0, 81.0, 79.0), "rnn": (50.0, 51.0, 49.0)}
    seconds = {"s4": 30.0, "mha": 10.0, "rnn": 40.0}
    rows = [done(m, s, k, seconds[m]) for m, values in scores.items() for k, s in enumerate(values)]
    rows.append(done("references", 0.0, references={"mean": {"emnist": {ACCURACY.key: 10.0}}}, scores={}))
    (section,) = sections(rows)
    comparison = compare(section, ACCURACY)
    assert comparison is not None
    return comparison


def test_a_line_of_a_report_says_how_far_behind_how_sure_and_how_dear(comparison: report.Comparison) -> None:
    first, second, _ = (report.cells(each, 2) for each in comparison.lines)
    assert first == ["s4", "89.00", "0.10", "best", "-", "", "3", "12,345", "30", "yes"]
    # Differences of 9, 8.1 and 9.9; Student's 4.3027 with two degrees of freedom.
    assert second == [
        "mha",
        "80.00",
        "1.00",
        "9.00",
        "6.76 to 11.24",
        "worse than the best",
        "3",
        "12,345",
        "10",
        "yes",
    ]
    assert report.cells(comparison.lines[2], 2)[-1] == ""
    assert comparison.references == {"mean": 10.0}
    first_sentence, last = report.sentences(comparison)
    assert first_sentence.startswith(f"{ACCURACY.title}, higher is better.") and last == "No models: mean 10.00."
    lower = dataclasses.replace(comparison, metric=dataclasses.replace(ACCURACY, higher=False), references={})
    assert len(report.sentences(lower)) == 1 and "lower is better" in report.sentences(lower)[0]


def test_less_is_better_where_a_measure_says_so(comparison: report.Comparison) -> None:
    error = compare(comparison.section, dataclasses.replace(ACCURACY, higher=False))
    assert error is not None
    assert [(each.model, each.best, each.cheapest) for each in error.lines] == [
        ("rnn", True, True),
        ("mha", False, True),
        ("s4", False, False),
    ]
    assert error.lines[1].behind is not None and error.lines[1].behind["value"] == pytest.approx(30)


def test_a_report_is_the_same_as_markdown_csv_and_a_page(comparison: report.Comparison) -> None:
    title = f"{comparison.section.title}: {ACCURACY.title}"
    assert comparison.section.title == "emnist, protocol sequence (epochs 8)"
    text_ = report.markdown([comparison], "a <command>")
    assert text_.startswith("# Layers compared\n\nCommand: `a <command>`.\n\n## " + title) and text_.endswith("|\n")
    rows = list(csv.DictReader(report.csv_text([comparison]).splitlines()))
    assert [row["model"] for row in rows] == ["s4", "mha", "rnn"]
    assert (rows[0]["behind"], rows[0]["low"], rows[0]["high"], rows[0]["verdict"]) == ("", "", "", "")
    assert (rows[1]["task"], rows[1]["protocol"], rows[1]["metric"]) == ("emnist", "sequence", ACCURACY.key)
    assert float(rows[1]["behind"]) == pytest.approx(9) and float(rows[1]["low"]) == pytest.approx(6.764, abs=1e-3)
    assert (rows[1]["trainings"], rows[1]["parameters"], rows[1]["train_s"]) == ("3", "12345", "10.0")
    page = report.html_text([comparison], "a <command>", {0: ["cost-0.svg", "curves-0.svg"]})
    assert "<code>a &lt;command&gt;</code>" in page and f"<h2>{title}</h2>" in page and "<i>cheapest</i>" in page
    assert '<img src="cost-0.svg" alt="cost of emnist">' in page and 'alt="curves of emnist"' in page
    assert "<img" not in report.html_text([comparison], "", {})
    tex = report.latex([comparison])
    assert f"{paper.names()['mha']} & 80.00 & 1.00 & 9.00 & 6.76 to 11.24" in tex and tex.startswith("% needs")
    assert f"% {title}" in tex


def test_quality_is_drawn_over_the_seconds_of_training(comparison: report.Comparison) -> None:
    (axis,) = cost_figure(comparison).axes
    assert (axis.get_xscale(), axis.get_xlabel(), axis.get_ylabel()) == ("log", "training (s)", ACCURACY.title)
    assert axis.get_title() == comparison.section.title
    # The line joins the models that no other beats in both, from the quickest on.
    front = axis.lines[-1]
    assert (list(front.get_xdata()), list(front.get_ydata())) == ([10, 30], [80, 89]) and front.get_linewidth() == 1
    assert [each.get_text() for each in axis.texts] == ["s4", "mha", "rnn"]
    assert [container.lines[0].get_color() for container in axis.containers] == ["C0", "C0", "0.6"]
    unknown = dataclasses.replace(comparison.lines[0], train_s=None, spread=None)
    (axis,) = cost_figure(dataclasses.replace(comparison, lines=(unknown,))).axes
    assert list(axis.lines[-1].get_xdata()) == [0.01]


def test_learning_curves_are_means_over_trainings_as_long_as_the_shortest(
    comparison: report.Comparison, tmp_path: Path
) -> None:
    assert curves_figure(comparison.section, [tmp_path]) is None
    for key, losses in (("emnist/s4/0", [3.0, 2.0, 1.0]), ("emnist/s4/0/1", [5.0, 4.0])):
        folder = cell_folder(tmp_path, key)
        folder.mkdir(parents=True)
        lines_ = [{"valid_loss": loss} for loss in losses] + [{"valid_loss": None}, {"epoch": 1}]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines_))
    figure = curves_figure(comparison.section, [tmp_path / "nowhere", tmp_path])
    assert figure is not None
    (axis,) = figure.axes
    (curve,) = axis.lines
    assert (list(curve.get_xdata()), list(curve.get_ydata())) == ([1, 2], [4, 3]) and curve.get_label() == "s4"
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("epoch", "loss on the validation part")
    assert axis.get_legend() is not None and axis.get_title() == comparison.section.title


def test_what_a_training_was_given_is_told_in_words() -> None:
    assert limits_of({"size": SIZE}) == ["epochs 8"]
    given = {"size": {"max_samples": 50, "epochs": 0}, "learning_rates": [0.1, 1e-5], "parameters": 60000}
    assert limits_of(given) == ["max_samples 50", "learning rate chosen among 0.1, 1e-05", "about 60,000 parameters"]


# ---------------------------------------------------------------- robustness


def robust(model: str, repeat: int, **scores: float) -> Any:
    conditions = {key.replace("_", "-"): {"r2": value, "mae": 1 - value} for key, value in scores.items()}
    return {
        "task": "synthetic-decay", "model": model, "fold": 0, "repeat": repeat, "time_sense": "gaps", "tests": 7,
        "conditions": conditions, "trained": {"config": CONFIG},
    }  # fmt: skip


def test_robustness_is_told_best_first_in_means_and_changes(tmp_path: Path) -> None:
    rows = [robust("a", k, intact=0.5, drop_50=0.5 - k / 10, hide=0.25) for k in range(2)]
    rows += [robust("b", k, intact=0.75 + k / 10, drop_50=0.5, hide=0.75) for k in range(2)]
    by_r2, by_mae = tables(rows)
    assert [condition.key for condition in by_r2.conditions] == ["intact", "drop-50", "hide"]
    assert list(by_r2.scores) == list(by_mae.scores) == ["b", "a"] and by_r2.tests == 7
    text_ = text_of([by_r2], "the command")
    assert text_.startswith("# Trained layers under other conditions\n\nCommand: `the command`.\n\n" + MEANING)
    assert "7 test sequences; higher is better." in text_ and "lower is better." in text_of([by_mae], "")
    assert "| model | time | trainings | intact | 50 % of steps dropped | time hidden |" in text_
    assert "| model | uses time? | 50 % of steps dropped | time hidden |" in text_
    table_rows = {(row[3], row[5]): row for row in rows_of([by_r2])}
    assert table_rows["a", "drop-50"][6:10] == (2, 0.45, pytest.approx(0.1 / 2**0.5), pytest.approx(-0.05))
    # More error is worse, so the change has the same sign.
    assert by_mae.change("a", Condition("drop", 50))["value"] == pytest.approx(-0.05)
    (axis,) = drop_figure(by_r2).axes
    assert [list(each.get_xdata()) for each in axis.lines] == [[0, 50]] * 2
    assert list(axis.lines[1].get_ydata()) == [0.5, 0.45] and axis.lines[1].get_label() == "a"
    assert axis.get_xlabel() == "steps dropped (%)" and axis.get_title() == "synthetic-decay"
    assert axis.get_legend() is not None and axis.get_ylabel() == by_r2.metric.title


def test_lines_of_more_than_ten_models_differ_by_their_dashes() -> None:
    part = tables([robust(f"m{k:02}", 0, intact=1 - k / 100, drop_10=0.5) for k in range(21)])[0]
    styles = [each.get_linestyle() for each in drop_figure(part).axes[0].lines]
    assert styles == ["-"] * 10 + ["--"] * 10 + [":"]


def test_means_and_changes_have_as_many_digits_as_their_measure() -> None:
    assert mean_text([1.0], 2) == "1.00" and mean_text([1.0, 2.0], 1) == "1.5 ± 0.7"
    for interval, shown in (
        ([0.1, 0.2], "+0.15 [0.10, 0.20]"),
        ([-0.2, -0.1], "+0.15 [-0.20, -0.10]"),
        ([0.0, 0.2], "+0.15 [0.00, 0.20], not shown"),
        ([-0.2, 0.0], "+0.15 [-0.20, 0.00], not shown"),
    ):
        assert change_text({"value": 0.15, "interval95": interval}, 2) == shown


def test_conditions_are_known_by_a_key_and_a_title() -> None:
    assert [condition.key for condition in CONDITIONS] == [
        "intact", "drop-10", "drop-20", "drop-30", "drop-40", "drop-50", "drop-spare-50", "jitter-10", "jitter-50",
        "shuffle", "hide", "hide-all",
    ]  # fmt: skip
    assert [CONDITIONS[i].title for i in (0, 1, 6, 7)] == [
        "intact",
        "10 % of steps dropped",
        "50 % of empty steps dropped",
        "gaps ± 10 %",
    ]


# ---------------------------------------------------------------- runtime


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


# ---------------------------------------------------------------- options and cells


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
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(done("gru", 90.0)) + "\n")
    assert [row["key"] for row in read_cells(path)] == ["emnist/gru/0"]
