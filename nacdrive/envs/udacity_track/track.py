"""Tracks: a closed centre line with heights, width and what lies beside it; the two fixed ones; where a car is on one.

No seed changes the two tracks that are named here; ``random_road`` draws others. To the right is positive throughout.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import check_known

Array = NDArray[np.float64]
SPACING = 1.0
"""Metres between two points of a centre line (nearly: a lap has a whole number of them)."""
SHOULDER = 1.3
"""Metres of concrete, kerb or earth beyond the edge of the asphalt."""
REACH = 25
"""Points of the centre line, ahead and behind, among which the nearest one to a moving car is looked for."""


@dataclass(frozen=True)
class RoadStyle:
    """What is laid and painted on a road and along its edges; the usual one is that of the two fixed tracks."""

    surface: Literal["asphalt", "concrete", "cobbles", "gravel"] = "asphalt"
    edge_line: Literal["double", "solid", "dashed", "none"] = "double"
    """At both edges; double: two lines with a dark strip between, as in the simulator."""
    centre_line: Literal["none", "dashed", "solid", "double"] = "none"
    white_edges: bool = False
    """Whether the lines along the edges are white, and not of the day's colour."""
    white_centre: bool = False
    """The same of the line along the middle."""
    line_m: float = 0.13
    dash: tuple[int, int] = (8, 8)
    """Metres of paint and metres without, where a line is dashed; multiples of 4."""
    kerbs: Literal["bends", "everywhere", "none"] = "bends"
    shoulder: Literal["concrete", "gravel", "earth"] = "concrete"


@dataclass(frozen=True, eq=False)
class Track:
    """A closed road. All arrays have one entry per point of the centre line, driven in the order of the points."""

    name: str
    line: Array
    """Points [N, 3] in metres: east, north, up."""
    heading: Array
    """Direction of travel [N] in radians, counter-clockwise from east, continuous (it does not wrap)."""
    curvature: Array
    """Change of heading per metre [N]; positive in a left bend."""
    half_width: float
    """Metres from the centre line to the edge of the asphalt."""
    bridge: NDArray[np.bool_]
    """Where the road is a bridge of stone, between two walls, [N]."""
    earth_edge: NDArray[np.bool_]
    """Where bare earth takes the place of the kerbs, [N]."""
    water_level: float
    """Height of the lake's surface in metres."""
    relief: float
    """Height of the hills around, in metres."""
    lake: tuple[float, float, float]
    """Centre (east, north) and radius of the hollow that the water fills."""
    bank: Array
    """Metres by which the surface rises per metre to the right, [N]."""
    tunnel: NDArray[np.bool_]
    """Where the road runs through a tunnel, [N]."""
    rails: NDArray[np.bool_]
    """Where guard rails stand at the left and at the right side, [N, 2]."""
    style: RoadStyle = RoadStyle()
    relief_seed: int = 20160518
    road_seed: int | None = None
    """What it was drawn from; None for the fixed ones."""
    redraws: int = 0
    """How many draws of that seed were thrown away because they could not be driven."""

    @cached_property
    def spacing(self) -> float:
        """Metres between neighbouring points."""
        return self.length / len(self.line)

    @cached_property
    def length(self) -> float:
        """Metres of one lap, along the ground spec."""
        return float(np.linalg.norm(np.diff(self.line[:, :2], axis=0, append=self.line[:1, :2]), axis=1).sum())

    @cached_property
    def left(self) -> Array:
        """Unit vectors to the left of travel, [N, 2]."""
        return np.stack([-np.sin(self.heading), np.cos(self.heading)], axis=1)

    def at(self, s: float) -> tuple[Array, float]:
        """Point [3] and heading (radians) at ``s`` metres along the lap; ``s`` wraps."""
        count = len(self.line)
        place = s / self.spacing % count
        first = int(place) % count
        second, share = (first + 1) % count, place - int(place)
        turn = (self.heading[second] - self.heading[first] + np.pi) % (2 * np.pi) - np.pi
        return self.line[first] * (1 - share) + self.line[second] * share, float(self.heading[first] + share * turn)


Stretches = Sequence[tuple[float, float]]
"""Parts of a lap: from and to, as shares of it."""
TRACK_SPECS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("tracks.json").read_text(encoding="utf-8"))
"""Arguments of ``fixed_track`` by name. ``lake`` is an easy loop of the size of the simulator's first track,
counter-clockwise as there: every bend can be driven at the top speed. ``mountain`` is a narrow road over hills with
sharp bends: the limits of speed must be known there."""
TRACKS = tuple(TRACK_SPECS)


@cache
def load_track(name: str) -> Track:
    """The track ``lake`` or ``mountain``; computed once, to be left unchanged."""
    check_known("track", name, TRACK_SPECS)
    return fixed_track(name, **TRACK_SPECS[name])


