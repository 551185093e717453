"""Where a car is on a course: along it, beside it, how far it has come. To the right is positive throughout."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from nacdrive.envs.udacity_track.track import Course

REACH = 25
"""Points of the centre line, ahead and behind, among which the nearest one is looked for."""


class TrackPosition:
    """Follows a car along the centre line; the nearest point is looked for near the last one only."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.spacing, self.length = course.spacing, course.length
        self.index = 0
        self.s = 0.0
        """Metres along the lap, 0 .. length."""
        self.offset = 0.0
        """Metres to the right of the centre line."""
        self.driven = 0.0
        """Metres forward along the centre line since ``start``."""

    def start(self, place: NDArray[np.float64]) -> None:
        """Look for ``place`` [3] on the whole course and count from there."""
        self.find(place)
        self.driven = 0.0

    def find(self, place: NDArray[np.float64]) -> None:
        """Look for ``place`` [3] on the whole course without counting the way there."""
        self.index = int(((self.course.line[:, :2] - place[:2]) ** 2).sum(axis=1).argmin())
        self._measure(place)

    def follow(self, place: NDArray[np.float64]) -> None:
        """The car has moved to ``place`` [3]: update everything, count the way."""
        near = (self.index + np.arange(-REACH, REACH + 1)) % len(self.course.line)
        self.index = int(near[((self.course.line[near, :2] - place[:2]) ** 2).sum(axis=1).argmin()])
        before = self.s
        self._measure(place)
        self.driven += (self.s - before + self.length / 2) % self.length - self.length / 2

    def _measure(self, place: NDArray[np.float64]) -> None:
        away = place[:2] - self.course.line[self.index, :2]
        left = self.course.left[self.index]
        self.offset = -float(away @ left)
        ahead = float(away @ (left[1], -left[0]))
        self.s = (self.index * self.spacing + ahead) % self.length

    def heading_error(self, heading: float) -> float:
        """Radians by which ``heading`` (counter-clockwise from east) points to the right of the road."""
        _, along = self.course.at(self.s)
        return (along - heading + math.pi) % (2 * math.pi) - math.pi

    def curvature(self) -> float:
        """Of the road here, 1/m; positive in a right bend."""
        return -float(self.course.curvature[self.index])

    def beyond_edge(self, places: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of ``places`` [n, 2], all within a car's length, lie beyond the edge of the asphalt."""
        near = (self.index + np.arange(-3, 4)) % len(self.course.line)
        away = places[:, None] - self.course.line[near, :2]
        index = (away**2).sum(axis=2).argmin(axis=1)
        sideways = (away[np.arange(len(places)), index] * self.course.left[near[index]]).sum(axis=1)
        beyond: NDArray[np.bool_] = np.abs(sideways) > self.course.half_width
        return beyond
