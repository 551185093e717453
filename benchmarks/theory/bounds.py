"""Theorem 1: the logit never leaves the interval of its equilibria (and 0)."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from nacdrive.nac import Euler, Exact, Steady
from theory.ode import closed, from_start, varying
from theory.report import BLACK, BLUE, GREEN, ORANGE, RED, Section, canvas

CONNECTIONS = (1, 2, 5, 20)


def interval(rates: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """[min(0, A_min), max(0, A_max)] of connections ``[..., n]`` with equilibria ``targets``."""
    return targets.amin(-1).clamp(max=0), targets.amax(-1).clamp(min=0)


def gates(rates: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """phi = sum f_i A_i and omega = sum f_i of connections ``[..., n]``."""
    return (rates * targets).sum(-1), rates.sum(-1)


def excess(a: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """How far ``a`` is outside, as a share of the interval's width."""
    return torch.maximum(low - a, a - high).clamp(min=0) / (high - low)


def plain_euler(phi: Tensor, omega: Tensor, h: Tensor, steps: int, start: Tensor) -> Tensor:
    """Eqn. 2 as printed: a step of any length."""
    a = start
    for _ in range(steps):
        a = a + h * (phi - omega * a)
    return a


def measure(draws: int = 20_000, seed: int = 0) -> Section:
    section = Section("State bounds (Theorem 1)")
    g = torch.Generator().manual_seed(seed)
    rows: list[list[object]] = []
    for n in CONNECTIONS:
        rates = torch.exp(torch.empty(draws, n, dtype=torch.float64).uniform_(-5, 3, generator=g))
        targets = torch.empty(draws, n, dtype=torch.float64).uniform_(-2, 2, generator=g)
        low, high = interval(rates, targets)
        start = low + (high - low) * torch.rand(draws, dtype=torch.float64, generator=g)
        t = torch.rand(draws, dtype=torch.float64, generator=g) * 3
        phi, omega = gates(rates, targets)
        states = {
            "exact": from_start(Exact(), phi, omega, t, start),
            "Euler(6)": from_start(Euler(6), phi, omega, t, start),
            "steady": from_start(Steady(), phi, omega, t, start),
            "Eqn. 2, 6 steps of t/6, not limited": plain_euler(phi, omega, t / 6, 6, start),
        }
        for name, a in states.items():
            out = excess(a, low, high)
            rows.append([n, name, f"{(out > 1e-12).double().mean():.2%}", float(out.max())])
    section.say(
        f"{draws} random circuits per row: rates f_i log-uniform in [0.007, 20] 1/s, equilibria A_i uniform in "
        "[-2, 2], start anywhere in the interval, t uniform in [0, 3] s. Excess is in widths of the interval."
    )
    section.table(["connections n", "solution", "outside the interval", "largest excess"], rows)
    section.figures["bounds"] = picture()
    return section


def picture() -> Figure:
    figure, (single, multi, euler) = canvas(3)
    times = np.linspace(0, 4, 81)
    phi, omega = 0.9, 1.2
    for start in np.linspace(0, phi / omega, 5):
        single.plot(times, closed(phi, omega, times, start), color=BLUE)
    single.axhline(phi / omega, color=BLACK, linestyle="--", linewidth=1)
    single.axhline(0, color=BLACK, linestyle="--", linewidth=1)
    single.set(title="one connection: 0 ≤ a ≤ φ/ω", xlabel="t (s)", ylabel="logit a")

    rates = [lambda s: 1 + np.sin(3 * s), lambda s: 0.8 + 0.7 * np.cos(5 * s), lambda s: 0.5 + 0.4 * np.sin(7 * s)]
    targets = (-0.6, 0.4, 1.1)
    for start in np.linspace(min(targets), max(targets), 5):
        path = varying(
            lambda s: sum(f(s) * A for f, A in zip(rates, targets, strict=True)),
            lambda s: sum(f(s) for f in rates),
            times,
            start,
        )
        multi.plot(times, path, color=GREEN)
    for A in targets:
        multi.axhline(A, color=BLACK, linestyle="--" if A != 0.4 else ":", linewidth=1)
    multi.set(title="three connections, rates vary in time", xlabel="t (s)", ylabel="logit a")

    steps = np.arange(13)
    for product, color in ((0.5, BLUE), (1.0, GREEN), (1.6, ORANGE), (2.2, RED)):
        a = [0.0]
        for _ in steps[1:]:
            a.append(a[-1] + product * (1 - a[-1]))
        euler.plot(steps, a, color=color, marker="o", markersize=3, label=f"hω = {product}")
    euler.axhline(1, color=BLACK, linestyle="--", linewidth=1)
    euler.axhline(0, color=BLACK, linestyle="--", linewidth=1)
    euler.set(title="Euler (Eqn. 2): the bound needs hω ≤ 1", xlabel="step", ylabel="a / (φ/ω)", ylim=(-4, 4))
    euler.legend(ncols=2, loc="lower left")
    return figure