def fixed_track(
    name: str,
    *,
    corners: Sequence[tuple[float, float, float]],
    rounding: float,
    bridge: Stretches,
    earth: Stretches,
    style: Mapping[str, Any],
    lake: Sequence[float],
    **more: Any,
) -> Track:
    """A track past ``corners`` (east, north, up), rounded over metres; ``style``: ``RoadStyle``, more: ``Track``."""
    line = evenly_spaced(rounded(evenly_spaced(np.array(corners, dtype=float), 0.5), rounding / 0.5))
    heading, curvature = directions(line)
    count = len(line)
    more |= {"bridge": stretches(count, bridge), "earth_edge": stretches(count, earth), "bank": np.zeros(count)}
    more |= {"tunnel": np.zeros(count, dtype=bool), "rails": np.zeros((count, 2), dtype=bool)}
    east, north, radius = lake
    return Track(name, line, heading, curvature, lake=(east, north, radius), style=RoadStyle(**style), **more)


def directions(line: Array) -> tuple[Array, Array]:
    """Heading and curvature [N] of a closed line [N, 2 or 3], as ``Track`` has them."""
    ahead = np.roll(line, -1, axis=0) - np.roll(line, 1, axis=0)
    heading = np.unwrap(np.arctan2(ahead[:, 1], ahead[:, 0]))
    turn = (np.roll(heading, -1) - np.roll(heading, 1) + np.pi) % (2 * np.pi) - np.pi
    return heading, turn / np.linalg.norm(ahead[:, :2], axis=1)


def stretches(count: int, parts: Stretches) -> NDArray[np.bool_]:
    """Which of ``count`` points lie in one of ``parts``."""
    share = np.arange(count) / count
    inside = np.zeros(count, dtype=bool)
    for begin, end in parts:
        inside |= (share >= begin) & (share < end)
    return inside


def evenly_spaced(points: Array, spacing: float = SPACING) -> Array:
    """A closed line through ``points`` [n, 3], at even distances in the ground spec."""
    closed = np.concatenate([points, points[:1]])
    along = np.r_[0.0, np.cumsum(np.linalg.norm(np.diff(closed[:, :2], axis=0), axis=1))]
    at = np.linspace(0, along[-1], round(along[-1] / spacing), endpoint=False)
    return np.stack([np.interp(at, along, closed[:, axis]) for axis in range(closed.shape[1])], axis=1)


def rounded(points: Array, sigma: float) -> Array:
    """A closed line smoothed by a Gaussian of ``sigma`` points, heights by one three times as wide."""
    gain = np.exp(-2 * (np.pi * np.fft.rfftfreq(len(points)) * sigma) ** 2)
    return np.fft.irfft(np.fft.rfft(points, axis=0) * np.stack([gain, gain, gain**9], axis=1), len(points), axis=0)


class TrackPosition:
    """Follows a car along the centre line; the nearest point is looked for near the last one only."""

    def __init__(self, track: Track) -> None:
        self.track = track
        self.spacing, self.length = track.spacing, track.length
        self.index = 0
        self.s = 0.0
        """Metres along the lap, 0 .. length."""
        self.offset = 0.0
        """Metres to the right of the centre line."""
        self.driven = 0.0
        """Metres forward along the centre line; whoever begins a drive sets it to 0."""

    def find(self, place: Array) -> None:
        """Look for ``place`` [3] on the whole track without counting the way there."""
        self.index = int(((self.track.line[:, :2] - place[:2]) ** 2).sum(axis=1).argmin())
        self._measure(place)

    def follow(self, place: Array) -> None:
        """The car has moved to ``place`` [3]: update everything, count the way."""
        near = (self.index + np.arange(-REACH, REACH + 1)) % len(self.track.line)
        self.index = int(near[((self.track.line[near, :2] - place[:2]) ** 2).sum(axis=1).argmin()])
        before = self.s
        self._measure(place)
        self.driven += (self.s - before + self.length / 2) % self.length - self.length / 2

    def _measure(self, place: Array) -> None:
        away = place[:2] - self.track.line[self.index, :2]
        left = self.track.left[self.index]
        self.offset = -float(away @ left)
        self.s = (self.index * self.spacing + float(away @ (left[1], -left[0]))) % self.length

    def heading_error(self, heading: float) -> float:
        """Radians by which ``heading`` (counter-clockwise from east) points to the right of the road."""
        _, along = self.track.at(self.s)
        return (along - heading + math.pi) % (2 * math.pi) - math.pi

    def curvature(self) -> float:
        """Of the road here, 1/m; positive in a right bend."""
        return -float(self.track.curvature[self.index])

    def beyond_edge(self, places: Array) -> NDArray[np.bool_]:
        """Which of ``places`` [n, 2], all within a car's length, lie beyond the edge of the asphalt."""
        near = (self.index + np.arange(-3, 4)) % len(self.track.line)
        away = places[:, None] - self.track.line[near, :2]
        index = (away**2).sum(axis=2).argmin(axis=1)
        sideways = (away[np.arange(len(places)), index] * self.track.left[near[index]]).sum(axis=1)
        return np.asarray(np.abs(sideways) > self.track.half_width)
