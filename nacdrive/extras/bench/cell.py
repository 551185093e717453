"""One cell of the grid: one model, one fold of one task; trained, tested, reported. A failure is a result too."""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nacdrive.common.errors import UserError, first_line
from nacdrive.common.files import is_disk_full
from nacdrive.common.parallel import report
from nacdrive.common.runs import plain, run_record, seed_everything
from nacdrive.datasets.synthetic import is_synthetic
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.envs.world import env_of_task
from nacdrive.extras.bench.machine import machine_state
from nacdrive.models import load_policy
from nacdrive.nac import PRESETS, VARIANTS
from nacdrive.rollout.drive import Drive, usual_expert
from nacdrive.rollout.evaluate import evaluate
from nacdrive.tasks import load_task
from nacdrive.tasks.base import Fold, ProtocolName, Size, Task
from nacdrive.tasks.series import SeriesTask
from nacdrive.training.config import FitConfig
from nacdrive.training.fit import FitResult, FitUpdate, checkpoint_path, fit
from nacdrive.training.predict import outputs

Result = dict[str, Any]
OnStep = Callable[[FitUpdate], None]
REFERENCES = "references"
"""In the place of a model: what the test part gives without any, such as a constant."""
REPORT_S = 0.5
"""Shortest time between two reports of a cell under way."""
SEED_STEP = 1000
"""Between the seeds of two trainings on the same fold, so that none is that of another fold."""
EXPERTS = "experts"
"""Folder beside the cells of a run, with what the expert drove: once for all of them."""
KEPT = ("autonomy", "off_road_per_lap", "offset_mean_m", "offset_max_m", "jitter_per_s")


@dataclass(frozen=True)
class Cell:
    """What is computed; plain data, so that it can travel to another process or machine."""

    task: str  # task that trains
    tasks: tuple[str, ...]  # tasks that its model is tested on
    model: str  # sequence layer, or REFERENCES
    fold: int  # which fold, from 0
    folds: int  # how many there are to be
    protocol: ProtocolName
    size: Size  # epochs and data
    seed: int  # seeds the split
    device: str
    data_dirs: dict[str, Path]  # folder of each task's data
    folder: Path  # where its checkpoint and model file lie
    repeat: int = 0  # which training on this fold, from 0; each has a seed of its own for weights and batches
    learning_rates: tuple[float, ...] = ()  # to choose from by the validation part; () for the task's own
    learning_rate: float | None = None  # the one that the model's first cell has chosen; None in that cell
    parameters: int = 0  # about how many the network is to have; 0: as the task's width makes it

    @property
    def key(self) -> str:
        return f"{self.task}/{self.model}/{self.fold}" + (f"/{self.repeat}" if self.repeat else "")

    @property
    def chooses(self) -> bool:
        """Whether the learning rate of the model's other cells is that of this one."""
        return bool(self.learning_rates) and (self.fold, self.repeat) == (0, 0)

    @property
    def fit_seed(self) -> int:
        return self.seed + self.fold + SEED_STEP * self.repeat


def cell_folder(run: Path, key: str) -> Path:
    """Where the checkpoint, the log and the model of a cell of a run lie."""
    return run / "cells" / key.replace("/", "-").replace(":", "-")


def compute_cell(cell: Cell) -> Result:
    """``run_cell`` in a worker process: reports to ``run_jobs`` how far it is."""
    # What there is to say of the data has been said when the grid was planned.
    warnings.simplefilter("ignore", UserWarning)
    report({"state": "reading"})
    last = 0.0

    def on_step(update: FitUpdate) -> None:
        nonlocal last
        if time.monotonic() - last > REPORT_S:
            last = time.monotonic()
            done, total = update.steps * update.progress.epoch + update.progress.step, update.steps * update.epochs
            report({"state": "training", "done": done, "total": total, "loss": update.train_loss})

    return run_cell(cell, on_step)


def run_cell(cell: Cell, on_step: OnStep = lambda update: None) -> Result:
    """Train and test one cell; goes on from its checkpoint if there is one.

    Plain JSON with ``status`` ``done`` or ``failed``; a failure has ``kind`` (``not finite``, ``memory``, ``error``)
    and ``reason`` instead of ``scores``.
    """
    began, cpu_began = time.perf_counter(), time.process_time()
    try:
        result = {**identity(cell), "status": "done", **train_and_test(cell, on_step)}
        json.dumps(result, allow_nan=False)
    except Exception as error:
        if is_disk_full(error):
            # That says nothing of the cell, and ends the run.
            raise
        result = failure(cell, *failed_with(error))
    record = {**run_record(cell), **machine_state(cell.device)}
    spent = {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu_began}
    return {**result, **{name: round(value, 2) for name, value in spent.items()}, "record": record}


