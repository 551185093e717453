"""What a seed decides: the light, the colours, the textures and what stands beside the road."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Colour = tuple[float, float, float]


@dataclass(frozen=True)
class Appearance:
    """One day on the track. Colours are RGB in 0 .. 1; the standard values are near the simulator's own."""

    sun: Colour = (0.55, -0.35, 0.76)
    """Unit vector towards the sun: east, north, up."""
    ambient: float = 0.50
    """Light in the shade, 0 .. 1."""
    exposure: float = 1.22
    """All brightness times this; road, land and sky are as bright as in recordings of the real lake track."""
    zenith: Colour = (0.295, 0.385, 0.557)
    horizon: Colour = (0.557, 0.639, 0.721)
    asphalt: Colour = (0.64, 0.64, 0.57)
    asphalt_contrast: float = 0.12
    verge: Colour = (0.36, 0.35, 0.32)
    """The dark strip between the two yellow lines."""
    marking: Colour = (0.86, 0.72, 0.20)
    white_paint: Colour = (0.88, 0.88, 0.86)
    """Of lines that are white on every day."""
    concrete: Colour = (0.66, 0.66, 0.62)
    gravel: Colour = (0.56, 0.53, 0.47)
    kerb: Colour = (0.90, 0.45, 0.42)
    sand: Colour = (0.86, 0.74, 0.42)
    earth: Colour = (0.66, 0.47, 0.30)
    grass: Colour = (0.62, 0.60, 0.28)
    rock: Colour = (0.58, 0.58, 0.52)
    water: Colour = (0.50, 0.66, 0.84)
    leaves: Colour = (0.85, 0.95, 0.75)
    hood: Colour = (0.58, 0.57, 0.50)
    trees: int = 520
    bushes: int = 320
    shadows: int = 0
    """How many trees throw a shadow over the road."""
    shadow_depth: float = 0.45
    """Share of the light that a shadow takes away."""
    paint_seed: int = 0
    """Seed of the textures, and of where things stand."""
    houses: int = 0
    boulders: int = 0


def random_appearance(rng: np.random.Generator) -> Appearance:
    """Another day: the standard appearance with everything varied."""
    base = Appearance()
    height, direction = np.deg2rad(rng.uniform(18, 75)), rng.uniform(0, 2 * np.pi)
    # One warm or cold cast over everything, as at different hours.
    cast = 1 + rng.uniform(-0.10, 0.10) * np.array([1.0, 0.1, -1.0])

    def near(colour: Colour, spread: float) -> Colour:
        return unit(np.array(colour) * cast * rng.uniform(1 - spread, 1 + spread) * rng.uniform(0.94, 1.06, 3))

    grey = float(rng.uniform(0.42, 0.78))
    clear = float(rng.uniform(0, 1))
    return Appearance(
        sun=unit_vector(height, direction),
        ambient=float(rng.uniform(0.35, 0.65)),
        exposure=float(rng.uniform(0.85, 1.46)),
        zenith=near(unit(np.array(base.zenith) * clear + np.array((0.54, 0.56, 0.59)) * (1 - clear)), 0.12),
        horizon=near(base.horizon, 0.12),
        asphalt=near((grey, grey, grey * 0.92), 0.05),
        asphalt_contrast=float(rng.uniform(0.03, 0.16)),
        verge=near(base.verge, 0.3),
        marking=near(base.marking if rng.random() < 0.7 else (0.85, 0.85, 0.82), 0.15),
        concrete=near(base.concrete, 0.3),
        kerb=near(base.kerb, 0.2),
        sand=near(base.sand, 0.25),
        earth=near(base.earth, 0.3),
        grass=near(base.grass if rng.random() < 0.6 else (0.36, 0.52, 0.24), 0.25),
        rock=near(base.rock, 0.3),
        water=near(base.water, 0.25),
        leaves=near(base.leaves, 0.3),
        hood=near(base.hood, 0.4),
        trees=int(rng.integers(200, 800)),
        bushes=int(rng.integers(100, 500)),
        shadows=int(rng.integers(0, 60)),
        shadow_depth=float(rng.uniform(0.25, 0.6)),
        paint_seed=int(rng.integers(2**31)),
    )


