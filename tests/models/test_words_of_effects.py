"""A decision in words, to the hundredth."""

from __future__ import annotations

import numpy as np
import pytest

from nacdrive.models.effects import Effects, Part, degrees, hundredths, percent, signed, softmax

PART = Part("head", 0, "head 1", "Without head 1")


@pytest.mark.parametrize(
    ("share", "shown", "two"),
    [(0.0, 0, "0.00"), (0.005, 1, "0.01"), (0.0049, 0, "0.00"), (0.125, 13, "0.13"), (1, 100, "1.00")],
)
def test_shares_are_rounded_halves_up(share: float, shown: int, two: str) -> None:
    assert (percent(share), hundredths(share)) == (shown, two)


def test_a_wheel_and_a_pedal_have_a_side_unless_they_are_nearly_nothing() -> None:
    assert degrees(np.array([-0.25])) == "left 0.25" and degrees(np.array([0.004, -0.5])) == "straight on, brake 0.50"
    assert (
        degrees(np.array([0.3, 0.75])) == "right 0.30, gas 0.75"
        and degrees(np.array([0.3, 0.0])) == "right 0.30, no pedal"
    )
    assert signed(0.0049, "a", "b", "c") == "c" and signed(-0.005, "a", "b", "c") == "a 0.01"


def test_shares_of_scores_sum_to_one_however_large_they_are() -> None:
    shares = softmax(np.array([[1e4, 1e4 + np.log(3)], [0.0, 0.0]]))
    np.testing.assert_allclose(shares, [[0.25, 0.75], [0.5, 0.5]], rtol=1e-6)


def test_a_movement_names_the_choice_or_its_number() -> None:
    scores = np.log(np.array([0.25, 0.75], np.float32))
    effects = Effects((PART,), scores, scores[None, ::-1], ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0)))
    assert effects.movement(0, ("gas", "brake")) == "brake 75 → 25 %"
    assert effects.movement(0, ("gas",)) == "choice 1 75 → 25 %"
    wheel = Effects((PART,), np.array([0.5], np.float32), np.array([[-0.25]], np.float32), ())
    assert wheel.movement(0, ()) == "right 0.50 → left 0.25"