def identity(cell: Cell) -> Result:
    """What every result says of its cell."""
    names = {"key": cell.key, "task": cell.task, "model": cell.model, "fold": cell.fold, "repeat": cell.repeat}
    # What was learnt from made-up data is made up wherever it is tested.
    learnt = cell.task in cell.data_dirs and is_synthetic(cell.data_dirs[cell.task])
    made_up = [task for task, folder in cell.data_dirs.items() if learnt or is_synthetic(folder)]
    return {**names, "asked": list(cell.tasks), "made_up": made_up}


def failure(cell: Cell, kind: str, reason: str) -> Result:
    """The result of a cell that came to nothing."""
    return {**identity(cell), "status": "failed", "kind": kind, "reason": reason}


def lost_process(exit_code: int | None) -> tuple[str, str]:
    """Kind and reason of the failure of a process that ended without a result."""
    if exit_code == -signal.SIGKILL:
        return "memory", "its process was killed, most likely because memory ran out"
    return "error", f"its process ended with exit code {exit_code} and no result"


def failed_with(error: Exception) -> tuple[str, str]:
    """Kind and reason, in one line, of a failure by an exception."""
    expected, text = isinstance(error, UserError), str(error)
    reason = first_line(error) if expected else f"{type(error).__name__}: {first_line(error)}"
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate memory" in text:
        return "memory", reason
    endless = isinstance(error, FloatingPointError) or (expected and "finite number" in text)
    return "not finite" if endless else "error", reason


def train_and_test(cell: Cell, on_step: OnStep) -> Result:
    """The work of a cell."""
    if cell.device == "cpu":
        torch.set_num_threads(1)
    task = load_task(cell.task, cell.protocol)
    fold = task.folds(cell.data_dirs, cell.folds, cell.seed, cell.size)[cell.fold]
    tested = {name: samples for name, samples in fold.tests.items() if name in cell.tasks}
    shape = {
        "fold_name": fold.name,
        "train_sequences": len(fold.train),
        "train_steps": sum(map(len, fold.train)),
        "test_sequences": {name: len(samples) for name, samples in tested.items()},
    }
    if cell.model == REFERENCES:
        # Name of what is no model -> task -> metric.
        references: dict[str, dict[str, dict[str, float]]] = {}
        for name, samples in ((name, fold.tests[name]) for name in cell.tasks):
            for reference, answers in task.references(name, fold.train, samples).items():
                references.setdefault(reference, {})[name] = dict(task.score(name, answers, samples))
        return {**shape, "scores": {}, "references": references}
    if cell.parameters:
        set_width(task, cell, fold)
    network, config, fitted = best_fit(task, fold, cell, on_step)
    began = time.perf_counter()
    scores = {name: test(task, name, network, fold, cell) for name in tested}
    result: Result = {
        **shape, "scores": scores, "parameters": sum(p.numel() for p in network.parameters()),
        "train_s": round(fitted.progress.seconds, 2), "test_s": round(time.perf_counter() - began, 2),
        "peak_mib": peak_mib(), "epochs": fitted.progress.epoch, "best_epoch": fitted.progress.best_epoch,
        "fit": plain(config),
    }  # fmt: skip
    model, drives = cell.folder / "model.pt", cell.folder / "drives"
    if not drives.exists():  # those that were stopped are of the very file, whose record names the command
        p = fitted.progress
        task.save(network, model, {
            **run_record(cell), "fold": fold.name, "best_epoch": p.best_epoch,
            "valid_loss": p.best_loss if p.best_loss < float("inf") else None, "scores": scores,
            "train_sequences": len(fold.train), "fit_s": round(p.seconds, 1), "made_up": identity(cell)["made_up"],
        })  # fmt: skip
    if cell.size.drive and task.closed_loop and model.exists():
        scores[cell.task] |= drive_tracks(cell.task, model, cell.size.drive, drives, cell.device)
    for left in cell.folder.rglob(checkpoint_path(cell.folder, 0).name):
        left.unlink()
    return result


def best_fit(task: Task, fold: Fold, cell: Cell, on_step: OnStep) -> tuple[torch.nn.Module, FitConfig, FitResult]:
    """A network, trained; of several learning rates with the one that is best on the validation part."""
    own = fit_config(task, cell)
    rates = cell.learning_rates if cell.chooses else (cell.learning_rate or own.learning_rate,)
    fits: list[tuple[torch.nn.Module, FitConfig, FitResult]] = []
    for rate in rates:
        seed_everything(cell.fit_seed)
        named = {**VARIANTS, **PRESETS}.get(cell.model)
        options = {} if named is None else {k: v for k, v in task.nac_options.items() if k not in named}
        network = task.network(cell.model, fold.train, **options)
        config = dataclasses.replace(own, learning_rate=rate)
        folder = cell.folder / f"rate-{rate:g}" if cell.chooses else cell.folder
        try:
            fitted = fit(network, task, fold.train, fold.valid, config, folder, device=cell.device, on_step=on_step)
            fits.append((network, config, fitted))
        except UserError as error:
            # One that diverges is none to choose; that all do is the result.
            if failed_with(error)[0] != "not finite" or not (fits or rate != rates[-1]):
                raise
    criterion = task.criterion

    def badness(one: tuple[torch.nn.Module, FitConfig, FitResult]) -> float:
        p = one[2].progress
        return p.best_loss if criterion is None else -p.best_measure if criterion.higher else p.best_measure

    return min(fits, key=badness)


