"""Theorem 3: what freezing phi and omega over the window costs, and the four regimes of the paper's Table 2."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from theory.ode import Array, closed, varying
from theory.report import BLACK, BLUE, ORANGE, Section, canvas

PHI, OMEGA, WINDOW = 0.5, 0.8, 1.0  # a fresh layer's means of phi and omega (1/s); its t stays below 1 s
GROWTH, TURNS, GRID = 5.0, 2.0, 200

# Shape of the relative change over the window, s in [0, 1]; the largest value is 1.
SHAPES: dict[str, Callable[[float], float]] = {
    "slow": lambda s: s,
    "fast": lambda s: math.expm1(GROWTH * s) / math.expm1(GROWTH),
    "step": lambda s: float(s >= 0.5),
    "oscillatory": lambda s: math.sin(2 * math.pi * TURNS * s),
}
# Largest slope of the shape; a step has none, so Theorem 3 does not speak of it.
SLOPES = {
    "slow": 1.0,
    "fast": GROWTH * math.exp(GROWTH) / math.expm1(GROWTH),
    "step": math.inf,
    "oscillatory": 2 * math.pi * TURNS,
}
# The paper's Table 2: mean and max error, and the two variations, all in percent.
PRINTED = {
    "slow": (1.87, 3.05, 0.50, 0.26),
    "fast": (6.41, 6.50, 2.63, 1.58),
    "step": (6.53, 7.20, 3.51, 2.11),
    "oscillatory": (7.81, 6.90, 8.28, 2.10),
}


@dataclass(frozen=True)
class Regime:
    """Gates that change by the shares ``phi`` and ``omega`` over the window, in opposite senses (errors add up)."""

    name: str
    phi: float
    omega: float

    def gate_phi(self, s: float) -> float:
        return PHI * (1 + self.phi * SHAPES[self.name](s / WINDOW))

    def gate_omega(self, s: float) -> float:
        return OMEGA * (1 - self.omega * SHAPES[self.name](s / WINDOW))

    def run(self) -> tuple[Array, Array, Array]:
        """Times, the logit with varying gates, and the logit with gates frozen at the window's start."""
        times = np.linspace(0, WINDOW, GRID + 1)
        return times, varying(self.gate_phi, self.gate_omega, times), closed(PHI, OMEGA, times)

    def relative(self) -> Array:
        """|a - frozen| / a at t > 0."""
        _, a, frozen = self.run()
        return np.abs(a - frozen)[1:] / np.abs(a)[1:]

    def lipschitz(self) -> tuple[float, float]:
        """Lipschitz constants of phi and omega, per second."""
        slope = SLOPES[self.name] / WINDOW
        return PHI * self.phi * slope, OMEGA * self.omega * slope


def theorem_bound(l_phi: float, l_omega: float, ceiling: float, t: Array) -> Array:
    """(L_phi + M L_omega) t^2 / 2, with M >= |frozen logit| and omega >= 0 throughout."""
    return (l_phi + ceiling * l_omega) * t**2 / 2


def range_bound(d_phi: float, d_omega: float, ceiling: float, floor: float, t: Array) -> Array:
    """For any bounded gates, steps included: (sup|dphi| + M sup|domega|) (1 - exp(-w t)) / w with omega >= w."""
    return (d_phi + ceiling * d_omega) * -np.expm1(-floor * t) / floor


def relative_limit(phi: float, omega: float) -> float:
    """No gates that stay within the shares ``phi`` and ``omega`` of their frozen values err by more (a0 = 0)."""
    return max((1 + omega) / (1 - phi), (1 + phi) / (1 - omega)) - 1


def scale_for(name: str, mean: float) -> float:
    """By how much both printed variations must be multiplied for the printed mean error."""
    _, _, phi, omega = (x / 100 for x in PRINTED[name])
    low, high = 0.0, 0.99 / max(phi, omega)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if Regime(name, phi * middle, omega * middle).relative().mean() < mean else (low, middle)
        )
    return high


def measure() -> Section:
    section = Section("Frozen coefficients (Theorem 3, Table 2)")
    rows: list[list[object]] = []
    for name, (mean, top, phi, omega) in PRINTED.items():
        regime = Regime(name, phi / 100, omega / 100)
        error = regime.relative() * 100
        scale = scale_for(name, mean / 100)
        limit = relative_limit(phi / 100, omega / 100) * 100
        rows.append([name, phi, omega, float(error.mean()), float(error.max()), limit, mean, top, scale])
    section.say(
        f"phi0 = {PHI}, omega0 = {OMEGA} 1/s, window {WINDOW:g} s, a0 = 0; gates frozen at the window's start; truth: "
        f"Runge-Kutta 4 with {20 * GRID} steps. The paper prints neither these constants nor shapes: slow = linear, "
        f"fast = exponential (e-fold {GROWTH:g} times), step at half time, oscillatory = {TURNS:g} periods. Its two "
        "variation columns are read as the largest relative change over the window, phi first; phi rises as omega "
        "falls, so that errors add up."
    )
    section.table(
        [
            "regime", "dphi (%)", "domega (%)", "mean error (%)", "max error (%)", "no gates can exceed (%)",
            "paper's mean (%)", "paper's max (%)", "variation x needed for paper's mean",
        ],
        rows,
    )  # fmt: skip
    rows = []
    for share in (0.1, 0.5):
        for name in SHAPES:
            regime = Regime(name, share, share)
            t, a, frozen = regime.run()
            gap = np.abs(a - frozen)
            ceiling = PHI / OMEGA
            l_phi, l_omega = regime.lipschitz()
            theorem = theorem_bound(l_phi, l_omega, ceiling, t)[-1] if math.isfinite(l_phi) else "none (not Lipschitz)"
            wide = range_bound(PHI * share, OMEGA * share, ceiling, OMEGA * (1 - share), t)[-1]
            error = regime.relative() * 100
            rows.append(
                [f"{share:.0%}", name, float(error.mean()), float(error.max()), float(gap.max()), theorem, wide]
            )
    section.say("Stronger variation, the same for phi and omega, and two bounds at the window's end (M = phi0/omega0):")
    section.table(["variation", "regime", "mean (%)", "max (%)", "max abs. error", "Theorem 3", "range bound"], rows)
    section.figures["frozen"] = picture()
    return section


def picture() -> Figure:
    figure, axes = canvas(4, width=2.9)
    for ax, name in zip(axes, SHAPES, strict=True):
        t, a, frozen = Regime(name, 0.5, 0.5).run()
        ax.plot(t, a, color=BLUE, label="gates vary by 50 %")
        ax.plot(t, frozen, color=ORANGE, label="gates frozen at t = 0")
        wide = range_bound(PHI * 0.5, OMEGA * 0.5, PHI / OMEGA, OMEGA * 0.5, t)
        ax.fill_between(t, frozen - wide, frozen + wide, color="#dddddd", label="range bound", zorder=0)
        l_phi, l_omega = Regime(name, 0.5, 0.5).lipschitz()
        if math.isfinite(l_phi):
            theorem = theorem_bound(l_phi, l_omega, PHI / OMEGA, t)
            ax.plot(t, frozen + theorem, color=BLACK, linestyle=":", linewidth=1, label="Theorem 3")
        ax.set(title=name, xlabel="t (s)", ylim=(-0.05, 0.75))
    axes[0].set_ylabel("logit a")
    axes[0].legend(loc="upper left", fontsize=7)
    return figure
