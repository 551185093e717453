"""Cells on a Ray cluster. The data and the run's folder must lie under the same paths on every node."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from typing import Any

from nacdrive.bench.cell import Cell, Result, failure, first_line, run_cell
from nacdrive.bench.processes import OnProgress
from nacdrive.common.errors import UserError


def run_on_ray(cells: Iterable[Cell], address: str, on_progress: OnProgress) -> Iterator[tuple[Cell, Result]]:
    """Compute cells on the cluster at ``address`` (``local`` starts one here); yields each as it is finished.

    Raises:
        UserError: if Ray is not installed, or there is no cluster.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError("--ray needs the package ray: install it with pip install 'nacdrive[ray]'.")
    import ray

    started = not ray.is_initialized()
    if started:
        try:
            ray.init(address=address, log_to_driver=False, include_dashboard=None if address != "local" else False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            told = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"there is no Ray cluster at {address} ({told}): start one, or give --ray local."
            ) from error
    try:
        # A cell that is lost is a result; Ray must not begin it again behind our back.
        remote: Any = ray.remote(num_cpus=1, max_retries=0)(run_cell)
        running = {}
        for cell in cells:
            gpus = 1 if cell.device.startswith("cuda") else 0
            running[remote.options(num_gpus=gpus).remote(cell)] = cell
            on_progress(cell, {"state": "waiting for a core"})
        while running:
            (ready,), _ = ray.wait(list(running), num_returns=1)
            cell = running.pop(ready)
            try:
                yield cell, ray.get(ready)
            except ray.exceptions.RayError as error:
                kind = "memory" if isinstance(error, ray.exceptions.OutOfMemoryError) else "error"
                yield cell, failure(cell, kind, first_line(error))
    finally:
        if started:
            ray.shutdown()
