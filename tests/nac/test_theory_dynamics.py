"""Laws of one logit: Theorem 1, Corollaries 1-3 and the sensitivities of appendix C.1."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory import bounds, decay, sensitivity
from theory.ode import closed, from_start, varying

from nacdrive.nac import Euler, Exact, Steady

RATES = st.floats(1e-3, 50)
TARGETS = st.floats(-3, 3)
TIMES = st.floats(0, 10)
SHARES = st.floats(0, 1)
CONNECTIONS = st.lists(st.tuples(RATES, TARGETS), min_size=1, max_size=6)
SOLUTIONS = [Exact(), Steady(), Euler(1), Euler(6), Euler(step=0.5), Euler(adaptive=True)]


def scalar(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def circuit(connections: list[tuple[float, float]]) -> tuple[torch.Tensor, ...]:
    """phi, omega and the interval of Theorem 1."""
    rates, targets = torch.tensor(connections, dtype=torch.float64).T
    return *bounds.gates(rates, targets), *bounds.interval(rates, targets)


@pytest.mark.parametrize("solution", SOLUTIONS, ids=str)
@given(CONNECTIONS, SHARES, TIMES)
def test_the_logit_never_leaves_the_interval_of_its_connections(solution, connections, share, t) -> None:
    phi, omega, low, high = circuit(connections)
    a = from_start(solution, phi, omega, scalar(t), low + (high - low) * share)
    assert low - 1e-9 <= a <= high + 1e-9


@given(st.lists(st.tuples(RATES, TARGETS, st.floats(0, 0.95), st.floats(0, 20)), min_size=1, max_size=4), SHARES)
def test_the_interval_holds_while_the_rates_vary(connections, share) -> None:
    def rate(f: float, depth: float, turns: float, s: float) -> float:
        return f * (1 + depth * math.sin(turns * s))

    low = min(0.0, *(target for _, target, _, _ in connections))
    high = max(0.0, *(target for _, target, _, _ in connections))
    path = varying(
        lambda s: sum(rate(f, d, w, s) * target for f, target, d, w in connections),
        lambda s: sum(rate(f, d, w, s) for f, _, d, w in connections),
        np.linspace(0, 0.5, 6),
        low + share * (high - low),
        steps=400,
    )
    assert path.min() >= low - 1e-6
    assert path.max() <= high + 1e-6


def test_euler_as_printed_leaves_the_interval_once_its_step_exceeds_the_time_constant() -> None:
    phi, omega, h = scalar(1.0), scalar(2.2), scalar(1.0)
    assert bounds.plain_euler(phi, omega, h, 1, scalar(0.0)) > phi / omega
    assert bounds.plain_euler(phi, omega, h, 40, scalar(0.0)).abs() > 100
    assert Euler(steps=40, step=1.0)(phi, omega, scalar(1.0)) == pytest.approx(float(phi / omega))


@given(st.floats(-2, 2), RATES, st.floats(-5, 5), st.lists(TIMES, min_size=1, max_size=8))
def test_the_error_to_equilibrium_decays_exactly_exponentially(phi, omega, start, times) -> None:
    t = np.array(times)
    error = np.abs(closed(phi, omega, t, start) - phi / omega)
    assert error == pytest.approx(abs(start - phi / omega) * np.exp(-omega * t), rel=1e-6, abs=1e-9 / omega)


@given(st.floats(-2, 2), RATES, st.floats(0.1, 5), st.floats(-1, 1), TIMES)
def test_one_bound_holds_for_every_start_in_a_ball(phi, omega, radius, share, t) -> None:
    error = abs(closed(phi, omega, np.array([t]), radius * share)[0] - phi / omega)
    assert error <= (radius + abs(phi / omega)) * math.exp(-omega * t) * (1 + 1e-9) + 1e-12 * (1 + 1 / omega)


@given(st.floats(0.05, 1), st.floats(0.05, 30), st.floats(-5, 5), st.floats(-5, -0.5))
def test_the_tolerance_is_reached_at_the_predicted_time(phi, omega, start, exponent) -> None:
    epsilon, distance = 10**exponent, abs(start - phi / omega)
    predicted = decay.threshold(omega, distance, epsilon) if distance > 0 else 0.0
    assert decay.measured_threshold(phi, omega, start, epsilon) == pytest.approx(predicted, rel=1e-5, abs=1e-6)


@given(SHARES, RATES, SHARES, st.floats(-2, 2))
def test_trajectory_sensitivities_equal_autograd(phi, omega, t, start) -> None:
    args = [scalar(x) for x in (phi, omega, t, start)]
    law = sensitivity.trajectory_sensitivities(*args)
    gradients = sensitivity.autograd(Exact(), *args)
    # The printed form loses digits as omega goes to 0; the layer's own form does not.
    tolerance = 1e-9 * (1 + 1 / omega**2)
    assert [float(x) for x in gradients] == pytest.approx([float(x) for x in law], rel=1e-6, abs=tolerance)


@given(SHARES, RATES)
def test_steady_sensitivities_equal_autograd(phi, omega) -> None:
    phi, omega = scalar(phi), scalar(omega)
    law = sensitivity.steady_sensitivities(phi, omega)
    gradients = sensitivity.autograd(Steady(), phi, omega, scalar(0.5), scalar(0.0))
    assert [float(x) for x in gradients] == pytest.approx([float(x) for x in law], rel=1e-9)


@given(st.floats(0.01, 1), st.floats(0.01, 20))
def test_from_rest_the_sensitivity_to_omega_grows_in_size_without_a_peak(phi, omega) -> None:
    t = torch.linspace(0, 8 / omega, 200, dtype=torch.float64)
    full = [torch.full_like(t, x) for x in (phi, omega)]
    _, by_omega = sensitivity.autograd(Exact(), *full, t, torch.zeros_like(t))
    assert (by_omega.diff() <= 1e-12).all()
    assert (by_omega >= -phi / omega**2 * (1 + 1e-9)).all()
