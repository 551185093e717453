"""Tables of a bench in Markdown, LaTeX and CSV, and its lines of progress."""

from __future__ import annotations

import csv
from types import SimpleNamespace
from typing import Any

import pytest
from rich.progress import Progress

from nacdrive.extras.bench import paper
from nacdrive.extras.bench.config import TableConfig
from nacdrive.extras.bench.tables import Entry, Stat, csv_text, failures, latex, markdown, markdown_cells, number
from nacdrive.extras.bench.verb import Board, line
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Metric
from tests.helpers.bench_results import ACCURACY, done


def reached(model: str, **more: Any) -> Entry:
    known: dict[str, Any] = {
        "task": "emnist", "model": model, "done": 3, "folds": 2, "failed": (), "made_up": False,
        "values": {ACCURACY.key: Stat(90.126, 1.234, 0.5)}, "parameters": 12_345, "train_s": 61.5,
    }  # fmt: skip
    return Entry(**known | more)


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
