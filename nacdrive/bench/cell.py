"""One cell of the grid: one model, one fold of one task; trained, tested, reported. A failure is a result too."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nacdrive.bench.budgets import Size
from nacdrive.bench.closed_loop import drive
from nacdrive.common.errors import UserError
from nacdrive.common.runs import plain, run_record, seed_everything
from nacdrive.tasks.bearings import Bearings
from nacdrive.tasks.problem import Fold, Problem, ProtocolName, load_problem
from nacdrive.tasks.synthetic_marker import is_made_up
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import FitResult, FitUpdate, checkpoint_path, fit
from nacdrive.training.predict import outputs
from nacdrive.viz.wear import HOURS, plot_wear

Result = dict[str, Any]
DRIVEN = ("carracing", "udacity")
"""Tasks with a closed loop."""
OnStep = Callable[[FitUpdate], None]


@dataclass(frozen=True)
class Cell:
    """What is computed; plain data, so that it can travel to another process or machine."""

    problem: str
    """Task that trains."""
    tasks: tuple[str, ...]
    """Tasks that its model is tested on."""
    model: str
    """Sequence layer."""
    fold: int
    """Which fold, from 0."""
    folds: int
    """How many there are to be."""
    protocol: ProtocolName
    size: Size
    """Epochs and data."""
    seed: int
    device: str
    places: dict[str, Path]
    """Folder of each task's data."""
    folder: Path
    """Where its checkpoint and model file lie."""

    @property
    def key(self) -> str:
        """Names the cell within a run."""
        return f"{self.problem}/{self.model}/{self.fold}"


def run_cell(cell: Cell, on_step: OnStep = lambda update: None) -> Result:
    """Train and test one cell; goes on from its checkpoint if there is one.

    Returns:
        Plain JSON with ``status`` ``done`` or ``failed``; a failure has ``kind`` (``not finite``, ``memory``,
        ``error``) and ``reason`` instead of ``scores``.
    """
    began = time.perf_counter()
    try:
        result = {**identity(cell), "status": "done", **train_and_test(cell, on_step)}
    except Exception as error:
        result = failure(cell, kind_of(error), first_line(error))
    return {**result, "wall_s": round(time.perf_counter() - began, 2), "record": run_record(cell)}


def identity(cell: Cell) -> Result:
    """What every result says of its cell."""
    names = {"key": cell.key, "problem": cell.problem, "model": cell.model, "fold": cell.fold}
    made_up = [task for task, place in cell.places.items() if is_made_up(place)]
    return {**names, "asked": list(cell.tasks), "made_up": made_up}


def failure(cell: Cell, kind: str, reason: str) -> Result:
    """The result of a cell that came to nothing."""
    return {**identity(cell), "status": "failed", "kind": kind, "reason": reason}


def kind_of(error: Exception) -> str:
    """What sort of failure an exception tells of."""
    text = str(error)
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in text:
        return "memory"
    endless = isinstance(error, FloatingPointError) or (isinstance(error, UserError) and "finite number" in text)
    return "not finite" if endless else "error"


def first_line(error: Exception) -> str:
    """A failure in one line."""
    lines = str(error).splitlines()
    told = lines[0] if lines else ""
    return told if isinstance(error, UserError) else f"{type(error).__name__}: {told}"


def train_and_test(cell: Cell, on_step: OnStep) -> Result:
    """The work of a cell.

    Raises:
        UserError: for data that do not fit, or a loss that is not finite.
        FloatingPointError: if an answer to the test part is not finite.
    """
    if cell.device == "cpu":
        torch.set_num_threads(1)
    problem = load_problem(cell.problem, cell.protocol)
    fold = problem.folds(cell.places, cell.folds, cell.seed, cell.size.most)[cell.fold]
    seed_everything(cell.seed + cell.fold)
    network = problem.network(cell.model, fold.train)
    config = fit_config(problem, cell)
    fitted = fit(network, problem, fold.train, fold.valid, config, cell.folder, device=cell.device, on_step=on_step)
    began = time.perf_counter()
    scores = {task: test(problem, task, network, fold, cell) for task in cell.tasks if task in fold.tests}
    result: Result = {
        "fold_name": fold.name,
        "scores": scores,
        "parameters": sum(p.numel() for p in network.parameters()),
        "train_s": round(fitted.progress.seconds, 2),
        "test_s": round(time.perf_counter() - began, 2),
        "epochs": fitted.progress.epoch,
        "best_epoch": fitted.progress.best_epoch,
        "train_sequences": len(fold.train),
        "test_sequences": {task: len(samples) for task, samples in fold.tests.items()},
        "fit": plain(config),
    }
    model = cell.folder / "model.pt"
    problem.save(network, model, about(cell, fold, fitted, result))
    if cell.size.drive and cell.problem in DRIVEN and model.exists():
        scores[cell.problem] |= drive(cell.problem, model, cell.size.drive, cell.folder / "drives", cell.device)
    checkpoint_path(cell.folder, 0).unlink(missing_ok=True)
    return result


def fit_config(problem: Problem, cell: Cell) -> FitConfig:
    """The task's own settings, within the budget."""
    settings = dict(problem.settings)
    if cell.size.epochs is not None:
        settings["epochs"] = min(cell.size.epochs, settings["epochs"])
    return FitConfig(**settings, seed=cell.seed + cell.fold)


def test(problem: Problem, task: str, network: torch.nn.Module, fold: Fold, cell: Cell) -> dict[str, Any]:
    """Every measure of one task; of bearings also a figure of their wear (the paper's Figure 3)."""
    samples = fold.tests[task]
    batch = problem.settings.get("valid_batch", 1)
    answers = outputs(network, problem, samples, batch=batch, device=cell.device)
    if not all(bool(y.isfinite().all()) for y in answers):
        raise FloatingPointError(f"the network's answers to the test part of {task} are not finite")
    if isinstance(problem, Bearings):
        axis = HOURS if cell.protocol == "sequence" else "rows"
        made_up = ", MADE-UP DATA" if is_made_up(cell.places[task]) else ""
        title = f"{task}: {cell.model}, {fold.name} held out, {cell.protocol} protocol{made_up}"
        curves = problem.curves(task, answers, samples)
        plot_wear(curves, cell.folder / f"wear-{task}.png", title=title, known=True, axis=axis)
    return dict(problem.score(task, answers, samples))


def about(cell: Cell, fold: Fold, fitted: FitResult, result: Result) -> dict[str, Any]:
    """What a model file says of its training."""
    p = fitted.progress
    return {
        **run_record(cell),
        "fold": fold.name,
        "best_epoch": p.best_epoch,
        "valid_loss": p.best_loss if p.best_loss < float("inf") else None,
        "scores": result["scores"],
        "train_sequences": len(fold.train),
        "fit_s": round(p.seconds, 1),
        "made_up": identity(cell)["made_up"],
    }
