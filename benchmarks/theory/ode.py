"""Trajectories of da/dt = -omega a + phi: in closed form from any start, and by Runge-Kutta for varying gates."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.nac import Euler, Exact, Steady

Array = NDArray[np.float64]
Gate = Callable[[float], float]


def from_start(dynamics: Exact | Euler | Steady, phi: Tensor, omega: Tensor, t: Tensor, start: Tensor) -> Tensor:
    """The layer's dynamics, which start at 0, from any ``start``: a - start obeys the same law with another phi."""
    return start + dynamics(phi - omega * start, omega, t)


def varying(phi: Gate, omega: Gate, times: Array, start: float = 0.0, steps: int = 20) -> Array:
    """Classical Runge-Kutta of order 4 with ``steps`` steps between two ``times``."""

    def rate(s: float, a: float) -> float:
        return phi(s) - omega(s) * a

    a, path = start, [start]
    for begin, end in pairwise(times):
        h = (end - begin) / steps
        for i in range(steps):
            s = begin + i * h
            k1 = rate(s, a)
            k2 = rate(s + h / 2, a + h * k1 / 2)
            k3 = rate(s + h / 2, a + h * k2 / 2)
            k4 = rate(s + h, a + h * k3)
            a += h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
        path.append(a)
    return np.array(path)


def closed(phi: float, omega: float, times: Array, start: float = 0.0) -> Array:
    """The layer's ``Exact`` with constant gates at many ``times``."""
    t = torch.as_tensor(times)
    path = from_start(Exact(), torch.full_like(t, phi), torch.full_like(t, omega), t, torch.full_like(t, start))
    return path.numpy()
