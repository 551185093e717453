"""Speed and memory of the NAC layer on one CPU thread, beside torch-nac 0.0.2 and nn.MultiheadAttention.

    OMP_NUM_THREADS=1 python benchmarks/nac_cpu.py [--quick] [--least] [--write FILE]

Times are medians of CPU time, the layers taking turns in one process; ``--least`` takes the least, for a machine with
other work on it. Peak memory is what one call adds to the resident set of a fresh process. nacdrive runs twice: with
the kernels of ``pip install nacdrive[fast]``, and as plain torch. torch-nac is an optional peer (``nacdrive[bench]``).
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import torch
from torch import nn

from nacdrive.nac import NAC, NACKey
from nacdrive.nac.kernels import numba

Work = Callable[[], object]
LAYERS = ("compiled", "nacdrive", "torch-nac", "mha", "key")


def make(layer: str, heads: int, topk: int | None, keys: int) -> Callable[[torch.Tensor], torch.Tensor]:
    torch.manual_seed(0)
    if layer == "nacdrive":
        return NAC(64, heads, topk=topk)
    if layer == "mha":
        attention = nn.MultiheadAttention(64, heads, batch_first=True)
        return lambda x: attention(x, x, x, need_weights=False)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_nac import layers as published
    # Pairwise there is Top-K with K = number of keys (its partition then keeps every full block).
    return published.NAC(64, heads, topk=topk or keys, mode="exact", return_sequences=True)


def forward(layer: str, steps: int, heads: int, topk: int | None) -> Work:
    x = torch.randn(1, steps, 64)
    f = make(layer, heads, topk, steps)

    def work() -> object:
        with torch.no_grad():
            return f(x)

    return work


def causal_forward(layer: str) -> Work:
    """All keys up to each query: half of the pairs. torch-nac has no causal mode."""
    steps = 512
    x = torch.randn(1, steps, 64)
    if layer == "nacdrive":
        nac = NAC(64, 4, topk=None)

        def work() -> object:
            with torch.no_grad():
                return nac(x, is_causal=True)

        return work
    attention = nn.MultiheadAttention(64, 4, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(steps)

    def attend() -> object:
        with torch.no_grad():
            return attention(x, x, x, need_weights=False, attn_mask=mask, is_causal=True)

    return attend


def training_step(layer: str) -> Work:
    x = torch.randn(32, 256, 64)
    f = make(layer, 8, 8, 256)
    return lambda: f(x).sum().backward()


def causal_training_step(layer: str) -> Work:
    """All keys up to each query, as the sequence layers of every task are trained; the shape is E-MNIST's."""
    batch, steps = 8, 56
    x = torch.randn(batch, steps, 64)
    if layer == "nacdrive":
        nac = NAC(64, 8, topk=None)
        return lambda: nac(x, is_causal=True).sum().backward()
    attention = nn.MultiheadAttention(64, 8, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(steps)
    return lambda: attention(x, x, x, need_weights=False, attn_mask=mask, is_causal=True)[0].sum().backward()


def short_forward(layer: str) -> Work:
    """One sequence of 128 steps, each of which sees all; ``key``, the form with its circuit on the key, has all keys up
    to each query, for it has no other form.
    """
    return short(layer, 1, training=False)


def short_training(layer: str) -> Work:
    return short(layer, 8, training=True)


def short(layer: str, batch: int, *, training: bool) -> Work:
    x = torch.randn(batch, 128, 64)
    f: Callable[[torch.Tensor], torch.Tensor] = NACKey(64, 4) if layer == "key" else make(layer, 4, 8, 128)

    def work() -> object:
        with torch.set_grad_enabled(training):
            y = f(x).sum()
        return y.backward() if training else y

    return work


def streaming_step(layer: str) -> Work:
    """The newest of 32 steps: memory where a layer has one, else attention of the last query or over the window."""
    x = torch.randn(1, 32, 64)
    if layer == "nacdrive":
        nac = NAC(64, 16).eval()
        with torch.no_grad():
            state = nac.init_state(1, 32)
            for i in range(32):
                _, state = nac.step(x[:, i], None, state)

        def work() -> object:
            with torch.no_grad():
                return nac.step(x[:, 0], None, state)

        return work
    if layer == "mha":
        attention = nn.MultiheadAttention(64, 16, batch_first=True).eval()

        def last() -> object:
            with torch.no_grad():
                return attention(x[:, -1:], x, x, need_weights=False)

        return last
    return forward(layer, 32, 16, 8)


ROWS: dict[str, tuple[str, Callable[[str], Work]]] = {
    "forward": ("forward B=1 T=1024 d=64 H=4 K=8", lambda layer: forward(layer, 1024, 4, 8)),
    "pairwise": ("pairwise forward T=512 H=4", lambda layer: forward(layer, 512, 4, None)),
    "causal": ("causal pairwise forward T=512 H=4", causal_forward),
    "training": ("training step B=32 T=256 H=8 K=8", training_step),
    "causal-training": ("causal training step, all keys, B=8 T=56 H=8", causal_training_step),
    "t4096": ("forward T=4096 H=4 K=8", lambda layer: forward(layer, 4096, 4, 8)),
    "t16384": ("forward T=16384 H=4 K=8", lambda layer: forward(layer, 16384, 4, 8)),
    "step": ("streaming step, window 32, H=16", streaming_step),
    "short": ("forward B=1 T=128 H=4 K=8", short_forward),
    "short-training": ("training step B=8 T=128 H=4 K=8", short_training),
}
# After a first call that is not counted.
REPEATS = {
    "forward": 11,
    "pairwise": 3,
    "causal": 5,
    "training": 3,
    "causal-training": 5,
    "t4096": 3,
    "t16384": 3,
    "step": 301,
    "short": 51,
    "short-training": 11,
}
KEY_ROWS = ("short", "short-training")
"""Rows that measure the form with its circuit on the key too, as plain torch."""
PEAKS = ("forward", "pairwise", "training")  # rows whose memory is compared
NOT_CAUSAL = {("causal", "torch-nac"), ("causal-training", "torch-nac")}


def cpu_ms(work: Work) -> float:
    start = time.process_time()
    work()
    return 1e3 * (time.process_time() - start)


def work_of(row: str, layer: str) -> Work:
    """A call of a row's work; ``compiled`` is nacdrive with its kernels, ``nacdrive`` without."""
    numba.ENABLED = True  # while a live step's weights are prepared
    work = ROWS[row][1]("nacdrive" if layer == "compiled" else layer)

    def run() -> object:
        numba.ENABLED = layer == "compiled"
        return work()

    return run


def times(row: str, layers: list[str], repeats: int, least: bool) -> dict[str, float]:
    works = {layer: work_of(row, layer) for layer in layers}
    for work in works.values():
        work()
    measured: dict[str, list[float]] = {layer: [] for layer in layers}
    for _ in range(repeats):
        for layer, work in works.items():
            measured[layer].append(cpu_ms(work))
    return {layer: min(values) if least else statistics.median(values) for layer, values in measured.items()}


def peak_mib(row: str, layer: str) -> float:
    """Growth of the peak resident set by one call, in a fresh process."""
    command = [sys.executable, __file__, "--peak", row, layer]
    return float(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def measure_peak(row: str, layer: str) -> float:
    work = work_of(row, layer)
    # A small call first, so that libraries are loaded before the measuring starts.
    numba.ENABLED = layer == "compiled"
    small = make("nacdrive" if layer == "compiled" else layer, 4, 8, 16)(torch.randn(16, 16, 64))
    small.sum().backward()
    before = high_water_mib()
    work()
    return high_water_mib() - before


def high_water_mib() -> float:
    """Peak resident set. Not getrusage's, which a process inherits from the one that started it."""
    status = Path("/proc/self/status").read_text()
    return float(status.split("VmHWM:")[1].split()[0]) / 1024


def cell(ms: float | None, mib: float | None) -> str:
    if ms is None:
        return "-"
    return f"{ms:.3g} ms" + ("" if mib is None else f", {mib:.0f} MiB")


def report(quick: bool, least: bool, rows: list[str], layers: list[str]) -> str:
    lines = [
        "| work | nacdrive[fast] | nacdrive | torch-nac 0.0.2 | nn.MultiheadAttention | nac-key | faster than "
        "torch-nac | leaner | time / MHA | nac-key / MHA |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    found: dict[str, dict[str, float]] = {}
    best = layers[0]
    for row in rows:
        here = [layer for layer in layers if (row, layer) not in NOT_CAUSAL and (layer != "key" or row in KEY_ROWS)]
        ms = found[row] = times(row, here, min(3, REPEATS[row]) if quick else REPEATS[row], least)
        mib = {} if row not in PEAKS or quick else {layer: peak_mib(row, layer) for layer in here}
        cells = [cell(ms.get(layer), mib.get(layer)) for layer in LAYERS]
        faster = f"{ms['torch-nac'] / ms[best]:.1f}x" if "torch-nac" in ms else "-"
        leaner = f"{mib['torch-nac'] / max(mib[best], 0.1):.1f}x" if "torch-nac" in mib else "-"
        of_key = f"{ms['key'] / ms['mha']:.2f}" if "key" in ms else "-"
        lines.append(
            f"| {ROWS[row][0]} | {' | '.join(cells)} | {faster} | {leaner} | {ms[best] / ms['mha']:.2f} | {of_key} |"
        )
        print(lines[-1], flush=True)
    if {"t4096", "t16384"} <= found.keys():
        growth = {n: math.log(found["t16384"][n] / found["t4096"][n], 4) for n in layers if n != "key"}
        lines += [
            "",
            "Exponent of time in T, 4096 to 16384: " + ", ".join(f"{n} {g:.2f}" for n, g in growth.items()) + ".",
        ]
    return "\n".join(lines)


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three repeats, no memory")
    parser.add_argument("--least", action="store_true", help="least instead of median times")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--write", type=Path, help="also write the report to this file")
    parser.add_argument("--peak", nargs=2, metavar=("ROW", "LAYER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.peak:
        print(json.dumps(measure_peak(*args.peak)))
        return
    try:
        version = metadata.version("torch-nac")
    except metadata.PackageNotFoundError:
        version = ""
        print("torch-nac is not installed: measuring without it")
    layers = [name for name in LAYERS if version or name != "torch-nac"]
    if not numba.available():
        print("numba is not installed: measuring without the compiled kernels")
        layers.remove("compiled")
    table = report(args.quick, args.least, args.rows, layers)
    text = "\n".join(
        [
            "# Speed and memory of the NAC layer on a CPU",
            "",
            f"Measured on {datetime.date.today()}: {processor()}, Python {platform.python_version()}, "
            f"torch {torch.__version__}, torch-nac {version or 'absent'}.",
            "Command: `OMP_NUM_THREADS=1 python benchmarks/nac_cpu.py --write docs/results/nac_speed.md`.",
            f"One thread; {'least' if args.least else 'medians'} of CPU time, the layers taking turns in one process;",
            "memory is what one call adds to the peak resident set of a fresh process.",
            "Exact mode, tanh, R = 2 unfolds, 50 % sparsity.",
            f"Load average {', '.join(f'{x:.1f}' for x in os.getloadavg())} at the end.",
            "",
            table,
            "",
        ]
    )
    print(table)
    if args.write:
        args.write.parent.mkdir(parents=True, exist_ok=True)
        args.write.write_text(text)


if __name__ == "__main__":
    main()
