"""What a bench is expected to cost, and what is said of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from nacdrive.common.paths import shipped
from nacdrive.common.runs import plain
from nacdrive.extras.bench import cost
from nacdrive.extras.bench.cell import Cell
from nacdrive.extras.bench.cost import Cost, busy, estimate, steps_of, text
from nacdrive.tasks.base import Size
from tests.helpers.bench_results import done


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
    guessed = dataclasses.replace(costs[0], made_up=True)
    assert text([guessed], 1).splitlines()[3].startswith("3 of them by what made-up data of the same number of steps")


def test_the_share_in_which_a_cell_had_a_core() -> None:
    def of(config: dict[str, Any], **times: float) -> float:
        return busy({"train_s": 5.0, "wall_s": 10.0, "record": {"config": config}} | times)

    assert of({}, cpu_s=4.0) == 0.4
    assert of({"device": "cpu"}, cpu_s=40.0) == of({}) == of({"device": "cuda"}, cpu_s=4.0) == 1
    # What went on from a checkpoint has trained for longer than it was there.
    assert of({}, cpu_s=4.0, train_s=11.0) == 1 and of({}, cpu_s=4.0, train_s=10.0) == 0.4


@pytest.fixture
def hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred sequences of ten steps, where no fewer are asked for."""
    monkeypatch.setattr(cost, "steps_of", lambda size, *data: 10 * (size.max_samples or 100))


def test_steps_are_counted_where_a_size_is_frames() -> None:
    data = ("carracing", shipped("recordings") / "carracing-sample")
    whole, few = (steps_of(size, "carracing", "sequence", data) for size in (Size(), Size(max_samples=40)))
    assert whole > 100 and 0 < few <= 40


@pytest.mark.usefixtures("hundred")
def test_a_cell_of_a_size_that_was_measured_costs_what_the_middle_one_of_them_took() -> None:
    cell = Cell("emnist", ("emnist",), "gru", 0, 1, "sequence", Size(8), 0, "cpu", {}, Path())
    rows = [done("gru", 1.0, k, train_s) for k, train_s in enumerate((10.0, 20.0, 90.0))]
    assert estimate(cell, rows) == 21 and estimate(cell, []) is None
    # Of another size the longest tells most: 8 epochs of 100 sequences, for 4 of 50.
    half = dataclasses.replace(cell, size=Size(4, 50))
    short = done("gru", 1.0, 3, 2.0, epochs=1), done("gru", 1.0, 4, 2.0, train_sequences=1)
    assert estimate(half, [*rows, *short]) == pytest.approx(10 / 4 + 1)


@pytest.mark.usefixtures("hundred")
def test_a_cell_that_chooses_among_learning_rates_costs_a_training_with_each() -> None:
    cell = Cell("emnist", ("emnist",), "gru", 0, 1, "sequence", Size(8), 0, "cpu", {}, Path())
    chooses = dataclasses.replace(cell, learning_rates=(1e-4, 1e-3, 1e-2))
    takes = dataclasses.replace(chooses, fold=1)
    row = done("gru", 1.0, 0, 20.0)
    assert [estimate(one, [row]) for one in (cell, chooses, takes)] == [21, 61, 21]
    # Measured by one that chose: 20 s is one of its three trainings.
    chose = row | {"wall_s": 61.0, "record": {"config": {**row["record"]["config"], **plain(chooses)}}}
    assert [estimate(one, [chose]) for one in (cell, chooses, takes)] == [21, 61, 21]
    # Half of the epochs.
    assert [estimate(dataclasses.replace(one, size=Size(4, 100)), [chose]) for one in (cell, chooses)] == [11, 31]
