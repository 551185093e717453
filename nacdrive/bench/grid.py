"""The grid of models x tasks x folds: which cells there are, which are done, and computing the others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nacdrive.bench.budgets import SIZES, Size
from nacdrive.bench.cell import Cell, Result
from nacdrive.bench.config import TableConfig
from nacdrive.bench.data_dirs import find_places
from nacdrive.bench.paper import in_order
from nacdrive.bench.processes import OnProgress, run_in_processes
from nacdrive.common.errors import UserError, unknown_name
from nacdrive.common.files import result_folder, write_text
from nacdrive.common.runs import check_resumable
from nacdrive.layers import names
from nacdrive.models.files import check_device
from nacdrive.tasks.problem import ProtocolName, load_problem, task_names, trained_on
from nacdrive.training.log import read_rows

RESULTS = "results.jsonl"
FREE_TO_CHANGE = ("tasks", "models", "workers", "ray", "out", "resume", "overwrite", "device")
"""Options that a resumed run may have changed; with the others its cells could not stand in one table."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """Everything that a run computes."""

    cells: list[Cell]
    """In the order of computing."""
    places: dict[str, Path]
    """Folder of each task's data."""
    folder: Path


def plan(config: TableConfig) -> Grid:
    """Check names and data, claim the folder, list the cells.

    Raises:
        UserError: for unknown names, absent data, a folder that holds another run, or tasks that the protocol has not.
    """
    known = names()
    for model in config.models:
        if model not in known:
            raise unknown_name("model", model, known)
    check_device(config.device)
    tasks = list(config.tasks) or [t for t in task_names() if t in load_problem(t, config.protocol).measures]
    groups: dict[str, list[str]] = {}
    for task in tasks:
        groups.setdefault(trained_on(task), []).append(task)
        problem = load_problem(task, config.protocol)
        if task not in problem.measures:
            raise UserError(f"{task} has no place under --protocol {config.protocol}: {problem.notes[task]}")
    folder = result_folder(config.folder, overwrite=config.overwrite, resume=config.resume)
    made_up = folder / "made-up" if config.budget == "smoke" else None
    places = find_places([*dict.fromkeys([*groups, *tasks])], config.data, made_up)
    check_resumable(folder, config, FREE_TO_CHANGE)
    cells = []
    for trained, tested in groups.items():
        wanted = {task: places[task] for task in dict.fromkeys([trained, *tested])}
        common: dict[str, Any] = {
            "problem": trained,
            "tasks": tuple(wanted),
            "folds": config.fold_count,
            "protocol": config.protocol,
            "size": size(config, trained),
            "seed": config.seed,
            "device": config.device,
            "places": wanted,
        }
        count = len(load_problem(trained, config.protocol).folds(wanted, config.fold_count, config.seed, 64))
        cells += [
            Cell(**common, model=model, fold=fold, folder=folder / "cells" / f"{trained}-{model}-{fold}")
            for model in in_order(list(config.models) or known)
            for fold in range(count)
        ]
    return Grid(cells, places, folder)


def left_out(config: TableConfig) -> dict[str, str]:
    """Tasks that all tasks do not include under this protocol, and why, in a line each."""
    if config.tasks:
        return {}
    problems = {task: load_problem(task, config.protocol) for task in task_names()}
    return {
        task: f"{task}: only under --protocol {other_protocol(config)}. {problem.notes[task]}"
        for task, problem in problems.items()
        if task not in problem.measures
    }


def other_protocol(config: TableConfig) -> ProtocolName:
    """The one that ``config`` does not ask for."""
    return "paper" if config.protocol == "sequence" else "sequence"


def rest_of_smoke(config: TableConfig) -> TableConfig | None:
    """A smoke run of every task also runs those of the other protocol: in a table of their own, in a folder within."""
    tasks = tuple(left_out(config))
    if config.budget != "smoke" or not tasks:
        return None
    other = other_protocol(config)
    return dataclasses.replace(config, tasks=tasks, protocol=other, out=config.folder / other)


def size(config: TableConfig, problem: str) -> Size:
    """The budget of one training, with what the command line says."""
    budget = SIZES[config.budget][problem]
    given = {name: getattr(config, name) for name in ("epochs", "most", "drive") if getattr(config, name)}
    return dataclasses.replace(budget, **given)


def finished(folder: Path) -> dict[str, Result]:
    """Results in a run's folder by cell; of a cell that was computed again, the last."""
    return {row["key"]: row for row in read_rows(folder / RESULTS)}


def compute(
    grid: Grid, config: TableConfig, on_progress: OnProgress, on_result: Callable[[Cell, Result], None]
) -> dict[str, Result]:
    """Compute what is missing, keep each result at once; returns the results of all cells of the grid."""
    results = finished(grid.folder)
    missing = []
    for cell in grid.cells:
        if complete(cell, results.get(cell.key)):
            on_result(cell, results[cell.key])
        else:
            missing.append(cell)
    path = grid.folder / RESULTS
    # A line that a crash cut short must not swallow the next.
    write_text(path, "".join(json.dumps(row) + "\n" for row in results.values()))
    with path.open("a", encoding="utf-8") as file:
        for cell, result in run(missing, config, on_progress):
            results[cell.key] = result
            file.write(json.dumps(result, allow_nan=False) + "\n")
            file.flush()
            on_result(cell, result)
    return {cell.key: results[cell.key] for cell in grid.cells}


def complete(cell: Cell, result: Result | None) -> bool:
    """Whether a result holds everything that is asked of a cell."""
    return bool(result and result["status"] == "done" and set(cell.tasks) <= set(result["asked"]))


def run(cells: list[Cell], config: TableConfig, on_progress: OnProgress) -> Iterator[tuple[Cell, Result]]:
    """Compute cells where the config says."""
    if config.ray:
        from nacdrive.bench.ray_cluster import run_on_ray

        yield from run_on_ray(cells, config.ray, on_progress)
    else:
        yield from run_in_processes(cells, config.parallel, on_progress)
