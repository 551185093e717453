"""How an attention logit moves: da/dt = -omega a + phi from a(0) = 0 (paper, Eqns. 1-3 and 18).

All functions are elementwise: ``phi``, ``omega`` (1/s, positive) and ``t`` (s, 0 < t < 1) have one shape, and
so has the result. Every mode keeps 0 <= a <= phi/omega for phi >= 0 (Theorem 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nacdrive.nac.validation import require, tracing, whole


def decay_mean(x: Tensor) -> Tensor:
    """(1 - exp(-x)) / x for x >= 0, the mean of exp(-s) over [0, x]; 1 at x = 0, with exact derivatives there."""
    if not torch.is_grad_enabled() and not tracing():
        x = x.clamp(min=torch.finfo(x.dtype).tiny)  # the value itself is exact everywhere but at 0/0
        return torch.expm1(-x) / -x
    small = x < 0.05
    # Below 0.05 the quotient's derivative cancels in float32; the series is exact to 1e-13 there.
    series = 1 + x * (-1 / 2 + x * (1 / 6 + x * (-1 / 24 + x * (1 / 120 + x * (-1 / 720 + x / 5040)))))
    # The inner where keeps 0/0 out of the branch not taken: its gradient would be NaN times 0.
    safe = torch.where(small, torch.ones_like(x), x)
    return torch.where(small, series, -torch.expm1(-safe) / safe)


@dataclass(frozen=True)
class Exact:
    """Closed form a(t) = (phi/omega)(1 - exp(-omega t)) (paper, Eqn. 3), written without division by omega."""

    def __call__(self, phi: Tensor, omega: Tensor, t: Tensor) -> Tensor:
        return phi * t * decay_mean(omega * t)


@dataclass(frozen=True)
class Steady:
    """The limit t -> infinity: a = phi/omega (paper, Eqn. 18)."""

    def __call__(self, phi: Tensor, omega: Tensor, t: Tensor) -> Tensor:
        """Limit of the logit; ``t`` is not used."""
        return phi / omega


@dataclass(frozen=True)
class Euler:
    """Explicit Euler a <- a + h (phi - omega a) from 0 (paper, Eqn. 2), summed up: h phi sum_m (1 - h omega)^m.

    The step never exceeds 1/omega. Beyond it an Euler step overshoots the equilibrium and beyond 2/omega it
    diverges; at 1/omega it lands on the equilibrium, which is where so fast a logit has long arrived.

    Attributes:
        steps: number of steps n.
        step: fixed step h in seconds; None (default) takes h = t/n, which converges to ``Exact``.
        adaptive: double the steps of each pair until the logit moves by less than ``rtol`` (``steps`` then
            is where it starts, rounded up to a power of two). For exceptionally rapid dynamics.
        rtol: relative tolerance of ``adaptive``.
        doublings: at most this many doublings.
    """

    steps: int = 6
    step: float | None = None
    adaptive: bool = False
    rtol: float = 1e-3
    doublings: int = 8

    def __post_init__(self) -> None:
        whole(self.steps >= 1, "Euler steps", self.steps, "1 or more")
        require(self.step is None or self.step > 0, "Euler step", self.step, "a positive number of seconds, or None")
        if self.adaptive and self.step is not None:
            raise ValueError(f"Euler step={self.step} with adaptive=True; an adaptive step cannot be fixed")
        if self.rtol <= 0 or self.doublings < 1:
            raise ValueError(f"Euler rtol={self.rtol}, doublings={self.doublings}; both must be positive")

    def __call__(self, phi: Tensor, omega: Tensor, t: Tensor) -> Tensor:
        if self.adaptive:
            return self._adaptive(phi, omega, t)
        h = t / self.steps if self.step is None else torch.full_like(t, self.step)
        h = torch.minimum(h, 1 / omega)
        r = 1 - h * omega
        total = torch.ones_like(r)
        for _ in range(self.steps - 1):
            total = 1 + r * total
        return h * phi * total

    def _adaptive(self, phi: Tensor, omega: Tensor, t: Tensor) -> Tensor:
        power = (self.steps - 1).bit_length()
        a = _euler_power_of_two(phi, omega, t, power)
        done = torch.zeros_like(a, dtype=torch.bool)
        # Each pair decides for itself, so that no logit depends on what else is in the batch.
        for p in range(power + 1, power + self.doublings + 1):
            finer = _euler_power_of_two(phi, omega, t, p)
            # Steps that were cut to 1/omega agree on the equilibrium, which says nothing about a(t).
            near = (t * omega < 2 ** (p - 1)) & ((finer - a).abs() <= self.rtol * finer.abs())
            a, done = torch.where(done, a, finer), done | near
        return a


def _euler_power_of_two(phi: Tensor, omega: Tensor, t: Tensor, power: int) -> Tensor:
    """Euler with 2**power steps in ``power`` products: sum_{m < 2n} r^m = (1 + r^n) sum_{m < n} r^m."""
    h = torch.minimum(t / 2**power, 1 / omega)
    r = 1 - h * omega
    total = h * phi
    for _ in range(power):
        total = total * (1 + r)
        r = r * r
    return total


Dynamics = Exact | Euler | Steady
MODES: dict[str, type[Exact] | type[Euler] | type[Steady]] = {"exact": Exact, "euler": Euler, "steady": Steady}


def as_dynamics(mode: Dynamics | str) -> Dynamics:
    """The dynamics object for a name (``exact``, ``euler``, ``steady``), or ``mode`` itself if it is one."""
    if isinstance(mode, str) and mode in MODES:
        return MODES[mode]()
    if not isinstance(mode, (Exact, Euler, Steady)):
        raise ValueError(f"mode={mode!r}; allowed are {', '.join(MODES)} or an Exact, Euler or Steady object")
    return mode
