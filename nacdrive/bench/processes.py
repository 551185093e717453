"""Cells in processes of their own, a few at a time: one that is killed takes no other with it."""

from __future__ import annotations

import multiprocessing
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from nacdrive.bench.cell import Cell, Result, failure, run_cell
from nacdrive.common.parallel import sigint_blocked
from nacdrive.common.runs import start_method
from nacdrive.training.fit import FitUpdate

# Optimizers import torch._dynamo when the first of them is made, which takes seconds.
PRELOADED = ["nacdrive.bench.cell", "torch._dynamo", "torch.utils.tensorboard"]
EVERY_S = 0.5
"""Shortest time between two reports of a cell under way."""
OnProgress = Callable[[Cell, dict[str, Any]], None]


def run_in_processes(cells: Iterable[Cell], workers: int, on_progress: OnProgress) -> Iterator[tuple[Cell, Result]]:
    """Compute cells, ``workers`` at a time; yields each as it is finished. Leaving early ends the processes."""
    context = multiprocessing.get_context(start_method())
    if start_method() == "forkserver":
        context.set_forkserver_preload(PRELOADED)
    waiting = list(cells)[::-1]
    running: dict[Connection, tuple[Cell, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                cell = waiting.pop()
                ours, theirs = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(  # type: ignore[attr-defined]
                    target=work, args=(cell, theirs), daemon=True
                )
                with sigint_blocked():
                    process.start()
                theirs.close()
                running[ours] = cell, process
                on_progress(cell, {"state": "reading"})
            for pipe in wait(list(running)):
                assert isinstance(pipe, Connection)
                cell, process = running[pipe]
                told, result = hear(pipe, cell, process)
                if result is None:
                    on_progress(cell, told)
                    continue
                del running[pipe]
                pipe.close()
                process.join()
                yield cell, result
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join()


def hear(pipe: Connection, cell: Cell, process: BaseProcess) -> tuple[dict[str, Any], Result | None]:
    """The next word of a process: how far it is, or its result."""
    try:
        told: dict[str, Any] = pipe.recv()
    except (EOFError, ConnectionResetError):
        process.join()
        return {}, lost(cell, process.exitcode)
    return told, told if "status" in told else None


def lost(cell: Cell, exit_code: int | None) -> Result:
    """The result of a cell whose process ended without one."""
    if exit_code == -signal.SIGKILL:
        return failure(cell, "memory", "its process was killed, most likely because memory ran out")
    return failure(cell, "error", f"its process ended with exit code {exit_code} and no result")


def work(cell: Cell, pipe: Connection) -> None:
    """What a process does."""
    # What there is to say of the data has been said when the grid was planned.
    warnings.simplefilter("ignore", UserWarning)
    last = 0.0

    def on_step(update: FitUpdate) -> None:
        nonlocal last
        if time.monotonic() - last > EVERY_S:
            last = time.monotonic()
            p = update.progress
            done = update.steps * p.epoch + p.step
            pipe.send(
                {"state": "training", "done": done, "total": update.steps * update.epochs, "loss": update.train_loss}
            )

    # The main process may have ended meanwhile; then nobody is left to be told.
    with suppress(BrokenPipeError):
        pipe.send(run_cell(cell, on_step))
        pipe.close()
