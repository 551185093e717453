"""Tables of a run over disturbed data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nacdrive.extras.bench.conditions import CONDITIONS, MEANING, Condition
from nacdrive.extras.bench.robustness_tables import change_text, drop_figure, mean_text, rows_of, tables, text_of
from tests.helpers.bench_results import CONFIG


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
