"""Theorem 3: what freezing the gates over the window can cost, for any gates and in the regimes of Table 2."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory import frozen
from theory.ode import closed, varying

T = np.linspace(0, 1, 21)
NAMES = list(frozen.SHAPES)


@given(
    st.floats(0.05, 1),
    st.floats(0.1, 8),
    st.floats(0, 0.9),
    st.floats(0, 0.9),
    st.floats(0.1, 15),
    st.floats(0.1, 15),
    st.floats(-1, 1),
)
def test_the_error_stays_below_both_bounds(phi, omega, d_phi, d_omega, f, g, start) -> None:
    path = varying(
        lambda s: phi * (1 + d_phi * math.sin(f * s)), lambda s: omega * (1 - d_omega * math.sin(g * s)), T, start
    )
    error = np.abs(path - closed(phi, omega, T, start))
    ceiling = max(abs(start), phi / omega)
    theorem = frozen.theorem_bound(phi * d_phi * f, omega * d_omega * g, ceiling, T)
    wide = frozen.range_bound(phi * d_phi, omega * d_omega, ceiling, omega * (1 - d_omega), T)
    assert (error <= theorem + 1e-7).all()
    assert (error <= wide + 1e-7).all()


@pytest.mark.parametrize("name", NAMES)
@given(st.floats(0, 0.9), st.floats(0, 0.9))
@settings(max_examples=6, deadline=None)
def test_no_regime_errs_by_more_than_its_variation_allows(name: str, phi: float, omega: float) -> None:
    assert frozen.Regime(name, phi, omega).relative().max() <= frozen.relative_limit(phi, omega) + 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_constant_gates_make_the_frozen_solution_exact(name: str) -> None:
    assert frozen.Regime(name, 0.0, 0.0).relative().max() < 1e-9


def test_the_error_of_a_lipschitz_regime_is_of_second_order_in_the_window() -> None:
    def gap(window: float) -> float:
        path = varying(lambda s: 0.5 * (1 + s), lambda s: 0.8 * (1 - 0.5 * s), np.array([0.0, window]))
        return float(np.abs(path - closed(0.5, 0.8, np.array([0.0, window])))[-1])

    assert math.log2(gap(0.02) / gap(0.01)) == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("name", ["slow", "fast", "step"])
def test_three_printed_means_exceed_what_the_printed_variations_allow(name: str) -> None:
    mean, _, phi, omega = frozen.PRINTED[name]
    assert mean / 100 > frozen.relative_limit(phi / 100, omega / 100)
    assert mean / 100 > frozen.relative_limit(omega / 100, phi / 100)


def test_one_printed_mean_exceeds_its_printed_maximum() -> None:
    assert [name for name, (mean, top, _, _) in frozen.PRINTED.items() if mean > top] == ["oscillatory"]
