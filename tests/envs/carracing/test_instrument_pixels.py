"""Which pixels of a frame an instrument covers, and what CarRacing's tyres hold."""

from __future__ import annotations

import numpy as np
import pytest

from nacdrive.envs.carracing import tyres
from nacdrive.envs.carracing.sprites import as_shown, covered


@pytest.mark.parametrize(
    ("low", "high", "first", "shares"),
    [
        # Of ten pixels of the window each; the outline's last pixel is filled too.
        (0, 9, 0, [1]),
        (5, 9, 0, [0.5]),
        (5, 14, 0, [0.5, 0.5]),
        (5, 29, 0, [0.5, 1, 1]),
        (12, 33, 1, [0.8, 1, 0.4]),
        (-7, 4, 0, [0.5]),
        (35, 60, 3, [0.5]),
        (12, 12, 1, [0.1]),
        (10, 24.5, 1, [1, 0.5]),
    ],
)
def test_a_bar_covers_shares_of_pixels(low: float, high: float, first: int, shares: list[float]) -> None:
    begin, share = covered(low, high, 10.0, 4)
    assert begin == first and share.tolist() == pytest.approx(shares)


def test_a_colour_loses_two_levels_and_grey_is_its_luma() -> None:
    assert as_shown((255, 1, 102), rgb=True).tolist() == [253, 0, 100]
    assert as_shown((255, 255, 255), rgb=False).tolist() == pytest.approx([253])
    assert as_shown((2, 102, 2), rgb=False).tolist() == pytest.approx([58.7])


def test_the_tyres_hold_what_gymnasiums_numbers_say() -> None:
    assert pytest.approx(3.24) == tyres.WHEELBASE and pytest.approx(0.54) == tyres.WHEEL_RADIUS
    # Four wheels, each of which holds 1e6 times the square of a scale of 0.02, by the mass of the car.
    assert np.isclose(tyres.FRICTION * tyres.MASS, 4 * 1e6 * 0.02**2)
