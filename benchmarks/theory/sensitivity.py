"""Appendix C.1: how steady state and trajectory move with phi and omega, in closed form and by autograd."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nacdrive.nac import Exact, Steady
from theory.ode import from_start
from theory.report import BLACK, CYCLE, Section, canvas


def steady_sensitivities(phi: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
    """d a*/d phi and d a*/d omega."""
    return 1 / omega, -phi / omega**2


def trajectory_sensitivities(phi: Tensor, omega: Tensor, t: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """d a(t)/d phi and d a(t)/d omega from the start a0 (Eqns. 56-57)."""
    decay = torch.exp(-omega * t)
    rest = -torch.expm1(-omega * t)
    return rest / omega, -phi / omega**2 * rest - (start - phi / omega) * t * decay


def autograd(dynamics: Exact | Steady, phi: Tensor, omega: Tensor, t: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """The same two derivatives of the layer's dynamics, by torch."""
    phi, omega = phi.clone().requires_grad_(), omega.clone().requires_grad_()
    a = from_start(dynamics, phi, omega, t, start)
    by_phi, by_omega = torch.autograd.grad(a.sum(), (phi, omega))
    return by_phi, by_omega


def relative_gap(x: Tensor, y: Tensor) -> float:
    return float(((x - y).abs() / (1e-3 + y.abs())).max())


def measure(draws: int = 20_000, seed: int = 0) -> Section:
    section = Section("Sensitivities (appendix C.1)")
    g = torch.Generator().manual_seed(seed)
    phi = torch.rand(draws, dtype=torch.float64, generator=g)
    omega = torch.exp(torch.empty(draws, dtype=torch.float64).uniform_(-5, 3, generator=g))
    t = torch.rand(draws, dtype=torch.float64, generator=g)
    start = torch.zeros_like(t)
    rows: list[list[object]] = []
    for dtype in (torch.float64, torch.float32):
        args = [x.to(dtype) for x in (phi, omega, t, start)]
        for name, dynamics, law in (
            ("steady state", Steady(), steady_sensitivities(phi, omega)),
            ("trajectory", Exact(), trajectory_sensitivities(phi, omega, t, start)),
        ):
            by_phi, by_omega = autograd(dynamics, *args)
            rows.append([name, str(dtype)[6:], relative_gap(by_phi, law[0]), relative_gap(by_omega, law[1])])
    section.say(
        f"{draws} random draws, phi in [0, 1], omega log-uniform in [0.007, 20] 1/s, t in [0, 1] s, a0 = 0. "
        "Gap = |autograd - law| / (0.001 + |law|), largest; the law is evaluated in float64."
    )
    section.table(["of", "dtype of the layer", "gap d/dphi", "gap d/domega"], rows)
    figure, (by_phi_axis, by_omega_axis, size) = canvas(3)
    times = torch.linspace(0, 6, 121, dtype=torch.float64)
    for w, color in zip((0.5, 1.0, 2.0, 4.0), CYCLE, strict=False):
        full = [torch.full_like(times, x) for x in (0.7, w)]
        for start_value, style in ((0.0, "-"), (2.0, "--")):
            d_phi, d_omega = trajectory_sensitivities(full[0], full[1], times, torch.full_like(times, start_value))
            if style == "-":
                by_phi_axis.plot(times, d_phi, color=color, label=f"ω = {w} 1/s")
            by_omega_axis.plot(times, d_omega, color=color, linestyle=style)
    by_omega_axis.plot([], [], color=BLACK, label="a0 = 0 (NAC)")
    by_omega_axis.plot([], [], color=BLACK, linestyle="--", label="a0 = 2")
    by_phi_axis.set(title="∂a/∂φ", xlabel="t (s)", ylabel="∂a/∂φ (s)")
    by_phi_axis.legend()
    by_omega_axis.set(title="∂a/∂ω, φ = 0.7", xlabel="t (s)", ylabel="∂a/∂ω (s)")
    by_omega_axis.legend()
    omegas = torch.logspace(-3, 1.3, 60, dtype=torch.float64)
    for name, pair in (
        ("steady ∂/∂φ", steady_sensitivities(0.7 * torch.ones_like(omegas), omegas)[0]),
        ("steady |∂/∂ω|", steady_sensitivities(0.7 * torch.ones_like(omegas), omegas)[1].abs()),
    ):
        size.loglog(omegas, pair, label=name)
    half = torch.full_like(omegas, 0.5)
    for name, i in (("exact ∂/∂φ, t = 0.5 s", 0), ("exact |∂/∂ω|, t = 0.5 s", 1)):
        law = trajectory_sensitivities(0.7 * torch.ones_like(omegas), omegas, half, torch.zeros_like(omegas))[i]
        size.loglog(omegas, np.abs(law), linestyle="--", label=name)
    size.set(title="size over ω, φ = 0.7", xlabel="ω (1/s)", ylabel="sensitivity (s)", ylim=(1e-4, 1e6))
    size.legend()
    section.figures["sensitivity"] = figure
    return section
