"""The paper's Table 3, measured: CPU time over T of predicting a sequence and one more time step.

One thread, CPU time (time.process_time), all layers in one process, rounds interleaved, medians. A layer takes part
in no further round once its calls of that T took longer than --limit-s together, and is not run at a longer T once one
call did. Exponents are fitted to the T from --fit-from on.

    python benchmarks/nac_complexity.py                  # prints the tables (one to two minutes of CPU time)
    python benchmarks/nac_complexity.py --out docs       # also docs/results/nac_complexity.md and its picture
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from theory.report import BLACK, BLUE, GREEN, ORANGE, PINK, RED, SKY, canvas, cell, save
from torch import Tensor, nn

from nacdrive.nac import NAC, State

WIDTH, HEADS, TOPK = 64, 4, 8
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
# Power of T of a whole sequence in the words of the paper's appendix C.2.
CLAIMED = {"RNN": 1, "LSTM": 1, "LTC": 1, "attention": 2}
COLORS = {
    "RNN": BLACK,
    "LSTM": SKY,
    "LTC": PINK,
    "attention": ORANGE,
    "NAC pairwise": RED,
    "NAC exact Top-8": GREEN,
    "NAC sqrt Top-8": BLUE,
    "attention, key-value cache": ORANGE,
    "attention, last query again": ORANGE,
    "NAC pairwise, step": RED,
    "NAC Top-8, step": BLUE,
    "NAC exact Top-8, last_only again": GREEN,
}
Call = Callable[[], object]


class CachedAttention(nn.Module):
    """One more query of multi-head attention with keys and values kept: the least that attention has to do."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.keys, self.values = (torch.randn(1, HEADS, length, WIDTH // HEADS) for _ in range(2))
        self.last = 0

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).view(1, 3, HEADS, 1, -1).unbind(1)
        self.last = (self.last + 1) % self.keys.shape[2]
        self.keys[:, :, self.last] = k[:, :, 0]
        self.values[:, :, self.last] = v[:, :, 0]
        y = nn.functional.scaled_dot_product_attention(q, self.keys, self.values)
        return self.out(y.reshape(1, WIDTH))


def ltc() -> nn.Module | None:
    """Liquid time constants with the wiring of the paper's comparisons, from ncps."""
    try:
        from ncps.torch import LTC
    except ModuleNotFoundError:
        return None
    return LTC(WIDTH, WIDTH, batch_first=True)


def sequence_calls(length: int) -> dict[str, Call]:
    """One forward pass over ``[1, length, 64]`` for each layer."""
    x = torch.randn(1, length, WIDTH)
    rnn, lstm, liquid = nn.RNN(WIDTH, WIDTH, batch_first=True), nn.LSTM(WIDTH, WIDTH, batch_first=True), ltc()
    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
    pairwise = NAC(WIDTH, HEADS, topk=None).eval()
    exact = NAC(WIDTH, HEADS, topk=TOPK, selection="exact").eval()
    sqrt = NAC(WIDTH, HEADS, topk=TOPK, selection="sqrt").eval()
    calls: dict[str, Call] = {
        "RNN": lambda: rnn(x),
        "LSTM": lambda: lstm(x),
        "attention": lambda: attention(x, x, x, need_weights=False),
        "NAC pairwise": lambda: pairwise(x),
        "NAC exact Top-8": lambda: exact(x),
        "NAC sqrt Top-8": lambda: sqrt(x),
    }
    if liquid is not None:
        calls["LTC"] = lambda: liquid(x)
    return calls


def full_state(layer: NAC, length: int) -> State:
    """The state after ``length`` steps, filled with noise: walking there would take longer than measuring."""
    empty = layer.init_state(1, length)
    return replace(empty, memory=torch.randn_like(empty.memory), seen=length)


def step_calls(length: int) -> dict[str, Call]:
    """One more time step after ``length`` steps: with the state kept, and by computing the last query again."""
    x, history = torch.randn(1, WIDTH), torch.randn(1, length, WIDTH)
    rnn, lstm, liquid = nn.RNN(WIDTH, WIDTH, batch_first=True), nn.LSTM(WIDTH, WIDTH, batch_first=True), ltc()
    hidden = torch.zeros(1, 1, WIDTH)
    cached = CachedAttention(length).eval()
    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
    chosen, pairwise = NAC(WIDTH, HEADS, topk=TOPK).eval(), NAC(WIDTH, HEADS, topk=None).eval()
    recomputed = NAC(WIDTH, HEADS, topk=TOPK, selection="exact").eval()
    states = {layer: full_state(layer, length) for layer in (chosen, pairwise)}

    def step(layer: NAC) -> None:
        _, states[layer] = layer.step(x, None, states[layer])

    calls: dict[str, Call] = {
        "RNN": lambda: rnn(x.unsqueeze(1), hidden),
        "LSTM": lambda: lstm(x.unsqueeze(1), (hidden, hidden)),
        "attention, key-value cache": lambda: cached(x),
        "attention, last query again": lambda: attention(history[:, -1:], history, history, need_weights=False),
        "NAC Top-8, step": lambda: step(chosen),
        "NAC pairwise, step": lambda: step(pairwise),
        "NAC exact Top-8, last_only again": lambda: recomputed(history, last_only=True),
    }
    if liquid is not None:
        before = torch.zeros(1, WIDTH)
        calls["LTC"] = lambda: liquid(x.unsqueeze(1), before)
    return calls


