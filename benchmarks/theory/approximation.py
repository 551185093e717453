"""Theorem 2: which constructions let one NAC layer approximate any function, shown on sin x.

At T = 1 the softmax over one key is 1, so phi and omega do not reach the output. With constant quadrature the
layer is then affine in its input whatever its weights. Two routes do work: the time quadrature (the factor
t = sigmoid(affine) is a sigmoid unit, one per head) and a second, constant token (the softmax over two keys is
the sigmoid of a difference of logits).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nacdrive.nac import NAC
from theory.report import BLACK, BLUE, GREEN, RED, Section, canvas


class Route(NamedTuple):
    """How the scalar x is shown to the layer."""

    label: str
    tokens: int
    quadrature: str
    color: str


ROUTES = {
    "one-constant": Route("T = 1, constant quadrature (as printed)", 1, "constant", RED),
    "one-time": Route("T = 1, time quadrature", 1, "time", BLUE),
    "two-constant": Route("two tokens, constant quadrature", 2, "constant", GREEN),
}
SPREAD = 3.0  # of random biases, so that the units bend at different x in [-pi, pi]


def make_layer(route: Route, heads: int, mode: str = "steady", seed: int = 0) -> NAC:
    """A fully connected NAC (sparsity 0, as the proof asks) with one channel a head and random inner weights."""
    torch.manual_seed(seed)
    layer = NAC(heads, heads, mode=mode, topk=None, sparsity=0, quadrature=route.quadrature, in_features=2).double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(0, SPREAD)
        layer.out_proj.weight.copy_(torch.eye(heads))
        layer.out_proj.bias.zero_()
    return layer


def tokens(route: Route, x: Tensor) -> tuple[Tensor, Tensor]:
    """Query ``[N, 1, 2]`` and keys ``[N, T, 2]``: (x, 1), and for two tokens the constant (0, 0) beside it."""
    token = torch.stack([x, torch.ones_like(x)], -1).unsqueeze(1)
    return token, torch.cat([token, torch.zeros_like(token)], 1) if route.tokens == 2 else token


def features(layer: NAC, route: Route, x: Tensor) -> Tensor:
    """What the heads hand to the output projection, ``[N, heads]``."""
    query, keys = tokens(route, x)
    with torch.no_grad():
        return layer(query, keys)[:, 0]


def fit_sine(route: Route, heads: int, mode: str = "steady", seed: int = 0) -> tuple[NAC, float, float]:
    """The layer whose output projection alone is fitted to sin x by least squares; RMS and largest error.

    Returns:
        The layer, whose output channel 0 is the approximation, and its errors on points between the fitted ones.
    """
    layer = make_layer(route, heads, mode, seed)
    x = torch.linspace(-math.pi, math.pi, 257, dtype=torch.float64)
    design = torch.cat([features(layer, route, x), torch.ones(x.shape[0], 1, dtype=torch.float64)], 1)
    solution = np.linalg.lstsq(design.numpy(), torch.sin(x).numpy(), rcond=1e-10)[0]
    with torch.no_grad():
        layer.out_proj.weight[0] = torch.from_numpy(solution[:-1])
        layer.out_proj.bias[0] = solution[-1]
    between = (x[1:] + x[:-1]) / 2
    error = features(layer, route, between)[:, 0] - torch.sin(between)
    return layer, float(error.square().mean().sqrt()), float(error.abs().max())


def best_affine() -> float:
    """RMS error of the best line to sin x on [-pi, pi]."""
    x = torch.linspace(-math.pi, math.pi, 100_001, dtype=torch.float64)
    slope = (x * torch.sin(x)).mean() / (x * x).mean()
    return float((slope * x - torch.sin(x)).square().mean().sqrt())


def measure(sizes: tuple[int, ...] = (2, 4, 8, 16, 32, 64), seeds: int = 5) -> Section:
    section = Section("Universal approximation (Theorem 2), sin x")
    figure, (fit, falling) = canvas(2, width=4.6)
    x = torch.linspace(-math.pi, math.pi, 201, dtype=torch.float64)
    fit.plot(x, torch.sin(x), color=BLACK, linewidth=4, alpha=0.25, label="sin x")
    rows: list[list[object]] = []
    for route in ROUTES.values():
        medians = []
        for heads in sizes:
            errors = sorted(fit_sine(route, heads, seed=seed)[1:] for seed in range(seeds))
            rms, largest = errors[seeds // 2]
            medians.append(rms)
            rows.append([route.label, heads, rms, largest])
        falling.loglog(sizes, medians, marker="o", color=route.color, label=route.label)
        layer = fit_sine(route, 8)[0]
        fit.plot(x, features(layer, route, x)[:, 0], color=route.color, linestyle="--", label=route.label)
    falling.axhline(best_affine(), color=BLACK, linestyle=":", linewidth=1, label="best straight line")
    fit.set(title="8 heads", xlabel="x (rad)", ylabel="output", ylim=(-1.7, 1.7))
    fit.legend(loc="upper left", fontsize=7)
    falling.set(title=f"error over heads, median of {seeds} draws", xlabel="heads H = d_model", ylabel="RMS error")
    falling.set_xticks(sizes, [str(s) for s in sizes])
    falling.minorticks_off()
    falling.legend(loc="lower left", fontsize=7)
    section.say(
        "Steady mode, sparsity 0, one channel a head, inner weights random, only the output projection fitted by least "
        f"squares (257 points; errors on the 256 between them; median of {seeds} draws). The best straight line has an "
        f"RMS error of {best_affine():.4f}."
    )
    section.table(["route", "heads", "RMS error", "largest error"], rows)
    section.figures["approximation"] = figure
    return section
