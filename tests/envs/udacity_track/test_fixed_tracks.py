"""The two named tracks stay what they were: shipped numbers and recordings are of these roads and these pictures."""

from __future__ import annotations

import numpy as np
import pytest

from nacdrive.envs.udacity_track import make_udacity_track

# Of the version that the shipped policies were measured with: length, sum of the curvature's size, sum of the heights,
# and two coordinates of the line; mean grey of 4 x 8 parts of one picture.
GOLDEN = {
    "lake": (
        (1239.9316, 12.759, 2498.8295, 96.6059, 293.6939),
        [
            [47.05, 85.23, 141.9, 140.63, 118.12, 75.56, 56.52, 62.14],
            [57.98, 71.37, 89.75, 66.58, 59.02, 65.08, 66.5, 66.22],
            [69.2, 56.73, 47.57, 48.01, 47.73, 48.96, 62.04, 70.15],
            [47.46, 59.78, 77.66, 90.71, 87.85, 69.78, 44.53, 30.08],
        ],
    ),
    "mountain": (
        (1279.1556, 24.7292, 20034.342, 132.4358, 273.7567),
        [
            [120.85, 131.8, 139.58, 123.99, 132.37, 102.47, 119.07, 103.73],
            [66.38, 72.7, 66.34, 55.42, 55.59, 67.99, 42.97, 37.51],
            [80.22, 67.67, 55.85, 47.7, 49.74, 49.65, 68.87, 74.82],
            [48.38, 59.62, 77.72, 90.84, 93.49, 76.93, 58.15, 47.55],
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