def cpu_seconds(call: Call, at_least: float = 2e-3) -> float:
    """CPU seconds of one call, over as many calls as last ``at_least`` (the clock ticks coarsely)."""
    count, begin = 0, time.process_time()
    while True:
        call()
        count += 1
        spent = time.process_time() - begin
        if spent >= at_least:
            return spent / count


def measure(make: Callable[[int], dict[str, Call]], lengths: list[int], rounds: int, limit: float) -> dict[str, dict]:
    """Median CPU seconds by layer and T."""
    found: dict[str, dict[int, float]] = {}
    with torch.no_grad():
        for length in lengths:
            calls = {n: c for n, c in make(length).items() if max(found.get(n, {0: 0.0}).values()) <= limit}
            for call in calls.values():
                call()  # warm up
            samples: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(rounds):
                for name, call in calls.items():
                    if sum(samples[name]) <= limit:
                        samples[name].append(cpu_seconds(call))
            for name, values in samples.items():
                found.setdefault(name, {})[length] = statistics.median(values)
            print(f"  T = {length}: {len(calls)} layers", flush=True)
    return found


def exponent(times: dict[int, float], fit_from: int) -> float:
    """Slope of log time over log T for T >= ``fit_from``; NaN for less than two points."""
    points = [(t, s) for t, s in times.items() if t >= fit_from]
    if len(points) < 2:
        return float("nan")
    x, y = np.log(np.array(points)).T
    return float(np.polyfit(x, y, 1)[0])


def table(found: dict[str, dict[int, float]], lengths: list[int], fit_from: int, claimed: bool) -> list[str]:
    head = ["layer", *(f"T={t}" for t in lengths), "exponent", *(["paper"] if claimed else [])]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name in COLORS:
        if name not in found:
            continue
        values = [cell(found[name][t] * 1000) if t in found[name] else "-" for t in lengths]
        ends = [f"{exponent(found[name], fit_from):.2f}", *([str(CLAIMED.get(name, "-"))] if claimed else [])]
        lines.append("| " + " | ".join([name, *values, *ends]) + " |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder (docs) for results/nac_complexity.md and figures/nac")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds; the median is taken")
    parser.add_argument("--limit-s", type=float, default=1.0, help="no longer T for a layer after a call this long")
    parser.add_argument("--max-length", type=int, default=LENGTHS[-1], help="longest T")
    parser.add_argument("--fit-from", type=int, default=512, help="shortest T of the fit")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    lengths = [t for t in LENGTHS if t <= arguments.max_length]
    print("sequence prediction")
    sequence = measure(sequence_calls, lengths, arguments.rounds, arguments.limit_s)
    print("one more time step")
    step = measure(step_calls, lengths, arguments.rounds, arguments.limit_s)
    lines = [
        "# Complexity over T, measured (the paper's Table 3)",
        "",
        "Made by `python benchmarks/nac_complexity.py --out docs`. CPU milliseconds of one thread, medians of "
        f"{arguments.rounds} interleaved rounds, fewer of a layer whose calls took more than {arguments.limit_s:g} s "
        f"together; d = {WIDTH}, H = {HEADS}, batch 1, float32, no gradients; "
        f"torch {version('torch')}, {platform.machine()}. Exponents: fit over T >= {arguments.fit_from}. "
        f"A dash: not run, because a call at a shorter T took more than {arguments.limit_s:g} s. "
        "Paper: the power of T in the words of its appendix C.2 (the formulas of its Table 3, also those for NAC "
        "and for one step, are lost in our copy).",
        "",
        "## Predicting the sequence",
        "",
        *table(sequence, lengths, arguments.fit_from, True),
        "## Predicting one more time step",
        "",
        *table(step, lengths, arguments.fit_from, False),
    ]
    print("\n" + "\n".join(lines))
    if arguments.out:
        figure, axes = canvas(2, width=4.6, height=3.8)
        for axis, found, title in zip(axes, (sequence, step), ("whole sequence", "one more time step"), strict=True):
            for name, color in COLORS.items():
                if name in found:
                    t = list(found[name])
                    milliseconds = [found[name][i] * 1000 for i in t]
                    style = "--" if "again" in name else "-"
                    axis.loglog(t, milliseconds, style, color=color, marker="o", markersize=3, label=name)
            axis.set(title=title, xlabel="T (steps)", ylabel="CPU time (ms)")
            axis.set_xscale("log", base=2)
            axis.legend(loc="upper left", fontsize=6.5)
            low, high = axis.get_ylim()
            axis.set_ylim(low, high * 12)
        save(figure, arguments.out / "figures" / "nac" / "complexity.png")
        path = arguments.out / "results" / "nac_complexity.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(lines) + "\n![CPU time over T](../figures/nac/complexity.png)\n"
        path.write_text(text, encoding="utf-8")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