SEASONS: dict[str, dict[str, Colour]] = {
    "summer": {},
    "spring": {"grass": (0.34, 0.56, 0.22), "leaves": (0.80, 1.0, 0.60), "sand": (0.50, 0.58, 0.30)},
    "autumn": {"grass": (0.58, 0.50, 0.24), "leaves": (1.0, 0.62, 0.32), "sand": (0.66, 0.52, 0.28)},
    "winter": {"grass": (0.90, 0.92, 0.95), "leaves": (0.72, 0.80, 0.78), "sand": (0.86, 0.88, 0.92),
               "earth": (0.70, 0.68, 0.68)},
    "desert": {"grass": (0.84, 0.66, 0.42), "leaves": (0.70, 0.72, 0.45), "sand": (0.92, 0.76, 0.50),
               "earth": (0.74, 0.50, 0.32)},
    "rocks": {"grass": (0.36, 0.34, 0.32), "leaves": (0.55, 0.62, 0.42), "sand": (0.46, 0.43, 0.40),
              "earth": (0.38, 0.34, 0.31)},
}  # fmt: skip
"""Colours of the land that a season, or another climate, changes."""


def varied_day(rng: np.random.Generator, variety: float) -> Appearance:
    """A day beside a random road; with ``variety``, 0 .. 1, ever more of other seasons, weather and times of day."""
    day = random_appearance(rng)
    # All of it is drawn whatever comes of it, so that one choice leaves the others alone.
    season = str(rng.choice(list(SEASONS))) if rng.random() < variety else "summer"
    weather, hour = rng.random() / max(variety, 1e-9), rng.random() / max(variety, 1e-9)
    dim, height, direction = rng.uniform(0.45, 0.75), np.deg2rad(rng.uniform(6, 16)), rng.uniform(0, 2 * np.pi)
    changes: dict[str, Any] = dict(SEASONS[season])
    if hour < 0.18:
        # Dusk or dawn: a low sun, warm and weak.
        changes |= {
            "sun": unit_vector(height, direction),
            "exposure": day.exposure * float(dim),
            "horizon": unit(np.array((0.92, 0.66, 0.46))),
            "zenith": unit(np.array((0.36, 0.36, 0.52))),
        }
    if weather < 0.25:
        # Overcast: light from everywhere, no shadows, a grey sky.
        grey = float(rng.uniform(0.45, 0.66))
        changes |= {"ambient": 0.86, "shadows": 0, "zenith": (grey, grey, grey * 1.03), "horizon": (grey * 1.08,) * 3}
    if weather < 0.12:
        # Wet: a dark road whose stones do not show.
        changes |= {"asphalt": unit(np.array(day.asphalt) * 0.62), "asphalt_contrast": 0.4 * day.asphalt_contrast}
    changes |= {"houses": int(rng.integers(0, 26) * variety), "boulders": int(rng.integers(0, 140) * variety)}
    return replace(day, **changes)


def at_elevation(day: Appearance, degrees: float) -> Appearance:
    """``day`` with its sun so many degrees above the horizon, in the same direction."""
    return replace(day, sun=unit_vector(np.deg2rad(degrees), np.arctan2(day.sun[1], day.sun[0])))


def unit_vector(height: float, direction: float) -> tuple[float, float, float]:
    """Towards a place in the sky, both in radians."""
    level = np.cos(height)
    return float(level * np.cos(direction)), float(level * np.sin(direction)), float(np.sin(height))


def unit(colour: NDArray[np.float64]) -> Colour:
    """A colour clipped to 0 .. 1."""
    red, green, blue = np.clip(colour, 0, 1)
    return float(red), float(green), float(blue)
