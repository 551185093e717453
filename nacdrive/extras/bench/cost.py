"""What a table will cost, from what its cells have cost before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from nacdrive.common.runs import plain
from nacdrive.extras.bench.cell import REFERENCES, Cell, Result, fit_config
from nacdrive.tasks import load_task
from nacdrive.tasks.base import ProtocolName, Size


@dataclass(frozen=True)
class Cost:
    """Of the cells of one task and model."""

    task: str
    model: str
    cells: int
    done: int
    seconds: float | None  # of those that are missing, on one core; None where no such cell was ever measured
    peak_mib: float | None  # most memory that such a cell has taken
    made_up: bool = False  # whether only trainings on made-up data were measured, and some are missing


def costs(cells: Sequence[Cell], finished: Iterable[str], known: Iterable[Result]) -> list[Cost]:
    """Cost by task and model, in the order of ``cells``.

    A training costs epochs x steps of what an epoch of a step cost in the measured cell with the most sequences (short
    ones are mostly start), plus its test, and drives if that had any. Who chooses among learning rates trains by each.
    """
    known, done = list(known), set(finished)
    result = []
    for kind in dict.fromkeys((cell.task, cell.model) for cell in cells if cell.model != REFERENCES):
        group = [cell for cell in cells if (cell.task, cell.model) == kind]
        rows = [row for row in known if (row["task"], row["model"]) == kind]
        real = [row for row in rows if not row["made_up"]]
        rows = real or rows
        missing = [cell for cell in group if cell.key not in done]
        each = [estimate(cell, rows) for cell in missing]
        seconds = None if None in each else sum(value for value in each if value is not None)
        peak = max((row["peak_mib"] for row in rows if row.get("peak_mib")), default=None)
        made_up = bool(missing and rows and not real)
        result.append(Cost(*kind, len(group), len(group) - len(missing), seconds, peak, made_up))
    return result


def estimate(cell: Cell, rows: Sequence[Result]) -> float | None:
    """Seconds of ``cell`` by ``rows`` of its task and model, of its own protocol if there are any; None without any."""
    rows = [row for row in rows if row["record"]["config"].get("protocol") == cell.protocol] or rows
    if not rows:
        return None

    def seconds(row: Result, scale: float = 1.0) -> float:
        beside = max(0.0, row["wall_s"] - row["train_s"] * trainings(row["record"]["config"]))
        return float((row["train_s"] * scale * trainings(plain(cell)) + beside) * busy(row))

    if same := [row for row in rows if row["record"]["config"]["size"] == plain(cell.size)]:
        return median(map(seconds, same))
    row = max(rows, key=lambda row: row["epochs"] * row["train_sequences"])
    epochs = fit_config(load_task(cell.task, cell.protocol), cell).epochs
    whose = cell.task, cell.protocol, *cell.data_dirs.items()
    steps = steps_of(cell.size, *whose)
    measured = row.get("train_steps") or steps_of(Size(**row["record"]["config"]["size"] or {}), *whose)
    return seconds(row, epochs * steps / max(row["epochs"] * measured, 1))


def trainings(config: dict[str, Any]) -> int:
    """How many the cell of ``config`` makes: one for each learning rate, if it is the one that chooses (``Cell``)."""
    return len(config.get("learning_rates") or [None]) if (config.get("fold"), config.get("repeat")) == (0, 0) else 1


@cache
def steps_of(size: Size, task: str, protocol: ProtocolName, *data_dirs: tuple[str, Path]) -> int:
    """Steps of all sequences that the first fold learns from."""
    return sum(map(len, load_task(task, protocol).folds(dict(data_dirs), 1, 0, size)[0].train))


def busy(row: Result) -> float:
    """The share of a cell's time in which it had a core: on a machine with other work, seconds are not its cost.

    1 where that is not known, on a GPU, and for a cell that went on from a checkpoint, whose first part left no trace.
    """
    config = row["record"]["config"]
    if "cpu_s" not in row or config.get("device", "cpu") != "cpu" or row["train_s"] > row["wall_s"]:
        return 1.0
    return min(1.0, float(row["cpu_s"] / max(row["wall_s"], 1e-9)))


def text(expected: Sequence[Cost], workers: int) -> str:
    """A table for people, and the sum."""
    lines = [f"{'task':<24}{'model':<22}{'cells':>6}{'done':>6}{'core-hours':>12}{'MiB':>8}"]
    for cost in expected:
        hours = "unknown" if cost.seconds is None else f"{cost.seconds / 3600:.2f}"
        memory = "-" if cost.peak_mib is None else f"{cost.peak_mib:.0f}"
        lines.append(f"{cost.task:<24}{cost.model:<22}{cost.cells:>6}{cost.done:>6}{hours:>12}{memory:>8}")
    known = sum(cost.seconds or 0.0 for cost in expected) / 3600
    missing = sum(cost.cells - cost.done for cost in expected)
    hours = f"{known:.1f} core-hours, {known / workers:.1f} hours with {workers} workers"
    lines.append(f"{missing} cells to compute: {hours}")
    if guessed := sum(cost.cells - cost.done for cost in expected if cost.made_up):
        lines.append(f"{guessed} of them by what made-up data of the same number of steps took: a first idea alone.")
    if unknown := sum(cost.cells - cost.done for cost in expected if cost.seconds is None):
        lines.append(
            f"and {unknown} cells of layers that no result tells of: name a smoke table's folder with --costs."
        )
    return "\n".join(lines)
