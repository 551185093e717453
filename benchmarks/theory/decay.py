"""Corollaries 1-3: the error to equilibrium decays as exp(-omega t), from any start, and when it is below epsilon."""

from __future__ import annotations

import math

import numpy as np
import torch

from nacdrive.nac import NAC
from theory.ode import closed
from theory.report import BLACK, CYCLE, Section, canvas


def threshold(omega: float, distance: float, epsilon: float) -> float:
    """Corollary 3: the time in seconds from which |a - a*| <= epsilon, for a start ``distance`` away from a*."""
    return max(0.0, math.log(distance / epsilon) / omega)


def measured_threshold(phi: float, omega: float, start: float, epsilon: float) -> float:
    """The same time, by bisection on the layer's own ``Exact``."""
    target = phi / omega
    low, high = 0.0, 1.0
    while abs(closed(phi, omega, np.array([high]), start)[0] - target) > epsilon:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        near = abs(closed(phi, omega, np.array([middle]), start)[0] - target) <= epsilon
        low, high = (low, middle) if near else (middle, high)
    return high


def progress_at_start(seeds: int = 5) -> torch.Tensor:
    """1 - exp(-omega t) of every pair of a freshly made layer: how much of the way to equilibrium is gone."""
    shares = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        layer = NAC(64, 4, topk=None)
        with torch.no_grad():
            states = layer.neuron_states(torch.randn(1, 128, 64))
        shares.append(-torch.expm1(-states["omega"] * states["t"]).flatten())
    return torch.cat(shares)


def measure() -> Section:
    section = Section("Exponential decay (Corollaries 1-3)")
    rows: list[list[object]] = []
    for omega in (0.2, 1.0, 5.0, 25.0):
        for start, epsilon in ((0.0, 1e-2), (3.0, 1e-2), (3.0, 1e-6)):
            phi = 0.7
            predicted = threshold(omega, abs(start - phi / omega), epsilon)
            rows.append([omega, start, epsilon, predicted, measured_threshold(phi, omega, start, epsilon)])
    section.say("phi = 0.7. Predicted: ln(|a0 - a*| / epsilon) / omega; measured: bisection on `Exact`.")
    section.table(["omega (1/s)", "a0", "epsilon", "t predicted (s)", "t measured (s)"], rows)
    shares = progress_at_start()
    q = torch.quantile(shares, torch.tensor([0.05, 0.5, 0.95])).tolist()
    section.say(
        "How far exact mode gets in its window: a fresh layer (d=64, H=4, 128 random tokens, 5 seeds) has covered "
        f"{shares.mean():.0%} of the way to equilibrium on average (5 %, 50 %, 95 % of pairs: "
        f"{q[0]:.0%}, {q[1]:.0%}, {q[2]:.0%}), because t = sigmoid(...) < 1 s: exact and steady are different layers."
    )
    figure, (paths, times) = canvas(2)
    t = np.linspace(0, 4, 81)
    for omega, color in zip((0.5, 1.0, 2.0, 4.0), CYCLE, strict=False):
        for start in (-1.0, 2.0):
            error = np.abs(closed(0.7, omega, t, start) - 0.7 / omega)
            paths.semilogy(t, error, color=color, label=f"ω = {omega} 1/s" if start > 0 else None)
        bound = (2 + 0.7 / omega) * np.exp(-omega * t)
        paths.semilogy(t, bound, color=color, linestyle=":", linewidth=1)
    paths.set(title="a0 = −1 and 2; dotted: Corollary 2", xlabel="t (s)", ylabel="|a − a*|", ylim=(1e-7, 5))
    paths.legend()
    omegas = np.logspace(-1, 1.5, 40)
    for epsilon, color in zip((1e-1, 1e-2, 1e-4), CYCLE, strict=False):
        times.loglog(omegas, [threshold(w, 1.0, epsilon) for w in omegas], color=color, label=f"ε = {epsilon:g}")
    times.axhspan(0.01, 1, color="#dddddd", label="window of a layer, t < 1 s")
    times.axhline(1, color=BLACK, linewidth=1)
    times.set(
        title="time to tolerance ε (Corollary 3)",
        xlabel="ω (1/s)",
        ylabel="t (s), start at distance 1",
        ylim=(0.05, 5000),
    )
    times.legend()
    section.figures["decay"] = figure
    return section
