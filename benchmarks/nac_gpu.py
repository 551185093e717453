"""Time, memory and error of the NAC layer on a GPU, beside torch-nac 0.0.2, nn.MultiheadAttention and SDPA.

    python benchmarks/nac_gpu.py [--rows forward training] [--low] [--write FILE]

``kernel`` is the Triton path and ``chunked`` the layer without it; a dash stands where the kernel does not support the
row. ``sdpa`` is torch's scaled_dot_product_attention on ready-made q, k and v. Times are medians between CUDA events,
the contenders taking turns; memory is the peak that one call adds; error is the largest difference from
``tests/helpers/nac_reference.py`` (float64) on 128 steps of the same layer, over the largest entry of the reference.
The rows are also what ``nacdrive.nac.kernels.triton.LEAST_PAIRS`` should be set from. Without a GPU it says so and
ends.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import util
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nacdrive.nac import NAC
from nacdrive.nac.kernels import triton as kernels

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tests.helpers.nac_reference import nac_forward

CONTENDERS = ("kernel", "chunked", "torch-nac", "mha", "sdpa")
DEVICE = "cuda"


@dataclass(frozen=True)
class Row:
    title: str
    batch: int
    steps: int
    width: int
    heads: int
    topk: int | None
    training: bool = False
    published: bool = True  # torch-nac holds every pair: not at 16384 steps


ROWS = {
    "small": Row("forward B=1 T=128 d=32 H=4 K=8", 1, 128, 32, 4, 8),
    "forward": Row("forward B=1 T=1024 d=32 H=4 K=8", 1, 1024, 32, 4, 8),
    "forward64": Row("forward B=1 T=1024 d=64 H=4 K=8", 1, 1024, 64, 4, 8),
    "pairwise": Row("pairwise forward B=1 T=512 d=32 H=4", 1, 512, 32, 4, None),
    "training": Row("training step B=32 T=256 d=32 H=8 K=8", 32, 256, 32, 8, 8, training=True),
    "training64": Row("training step B=32 T=256 d=64 H=8 K=8", 32, 256, 64, 8, 8, training=True),
    "pairwise-training": Row("pairwise training step B=8 T=256 d=32 H=8", 8, 256, 32, 8, None, training=True),
    "t16384": Row("forward B=1 T=16384 d=32 H=4 K=8", 1, 16384, 32, 4, 8, published=False),
}
Work = Callable[[], object]


def layer_of(row: Row) -> NAC:
    torch.manual_seed(0)
    return NAC(row.width, row.heads, topk=row.topk).to(DEVICE)


def uses_kernel(row: Row, low: bool) -> bool:
    """Whether the Triton path is really taken when it is always to be preferred."""
    taken = []
    kernel = kernels.attend

    def spy(*arguments: object) -> Tensor:
        taken.append(True)
        return kernel(*arguments)  # type: ignore[arg-type]

    kernels.attend = spy  # type: ignore[assignment]
    kernels.LEAST_PAIRS = 0
    try:
        with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16, enabled=low):
            layer_of(row)(torch.randn(1, 16, row.width, device=DEVICE))
    finally:
        kernels.attend = kernel
    return bool(taken)


def attention_of(name: str, row: Row) -> tuple[Callable[[Tensor], Tensor], int | None]:
    """A contender as a function of ``[B, T, d]`` and the value of ``LEAST_PAIRS`` it runs under."""
    if name in ("kernel", "chunked"):
        return layer_of(row), 0 if name == "kernel" else None
    if name == "mha":
        attention = nn.MultiheadAttention(row.width, row.heads, batch_first=True).to(DEVICE)
        return lambda x: attention(x, x, x, need_weights=False)[0], None
    if name == "sdpa":

        def sdpa(x: Tensor) -> Tensor:
            q = x.view(*x.shape[:2], row.heads, -1).transpose(1, 2)
            return F.scaled_dot_product_attention(q, q, q)

        return sdpa, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_nac import layers as published
    peer = published.NAC(row.width, row.heads, topk=row.topk or row.steps, mode="exact", return_sequences=True)
    return peer.to(DEVICE), None


def work_of(name: str, row: Row, low: bool) -> Work:
    f, least = attention_of(name, row)
    x = torch.randn(row.batch, row.steps, row.width, device=DEVICE, requires_grad=row.training)

    def work() -> object:
        kernels.LEAST_PAIRS = least
        with torch.set_grad_enabled(row.training), torch.autocast(DEVICE, torch.bfloat16, enabled=low):
            y = f(x)
        return y.float().sum().backward() if row.training else y

    return work


def milliseconds(work: Work) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def peak_mib(work: Work) -> float:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def error_of(name: str, row: Row, low: bool) -> float:
    """Largest difference from the reference over its largest entry."""
    layer = layer_of(row)
    x = torch.randn(1, 128, row.width, generator=torch.Generator().manual_seed(1))
    kernels.LEAST_PAIRS = 0 if name == "kernel" else None
    with torch.no_grad():
        with torch.autocast(DEVICE, torch.bfloat16, enabled=low):
            got = layer(x.to(DEVICE)).double().cpu()
        wanted, _ = nac_forward(layer.cpu(), x)
    return float((got - wanted).abs().max() / wanted.abs().max())


def measure(row: Row, low: bool, repeats: int) -> list[str]:
    names = [n for n in CONTENDERS if n != "torch-nac" or (row.published and util.find_spec("torch_nac"))]
    if not uses_kernel(row, low):
        names.remove("kernel")
    works = {name: work_of(name, row, low) for name in names}
    for work in works.values():  # compiles and warms up
        work()
        work()
    taken: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(repeats):
        for name, work in works.items():
            taken[name].append(milliseconds(work))
    cells = []
    for name in CONTENDERS:
        if name not in works:
            cells.append("-")
            continue
        cell = f"{statistics.median(taken[name]):.3g} ms, {peak_mib(works[name]):.1f} MiB"
        cells.append(cell + (f", {error_of(name, row, low):.0e}" if name in ("kernel", "chunked") else ""))
    return cells


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--low", action="store_true", help="bfloat16 autocast instead of float32")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--write", type=Path, help="also write the table to this file")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("Left out: this benchmark needs a CUDA GPU, and torch finds none here.")
        return 0
    lines = [f"| work (time, memory, error) | {' | '.join(CONTENDERS)} |", "|---" * (len(CONTENDERS) + 1) + "|"]
    print("\n".join(lines))
    for name in args.rows:
        lines.append(f"| {ROWS[name].title} | {' | '.join(measure(ROWS[name], args.low, args.repeats))} |")
        print(lines[-1], flush=True)
    kind = "bfloat16 autocast" if args.low else "float32"
    lines += [
        "",
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {platform.python_version()}, {kind}.",
    ]
    print(lines[-1])
    if args.write:
        args.write.write_text("# Speed of the NAC layer on a GPU\n\n" + "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
