"""Roads without end: a closed road from a seed, bends of all radii, hills, banking, bridges, tunnels, guard rails.

A draw that crosses itself, comes too near to itself or cannot be driven is thrown away, counted, and drawn again.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.envs.udacity_track.drivable import farthest_off, keeps_clear
from nacdrive.envs.udacity_track.outline import bent, border_of, clump, rounded_corners, swayed
from nacdrive.envs.udacity_track.track import Array, RoadStyle, Track, directions, evenly_spaced, rounded

STREAM = 0x60AD
"""Keeps the random numbers of roads apart from those of days and starts, which come of the same seeds."""
MOST_DRAWS = 200
"""Draws after which the generator itself must be wrong."""
LENGTHS = 640.0, 1150.0
"""Metres of a lap, about."""
WHEELS_INSIDE = 1.15
"""Metres between the middle of a car and its outermost wheel, askew and with a reserve."""
LEAST_RADIUS = 36.0, 9.5
"""Metres: of the tightest bends of an easy and of a difficult road; those of the two fixed ones."""
STEEPEST = 0.025, 0.115
"""Metres up per metre."""
MOST_BANK = 0.07
TUNNEL_CLEARANCE = 34.0
"""Metres from a tunnel to other parts of the road."""
HIGHEST_BRIDGE = 9.0
"""Metres above the water."""


class UndrivableError(Exception):
    """What was drawn is no road for a car."""


@lru_cache(maxsize=4)
def draw_road(seed: int, difficulty: float, variety: float) -> Track:
    """The road of ``seed``, drivable at any speed of the car; the same arguments give the same road.

    ``difficulty`` and ``variety`` are 0 (as gentle, and laid and painted, as the lake track) .. 1 (as tight, narrow and
    steep as the mountain track; surfaces, lines and edges of all kinds).
    """
    for attempt in range(MOST_DRAWS):
        with suppress(UndrivableError):
            return attempt_road(seed, attempt, difficulty, variety)
    raise RuntimeError(f"{MOST_DRAWS} draws of the road of seed {seed} at difficulty {difficulty} cannot be driven")


def attempt_road(seed: int, attempt: int, difficulty: float, variety: float) -> Track:
    """Draw number ``attempt`` of a seed; ``UndrivableError`` if it comes too near to itself or cannot be driven."""
    rng = np.random.default_rng([STREAM, seed, attempt])
    half_width = float(rng.uniform(*mixed((4.4, 5.4), (3.4, 4.4), difficulty)))
    line = draw_line(rng, difficulty, half_width)
    spacing = float(np.linalg.norm(line[1] - line[0]))
    if not keeps_clear(line, spacing):
        raise UndrivableError("it comes too near to itself")
    heading, curvature = directions(line)
    heights = draw_heights(rng, len(line), spacing, difficulty)
    steepness = float(rng.uniform(0, 1)) if rng.random() < 0.3 + 0.5 * difficulty else 0.0
    bank = smoothed(MOST_BANK * steepness * np.tanh(40 * curvature), 6 / spacing)
    water_level = float(heights.min() - rng.uniform(1.0, 4.0))
    structures = Structures(rng, line, curvature, heights - water_level, spacing)
    style = random_style(np.random.default_rng([STREAM, seed, attempt, 1]), variety)
    track = Track(
        name=f"random:{seed}",
        line=np.c_[line, heights],
        heading=heading,
        curvature=curvature,
        half_width=half_width,
        bridge=structures.bridge,
        earth_edge=structures.earth,
        water_level=water_level,
        relief=float(rng.uniform(4, 14 + 26 * difficulty)),
        lake=draw_lake(rng, line),
        # Level on bridges, and gently so on the way there.
        bank=bank * np.clip(1 - 2.2 * smoothed(structures.bridge.astype(float), 8), 0, 1),
        tunnel=structures.tunnel,
        rails=structures.rails,
        style=style,
        relief_seed=int(rng.integers(2**31)),
        road_seed=seed,
        redraws=attempt,
    )
    if not farthest_off(track) < half_width - WHEELS_INSIDE:
        raise UndrivableError("a car would leave it")
    return track


def mixed(easy: tuple[float, float], hard: tuple[float, float], difficulty: float) -> tuple[float, float]:
    """Bounds between those of easy and of difficult roads."""
    low, high = (a + (b - a) * difficulty for a, b in zip(easy, hard, strict=True))
    return low, high


def draw_line(rng: np.random.Generator, difficulty: float, half_width: float) -> Array:
    """The middle of the road from above, [N, 2], a point per metre; ``UndrivableError`` if a bend is too tight."""
    least = LEAST_RADIUS[0] * (LEAST_RADIUS[1] / LEAST_RADIUS[0]) ** difficulty
    side = float(rng.uniform(*mixed((84, 104), (46, 66), difficulty)))
    count = max(2, round((rng.uniform(*LENGTHS) / side - 2) / 2))
    points = bent(
        border_of(clump(rng, count)), rng, side, shift=0.05 + 0.17 * difficulty, straight=float(rng.uniform(0.2, 0.9))
    )
    line = swayed(rounded_corners(points, rng, least * 1.12), rng)
    smooth = evenly_spaced(rounded(np.c_[line, np.zeros(len(line))], 3.0 + 3.0 * (1 - difficulty)))[:, :2]
    # Inside the tightest bend there must be room for the edge and the slope beside it.
    if np.abs(directions(smooth)[1]).max() > 1 / max(0.85 * least, half_width + 4.0):
        raise UndrivableError("a bend is too tight")
    return smooth[::-1].copy() if rng.random() < 0.5 else smooth


def draw_heights(rng: np.random.Generator, count: int, spacing: float, difficulty: float) -> Array:
    """Metres above the sea of each point, [count]: waves, scaled to the steepest slope that is drawn."""
    along = 2 * np.pi * np.arange(count) / count
    waves = range(1, 7)
    total = sum(
        rng.standard_normal() / wave**1.2 * np.sin(wave * along + phase)
        for wave, phase in zip(waves, rng.uniform(0, 2 * np.pi, len(waves)), strict=True)
    )
    heights: Array = np.asarray(total)
    steepest = np.abs(np.diff(heights, append=heights[:1])).max() / spacing
    most = STEEPEST[0] + (STEEPEST[1] - STEEPEST[0]) * difficulty
    heights = heights * (most * rng.uniform(0.25, 1.0) / steepest)
    return np.asarray(heights - heights.min() + 1.2)


def smoothed(values: Array, sigma: float) -> Array:
    """Values along a closed line, smoothed by a Gaussian of ``sigma`` points."""
    gain = np.exp(-2 * (np.pi * np.fft.rfftfreq(len(values)) * sigma) ** 2)
    return np.fft.irfft(np.fft.rfft(values) * gain, len(values))


def draw_lake(rng: np.random.Generator, line: Array) -> tuple[float, float, float]:
    """Centre and radius of a hollow beside the road."""
    at = int(rng.integers(len(line)))
    angle, away = rng.uniform(0, 2 * np.pi), rng.uniform(35, 75)
    east, north = line[at] + away * np.array((np.cos(angle), np.sin(angle)))
    return float(east), float(north), float(rng.uniform(20, 60))


class Structures:
    """What is built along the road: bridges, tunnels, guard rails, and edges of bare earth; no two where one is."""

    def __init__(
        self, rng: np.random.Generator, line: Array, curvature: Array, above_water: Array, spacing: float
    ) -> None:
        count = len(line)
        self.rng, self.count, self.spacing = rng, count, spacing
        gentle = np.abs(curvature) < 1 / 45
        lonely = self._lonely(line)
        self.taken = np.zeros(count, dtype=bool)
        self.bridge = self._built(0.45, (36, 80), gentle & (above_water < HIGHEST_BRIDGE))
        self.tunnel = self._built(0.40, (28, 70), gentle & lonely)
        self.earth = np.zeros(count, dtype=bool)
        for _ in range(int(rng.integers(0, 3))):
            self.earth |= self._built(0.7, (20, 60), np.ones(count, dtype=bool))
        self.rails = self._rails(curvature)

    def _built(self, chance: float, lengths: tuple[float, float], fit: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """With probability ``chance`` a stretch that is free and all ``fit``; else nowhere."""
        built = np.zeros(self.count, dtype=bool)
        wanted, length = self.rng.random() < chance, round(self.rng.uniform(*lengths) / self.spacing / 4) * 4
        starts = self.rng.integers(0, self.count // 4 - length // 4, 12) * 4
        if wanted:
            for start in starts.tolist():
                stretch = slice(start, start + length)
                around = np.arange(start - 12, start + length + 12) % self.count
                if fit[stretch].all() and not self.taken[around].any():
                    built[stretch] = True
                    self.taken |= built
                    break
        return built

    def _lonely(self, line: Array) -> NDArray[np.bool_]:
        """Where no other part of the road is near, [N]."""
        points = line[::4]
        square = ((points[:, None] - points[None]) ** 2).sum(axis=2)
        between = np.abs(np.arange(len(points))[:, None] - np.arange(len(points)))
        along = np.minimum(between, len(points) - between) * 4 * self.spacing
        alone = ((square > TUNNEL_CLEARANCE**2) | (along < 1.5 * TUNNEL_CLEARANCE)).all(axis=1)
        return np.repeat(alone, 4)[: self.count]

    def _rails(self, curvature: Array) -> NDArray[np.bool_]:
        """At the outside of bends and along some stretches, at one side or both; with some roads nowhere, [N, 2]."""
        rng = self.rng
        kind = rng.random()
        rails = np.zeros((self.count, 2), dtype=bool)
        if kind > 0.35:
            # A left bend has its outside at the right.
            bend = smoothed(curvature, 5)
            rails[:, 0], rails[:, 1] = bend < -1 / 60, bend > 1 / 60
        if kind > 0.7:
            for _ in range(int(rng.integers(1, 4))):
                start, length = int(rng.integers(self.count)), int(rng.uniform(40, 160))
                rails[np.arange(start, start + length) % self.count, int(rng.integers(2))] = True
        # As on the land: none where walls are.
        return rails & ~(self.bridge | self.tunnel)[:, None]


def random_style(rng: np.random.Generator, variety: float) -> RoadStyle:
    """A road's looks; ``variety`` 0 .. 1 is how far it may be from the standard one."""

    def one_of(usual: str, others: tuple[str, ...], shares: tuple[float, ...]) -> Any:
        """The usual one, or with a probability that grows with ``variety`` one of the others."""
        unusual = rng.random() < variety
        other = str(rng.choice(others, p=np.array(shares) / sum(shares)))
        return other if unusual else usual

    # Everything is drawn whatever comes of it, so that one choice leaves the others alone.
    surface = one_of("asphalt", ("asphalt", "concrete", "cobbles", "gravel"), (6, 2, 0.6, 1))
    edge = one_of("double", ("double", "solid", "dashed", "none"), (2, 5, 2, 1.2))
    centre = one_of("none", ("none", "dashed", "solid", "double"), (2, 4, 1.5, 1.5))
    kerbs = one_of("bends", ("bends", "everywhere", "none"), (2, 1, 3))
    shoulder = one_of("concrete", ("concrete", "gravel", "earth"), (1, 1.5, 1.5))
    white_edges, white_centre = (bool(rng.random() < 0.7 * variety) for _ in range(2))
    line_m = float(rng.uniform(0.10, 0.10 + 0.12 * variety)) if variety else 0.13
    dash = ((8, 8), (4, 4), (4, 8), (12, 4))[int(rng.integers(4))] if variety else (8, 8)
    if surface == "gravel":
        # Nobody paints lines on gravel.
        edge, centre, kerbs = "none", "none", "none"
    return RoadStyle(surface, edge, centre, white_edges, white_centre, line_m, dash, kerbs, shoulder)
