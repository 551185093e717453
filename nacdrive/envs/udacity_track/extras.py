"""What is wrong with a road on one day: marks that have gone, patches and stains, cars at its edges and before one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nacdrive.envs.udacity_track.blocks import CAR
from nacdrive.envs.udacity_track.options import RoadOptions
from nacdrive.envs.udacity_track.track import Array, Track
from nacdrive.envs.udacity_track.traffic import SlowCars, draw_slow_cars

GAP_M = 12.0, 45.0
"""Metres of road on which marks are missing at a stretch."""
INWARDS = 0.15
"""Metres by which the middle of a parked car lies inside the edge of the asphalt."""
CAR_EVERY = 14.0
"""Least metres between two parked cars."""
FREE_START = 25.0
"""Metres ahead of a car's start that are free of parked ones."""
Stain = tuple[tuple[int, float, float, float], bool]
"""An oval on the road (point of the centre line, offset to the right, length and width in metres: as ``road.patch``
takes them), and whether it is dark."""


@dataclass(frozen=True)
class ParkedCars:
    """Where cars stand."""

    s: Array
    """Metres along the lap, [n]."""
    offset: Array
    """Metres to the right of the middle of the road, [n]."""
    places: Array
    """On the ground, [n, 3]."""
    turns: Array
    """Radians counter-clockwise from east, [n]."""


@dataclass(frozen=True)
class Extras:
    """One day's faults of a road."""

    bare: NDArray[np.bool_]
    """Where marks are missing, [N]."""
    stains: tuple[Stain, ...]
    cars: ParkedCars
    slow: SlowCars


def draw_extras(track: Track, options: RoadOptions, rng: np.random.Generator, start_s: float) -> Extras:
    """What ``options`` ask for, by ``rng``; the road ahead of ``start_s`` is free of cars."""
    return Extras(
        missing(track, options.missing_marks or 0.0, rng),
        stains(track, options.patches or 0, rng),
        parked(track, options.parked_cars or 0, rng, start_s),
        draw_slow_cars(track, options.slow_cars or 0, rng, start_s),
    )


def missing(track: Track, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Stretches that together are ``share`` of the lap, to within one of them."""
    bare = np.zeros(len(track.line), dtype=bool)
    if share >= 1:
        return ~bare
    while bare.mean() < share:
        begin, length = int(rng.integers(len(bare))), round(rng.uniform(*GAP_M) / track.spacing)
        bare[np.arange(begin, begin + min(length, round(share * len(bare)))) % len(bare)] = True
    return bare


def stains(track: Track, count: int, rng: np.random.Generator) -> tuple[Stain, ...]:
    """``count`` of them, anywhere on the road."""
    result: list[Stain] = []
    for _ in range(count):
        at, offset = int(rng.integers(len(track.line))), float(rng.uniform(-0.9, 0.9)) * track.half_width
        size = float(rng.uniform(1.0, 7.0)), float(rng.uniform(0.5, 2.5))
        result.append(((at, offset, *size), bool(rng.random() < 0.65)))
    return tuple(result)


def parked(track: Track, count: int, rng: np.random.Generator, start_s: float) -> ParkedCars:
    """At most ``count`` cars along the edges where no wall or rail is, no two beside each other."""
    cars: list[tuple[float, ...]] = []
    for _ in range(count * 20):
        if len(cars) == count:
            break
        s, sign = float(rng.uniform(0, track.length)), int(rng.choice((-1, 1)))
        skew = float(rng.normal(0, 0.03))
        index = int(s / track.spacing) % len(track.line)
        near = np.arange(index - 4, index + 5) % len(track.line)
        blocked = (track.bridge | track.tunnel | track.rails[:, int(sign > 0)])[near].any()
        gaps = [abs((s - other + track.length / 2) % track.length - track.length / 2) for other, *_ in cars]
        ahead = (s - start_s) % track.length
        behind = track.length - ahead + FREE_START - CAR[1] * 2
        if blocked or min(gaps, default=np.inf) <= CAR_EVERY or min(ahead, behind) < FREE_START:
            continue
        (east, north, up), heading = track.at(s)
        offset = sign * (track.half_width - INWARDS)
        east, north = east + offset * np.sin(heading), north - offset * np.cos(heading)
        up += track.bank[index] * offset
        cars.append((s, offset, east, north, up, heading + (skew + np.pi * (sign < 0))))
    columns = np.array(cars, dtype=float).reshape(-1, 6)
    return ParkedCars(columns[:, 0], columns[:, 1], columns[:, 2:5], columns[:, 5])
