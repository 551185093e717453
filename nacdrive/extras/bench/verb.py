"""``nacdrive bench``: tables of every layer on every task, what they cost, and how the layers compare."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nacdrive.common.files import refuse_existing
from nacdrive.common.progress import progress_bar, progress_console, resumable
from nacdrive.common.runs import run_record
from nacdrive.extras.bench.config import (
    PlanConfig,
    ReportConfig,
    RobustnessConfig,
    RunConfig,
    RuntimeConfig,
    TableConfig,
)

if TYPE_CHECKING:
    from rich.progress import Progress

    from nacdrive.extras.bench.cell import Cell, Result
    from nacdrive.extras.bench.cost import Cost


def table(config: TableConfig) -> tuple[int, list[dict[str, Any]]]:
    """The table that was asked for; of a smoke run also that of the tasks which only the other protocol has."""
    from nacdrive.extras.bench.grid import rest_of_smoke

    rest = rest_of_smoke(config)
    code, tables = one_table(config)
    if code or rest is None:
        return code, tables
    code, more = one_table(rest)
    return code, tables + more


def run(config: RunConfig) -> tuple[int, list[dict[str, Any]]]:
    """As much of a table as the hours allow."""
    return one_table(config, config.hours)


def one_table(config: TableConfig, hours: float = math.inf) -> tuple[int, list[dict[str, Any]]]:
    """Compute the grid, with a line per cell under way and one per cell that is done; exit code, folder and cells."""
    from nacdrive.extras.bench.cell import REFERENCES
    from nacdrive.extras.bench.grid import compute, describe, left_out, plan
    from nacdrive.extras.bench.tables import markdown, write_tables

    console = progress_console()
    with console.status("reading the data"):
        grid = plan(config)
    console.print(f"{len(grid.cells)} cells, protocol {config.protocol}, budget {config.budget}")
    for line in [*describe(grid.data_dirs), *left_out(config).values(), *fewer_folds(grid.cells, config.folds)]:
        console.print(f"  {line}")
    kept = f"finished cells are kept in {grid.folder}, those under way in their checkpoints"
    with resumable(lambda: kept), progress_bar() as progress:
        board = Board(progress, len(grid.cells))
        results = compute(grid, config, board.under_way, board.done, until=time.monotonic() + 3600 * hours)
    command = run_record(config)["command"]
    print(markdown(write_tables(grid.folder, list(results.values()), config, command), config, command))
    print(f"{grid.folder}/table.md, table.csv, table.tex; every cell in results.jsonl")
    if len(results) < len(grid.cells):
        print(f"{len(results)} of {len(grid.cells)} cells have a result: the same command goes on.")
    judged = [result for result in results.values() if result["model"] != REFERENCES]
    failed = bool(judged) and all(result["status"] == "failed" for result in judged)
    if failed:
        print("nacdrive: every model has failed; the reasons are above.", file=sys.stderr)
    return int(failed), [{"folder": grid.folder, "cells": list(results.values())}]


def fewer_folds(cells: Sequence[Cell], wanted: int) -> list[str]:
    """What there is to say where a task cannot be cut into as many folds as were asked for (0: as many as usual)."""
    there = {cell.task: max(other.fold for other in cells if other.task == cell.task) + 1 for cell in cells}
    return [
        f"{task} has {count} folds and no more, and --folds is {wanted}"
        for task, count in there.items()
        if count < wanted
    ]


def plan(config: PlanConfig) -> list[Cost]:
    """Print what the table would cost."""
    from nacdrive.extras.bench.cost import costs, text
    from nacdrive.extras.bench.grid import RESULTS, complete, finished
    from nacdrive.extras.bench.grid import plan as grid_of
    from nacdrive.extras.bench.report import read_results

    grid = grid_of(config, claim=False)
    have = finished(grid.folder)
    done = [cell.key for cell in grid.cells if complete(cell, have.get(cell.key))]
    places = [*config.costs, *([grid.folder] if (grid.folder / RESULTS).is_file() else [])]
    expected = costs(grid.cells, done, read_results(places) if places else [])
    print(text(expected, config.parallel))
    return expected


def report(config: ReportConfig) -> list[dict[str, Any]]:
    """Write the report and print its tables."""
    from nacdrive.extras.bench.report import markdown, write_report

    refuse_existing(config.out / "report.md", overwrite=config.overwrite)
    command = run_record(config)["command"]
    comparisons = write_report(config.data, config.out, command)
    print(markdown(comparisons, command))
    print(f"{config.out}/report.html, report.md, report.csv, report.tex")
    return [{**vars(one), "section": one.section.title} for one in comparisons]


def robustness(config: RobustnessConfig) -> list[dict[str, Any]]:
    """Test what is trained, with a line per model, and print the tables."""
    from nacdrive.extras.bench.robustness import Job, compute, plan
    from nacdrive.extras.bench.robustness_tables import COLUMNS, rows_of, text_of, write

    console = progress_console()
    jobs, done, left_out = plan(config)
    console.print(f"{len(jobs)} trained models, {len(done)} of them tested already")
    for sentence in left_out:
        console.print(f"  {sentence}.")

    def on_result(job: Job, result: Result) -> None:
        first = {key: next(iter(scores.values())) for key, scores in result["conditions"].items()}
        console.print(f"{result['key']}: " + ", ".join(f"{key} {value:.4g}" for key, value in first.items()))

    with resumable(lambda: f"what is tested is kept in {config.out}", "the same command goes on"):
        results = compute(config, jobs, done, on_result)
    command = run_record(config)["command"]
    parts = write(results, config.out, command)
    print(text_of(parts, command))
    print(f"{config.out}/robustness.md, robustness.csv, robustness.jsonl")
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows_of(parts)]


class Board:
    """What the person sees: a bar per cell under way, one for the whole, and a line for each result."""

    def __init__(self, progress: Progress, cells: int) -> None:
        self.progress = progress
        self.whole = progress.add_task("all cells", total=cells, state="")
        self.rows: dict[str, Any] = {}

    def under_way(self, cell: Cell, news: dict[str, Any]) -> None:
        row = self.rows.get(cell.key)
        if row is None:
            row = self.rows[cell.key] = self.progress.add_task(cell.key, total=None, state="")
        if "done" in news:
            self.progress.update(row, completed=news["done"], total=news["total"], state=f"loss {news['loss']:.4g}")
        else:
            self.progress.update(row, state=news["state"])

    def done(self, cell: Cell, result: Result) -> None:
        if (row := self.rows.pop(cell.key, None)) is not None:
            self.progress.remove_task(row)
            self.progress.console.print(f"{cell.key}: {line(result)}")
        self.progress.advance(self.whole)


def line(result: Result) -> str:
    """A result in one line."""
    if result["status"] == "failed":
        return f"FAILED ({result['kind']}): {result['reason']}"
    named = {**result["scores"]}
    for name, scores in result.get("references", {}).items():
        named |= {f"{name}: {task}": values for task, values in scores.items()}
    text = "; ".join(
        f"{task} " + ", ".join(f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, float))
        for task, values in named.items()
    )
    return text + (f" ({result['train_s']:.0f} s)" if "train_s" in result else "")


def runtime(config: RuntimeConfig) -> list[Result]:
    """Measure, with a line per layer."""
    from nacdrive.extras.bench.runtime import Row, measure_all, write

    refuse_existing(config.out / "runtime.json", config.out / "runtime.md", overwrite=config.overwrite)
    console = progress_console()

    def on_row(row: Row) -> None:
        done = row["status"] == "done"
        outcome = f"{1e3 * row['time_s']:.2f} ms" if done else f"FAILED ({row['kind']}): {row['reason']}"
        console.print(f"{row['device']} {row['model']}: {outcome}")

    with console.status("measuring"):
        rows = measure_all(config, on_row)
    print(write(rows, config))
    print(f"{config.out}/runtime.md, runtime.json")
    return rows


VERBS = {
    "table": (TableConfig, table),
    "plan": (PlanConfig, plan),
    "run": (RunConfig, run),
    "report": (ReportConfig, report),
    "robustness": (RobustnessConfig, robustness),
    "runtime": (RuntimeConfig, runtime),
}
