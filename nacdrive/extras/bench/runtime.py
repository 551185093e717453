"""The paper's runtime and memory experiment (appendix D.4): every layer's forward pass, in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch

from nacdrive.common import table
from nacdrive.common.files import write_json, write_text
from nacdrive.common.parallel import run_jobs
from nacdrive.common.runs import run_record
from nacdrive.extras.bench import paper
from nacdrive.extras.bench.cell import failed_with, lost_process
from nacdrive.extras.bench.config import RuntimeConfig
from nacdrive.extras.bench.grid import check_models
from nacdrive.extras.bench.machine import machine_state
from nacdrive.layers import build, names
from nacdrive.models.files import check_device

Row = dict[str, Any]
STATUS = Path("/proc/self/status")


def measure_all(config: RuntimeConfig, on_row: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """One row per device and layer, in the paper's order."""
    check_models(config.models)
    for device in config.devices:
        check_device(device)
    models = paper.in_order(list(config.models) or names(ablations=True))
    jobs = [(model, device, config) for device in config.devices for model in models]
    rows = []
    # One at a time, each where nothing else has used memory.
    measured = run_jobs(
        measure_job, jobs, workers=1, max_tasks_per_child=1,
        on_lost=lambda job, code: failed_row(job, *lost_process(code)),
    )  # fmt: skip
    for _, row in measured:
        rows.append(row)
        on_row(row)
    return rows


Job = tuple[str, str, RuntimeConfig]
"""Layer, device, options."""


def measure_job(job: Job) -> Row:
    """Measure one layer; a failure is a row too."""
    model, device, config = job
    try:
        return {"model": model, "device": device, "status": "done", **measure(model, device, config)}
    except Exception as error:
        return failed_row(job, *failed_with(error))


def failed_row(job: Job, kind: str, reason: str) -> Row:
    """The row of a layer that could not be measured."""
    return {"model": job[0], "device": job[1], "status": "failed", "kind": kind, "reason": reason}


@torch.inference_mode()
def measure(model: str, device: str, config: RuntimeConfig) -> Row:
    """Of a layer's forward passes ``time_s`` and ``time_std_s``, ``throughput_per_s`` (sequences), ``parameters``, and
    ``peak_mib`` that one pass adds (None where the system does not tell).
    """
    torch.manual_seed(config.seed)
    if device == "cpu":
        torch.set_num_threads(config.threads)
    layer = build(model, config.features, config.heads, config.steps).eval().to(device)
    x = torch.randn(config.batch_size, config.steps, config.features, device=device)
    t = torch.rand(config.batch_size, config.steps, device=device).cumsum(dim=1)
    layer(x[:, :16], t[:, :16])
    before = memory(device, reset=True)
    layer(x, t)
    after = memory(device)
    times = [timed(lambda: layer(x, t), device) for _ in range(config.passes)]
    mean = fmean(times)
    return {
        "time_s": mean,
        "time_std_s": pstdev(times),
        "throughput_per_s": config.batch_size / mean,
        "peak_mib": None if before is None or after is None else max(0.0, after - before) / 2**20,
        "parameters": sum(p.numel() for p in layer.parameters()),
    }


def timed(pass_: Callable[[], object], device: str) -> float:
    """Seconds of one pass, the device's work included."""
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    pass_()
    if cuda:
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def memory(device: str, reset: bool = False) -> float | None:
    """Bytes: in use now (``reset``, which also forgets the peak), or at the peak since."""
    if device.startswith("cuda"):
        if reset:
            torch.cuda.reset_peak_memory_stats(device)
            return float(torch.cuda.memory_allocated(device))
        return float(torch.cuda.max_memory_allocated(device))
    if not STATUS.exists():
        return None
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    return 1024 * float(STATUS.read_text().split("VmRSS:" if reset else "VmHWM:")[1].split()[0])


def markdown(rows: Sequence[Row], config: RuntimeConfig, command: str) -> str:
    """A table per device, the paper's throughput and memory beside ours."""
    lines = [
        f"{config.passes} forward passes after one to warm up: {config.steps} steps, {config.features} features, "
        f"{config.heads} heads, batch {config.batch_size}, float32, {config.threads} thread on a CPU. "
        "Memory: what the first whole pass adds to the peak of its process; NAC's compiled kernels, where numba is "
        "installed, are loaded by it, once a process, for 120 to 127 MiB of it. "
        "Times are uneven and layers causal here; the *paper*'s have neither "
        "times nor a mask, and ran in TensorFlow on a T4. "
        f"Command: `{command}`."
    ]
    for device in dict.fromkeys(row["device"] for row in rows):
        header = ["layer", "time, ms", "sequences/s", "peak, MiB", "parameters", "paper: sequences/s", "paper: MB"]
        lines += ["", f"### {device}", "", *table.markdown(header, (cells(r) for r in rows if r["device"] == device))]
    return "\n".join(lines) + "\n"


def cells(row: Row) -> Iterator[str]:
    """A row of the table."""
    yield row["model"]
    if row["status"] == "failed":
        yield from (f"failed ({row['kind']})", "-", "-", "-")
    else:
        yield f"{1e3 * row['time_s']:.2f} ± {1e3 * row['time_std_s']:.2f}"
        yield f"{row['throughput_per_s']:.3g}"
        yield "-" if row["peak_mib"] is None else f"{row['peak_mib']:.1f}"
        yield f"{row['parameters']:,}"
    printed = paper.runtime(row["model"])
    yield from (f"{printed[0]:g}", f"{printed[1]:g}") if printed else ("-", "-")


def write(rows: Sequence[Row], config: RuntimeConfig) -> str:
    """Write ``runtime.json`` and ``runtime.md`` into the result's folder; returns the Markdown."""
    record = {**run_record(config), **machine_state()}
    text = markdown(rows, config, record["command"])
    write_json(config.out / "runtime.json", {**record, "threads": config.threads, "rows": list(rows)})
    write_text(config.out / "runtime.md", text)
    return text