def set_width(task: Task, cell: Cell, fold: Fold) -> None:
    """Give ``task`` the width, a multiple of the heads, at which its network is nearest to ``cell.parameters``."""
    assert isinstance(task, SeriesTask)
    heads = task.num_heads
    counts = {heads: 0}  # which some layers cannot have: two features a head are the least

    def count(width: int) -> None:
        task.d_model = width
        counts[width] = sum(p.numel() for p in task.network(cell.model, fold.train).parameters())

    while max(counts.values()) < cell.parameters:
        count(max(counts) + heads)
    for width in range(max(counts) - 2 * heads + 1, max(counts)):
        with suppress(ValueError, UserError):  # of a layer with heads, and of one that must be wider
            count(width)
    task.d_model = min(filter(counts.get, counts), key=lambda width: abs(counts[width] - cell.parameters))


def drive_tracks(task: str, model: Path, drives: int, out: Path, device: str) -> dict[str, float]:
    """Drive ``drives`` tracks that no training touched: a table of errors cannot tell how well that goes.

    Returns:
        CarRacing: ``return`` and ``expert_fraction`` (of its expert's return on the same tracks). Udacity, on the
        built-in lake track: ``autonomy`` in percent, ``off_road_per_lap``, ``offset_mean_m`` and ``offset_max_m`` from
        the lane's middle, ``jitter_per_s`` of the steering.
    """
    env = env_of_task(task)
    if env is None:
        raise UserError(f"no environment is known for the task '{task}': its policies cannot be driven.")
    if any(env.tracks):
        # The policy decides at the pace of the recordings that it was trained on.
        repeat = max(1, round(load_policy(model).config.gap_s * (env.frames_per_second or 1)))
        driven = Drive(env.name, model, options={"laps": 1.0, "repeat": repeat}, speed_mph=env.speed_mph, device=device)
        metrics = evaluate(driven, range(drives), out, tracks=env.tracks[:1], workers=0, films=False)
        return {name: float(metrics["tracks"][env.tracks[0]][name]["mean"]) for name in KEPT}
    renderer = {"renderer": "official"} if env.honours("renderer") else {}
    driven = Drive(env.name, model, expert=usual_expert(env, load_policy(model)), options=renderer, device=device)
    seeds = range(POLICY_TEST.start, POLICY_TEST.start + drives)
    metrics = evaluate(driven, seeds, out, workers=0, films=False, expert_folder=out.parent.parent / EXPERTS)
    share = metrics["expert_fraction"]
    return {"return": metrics["return"]["mean"]} | ({"expert_fraction": share["value"]} if share else {})


def peak_mib() -> float | None:
    """Most memory that this process has had so far, of which a cell has one of its own; None where nobody tells."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Bytes on macOS, kB elsewhere.
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def fit_config(task: Task, cell: Cell) -> FitConfig:
    """The task's own settings, within the budget."""
    # Tasks of users may know the batch's size by the name that it had.
    settings = {"batch_size" if name == "batch" else name: value for name, value in task.settings.items()}
    if cell.size.epochs is not None:
        settings["epochs"] = min(cell.size.epochs, settings.get("epochs", FitConfig.epochs))
    return FitConfig(**settings, seed=cell.fit_seed)


def test(task: Task, tested: str, network: torch.nn.Module, fold: Fold, cell: Cell) -> dict[str, float]:
    """Every metric of one task; figures where the task has some."""
    samples = fold.tests[tested]
    batch = task.settings.get("valid_batch", 1)
    answers: list[Tensor] = outputs(network, task, samples, batch=batch, device=cell.device)
    if not all(bool(y.isfinite().all()) for y in answers):
        raise FloatingPointError(f"the network's answers to the test part of {tested} are not finite")
    made_up = ", MADE-UP DATA" if tested in identity(cell)["made_up"] else ""
    title = f"{tested}: {cell.model}, {fold.name} held out, {cell.protocol} protocol{made_up}"
    task.plot(tested, answers, samples, cell.folder, title)
    return dict(task.score(tested, answers, samples))
