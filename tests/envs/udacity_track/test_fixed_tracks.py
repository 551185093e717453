"""The two named tracks stay what they were: shipped numbers and recordings are of these roads and these pictures."""

from __future__ import annotations

import numpy as np
import pytest

from nacdrive.envs.udacity_track import make_udacity_track

# Of the version that the shipped policies were measured with: length, sum of the curvature's size, sum of the heights,
# and two coordinates of the line; mean grey of 4 x 8 parts of one picture (since the cameras hang crooked, as the
# simulator's, in a light as bright as its).
GOLDEN = {
    "lake": (
        (1239.9316, 12.759, 2498.8295, 96.6059, 293.6939),
        [
            [57.48, 92.6, 141.35, 139.67, 120.24, 84.55, 69.0, 76.84],
            [73.66, 87.38, 98.57, 73.58, 71.76, 79.58, 77.86, 79.6],
            [83.2, 65.48, 58.07, 58.59, 58.16, 60.99, 79.11, 88.03],
            [58.17, 78.27, 96.96, 110.83, 104.07, 80.24, 49.54, 38.09],
        ],
    ),
    "mountain": (
        (1279.1556, 24.7292, 20034.342, 132.4358, 273.7567),
        [
            [122.96, 130.4, 138.32, 124.35, 131.73, 108.43, 123.71, 111.0],
            [80.83, 83.44, 78.01, 66.22, 63.19, 83.58, 49.07, 45.17],
            [95.71, 81.95, 64.95, 58.87, 59.58, 62.28, 86.19, 91.27],
            [58.53, 78.15, 96.9, 112.46, 110.36, 89.88, 66.29, 59.37],
        ],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_fixed_track_and_its_pictures_are_those_of_the_shipped_numbers(name: str) -> None:
    numbers, parts = GOLDEN[name]
    env = make_udacity_track(name)
    env.reset(seed=3)
    frame, _ = env.place(300.0)
    road = env.track
    found = road.length, np.abs(road.curvature).sum(), road.line[:, 2].sum(), road.line[137, 0], road.line[700, 1]
    np.testing.assert_allclose(found, numbers, atol=6e-4)
    # Another processor may round another pixel; a changed thing changes a part by more.
    np.testing.assert_allclose(frame.reshape(4, 40, 8, 40, 3).mean(axis=(1, 3, 4)), parts, atol=0.1)
    env.close()
