"""Forward and backward pass of every sequence layer on one CPU thread.

    OMP_NUM_THREADS=1 python benchmarks/sequence.py [--layers NAME ...] [--repeats 5] [--write docs/results/sequence.md]

B = 32, F = d_model = 64, four heads, T = 256 and 52, window = T. Medians of the thread's CPU time, the layers taking
turns in one process. Times are irregular and differ between the sequences of the batch, or even ("t = None").
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from nacdrive import layers

Work = Callable[[], object]
BATCH, WIDTH, HEADS = 32, 64, 4
# Seconds at T = 256 of a careful implementation, measured elsewhere; (goal, the column it is compared with).
GOALS = {
    "ltc": (2.8, "irregular"),
    "cfc": (0.11, "irregular"),
    "gru-ode": (0.51, "irregular"),
    "mmrnn": (0.27, "irregular"),
    "phased-lstm": (0.23, "irregular"),
    "s4": (0.06, "even"),
    "mtan": (0.02, "even"),
    "cta": (0.12, "irregular"),
    "contiformer-linear": (0.15, "irregular"),
}
SHORT = ("contiformer",)  # for short sequences alone: T^2 trajectories


def training_step(name: str, steps: int, irregular: bool) -> Work:
    torch.manual_seed(0)
    layer = layers.build(name, WIDTH, HEADS, steps)
    x = torch.randn(BATCH, steps, WIDTH, requires_grad=True)
    t = (2 * torch.rand(BATCH, steps)).cumsum(dim=1) if irregular else None
    return lambda: layer(x, t).sum().backward()


def medians(works: dict[str, Work], repeats: int) -> dict[str, float]:
    """Seconds of CPU time of each work, the works taking turns; one call of each before the first turn."""
    measured: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            start = time.thread_time()
            work()
            if turn:
                measured[name].append(time.thread_time() - start)
    return {name: statistics.median(values) for name, values in measured.items()}


def measure(names: list[str], repeats: int) -> dict[str, dict[str, float]]:
    """Seconds by name and column."""
    table: dict[str, dict[str, float]] = {name: {} for name in names}
    for steps in (256, 52):
        for kind in ("irregular", "even"):
            works = {n: training_step(n, steps, kind == "irregular") for n in names if steps < 256 or n not in SHORT}
            for name, seconds in medians(works, repeats).items():
                table[name][f"{kind} {steps}"] = seconds
    return table


def rows(table: dict[str, dict[str, float]]) -> list[str]:
    lines = [
        "| layer | parameters | T=256 irregular | T=256 even | T=52 irregular | T=52 even | goal | reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, seconds in table.items():
        parameters = sum(p.numel() for p in layers.build(name, WIDTH, HEADS, 256).parameters())
        columns = ("irregular 256", "even 256", "irregular 52", "even 52")
        cells = [f"{seconds[key]:.3f} s" if key in seconds else "-" for key in columns]
        verdict = ["", ""]
        if name in GOALS:
            goal, kind = GOALS[name]
            took = seconds[f"{kind} 256"]
            verdict = [f"{goal} s ({kind})", "yes" if took <= goal else f"**{took / goal:.1f} times the goal**"]
        lines.append("| " + " | ".join([name, f"{parameters:,}", *cells, *verdict]) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="*", default=None, help="names; all that differ in their code if not given")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", type=Path, help="replace the table between the markers of this page")
    args = parser.parse_args()
    torch.set_num_threads(1)
    modes = ["nac-exact", "nac-euler", "nac-steady"]
    names = args.layers or [*layers.BASELINES, "rela", "contiformer-linear", *modes]
    report = [
        f"Measured on {datetime.date.today()}: {platform.processor() or platform.machine()}, "
        f"Python {platform.python_version()}, torch {torch.__version__}.",
        "",
        *rows(measure(names, args.repeats)),
    ]
    print("\n".join(report))
    if args.write:
        before, _, rest = args.write.read_text().partition("<!-- table -->\n")
        _, _, after = rest.partition("<!-- end -->")
        args.write.write_text(before + "<!-- table -->\n" + "\n".join(report) + "\n<!-- end -->" + after)


if __name__ == "__main__":
    main()
