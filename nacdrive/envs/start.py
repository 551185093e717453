"""How an episode begins, where it does not begin in the middle of the road, and when a lap ends; nothing heavy."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Annotated, Any, Literal, get_args

import numpy as np
from annotated_types import Interval

from nacdrive.common.options import Options

LapRule = Literal["gymnasium-1.4", "all-tiles-95"]
"""When a lap of CarRacing is finished; see ``nacdrive.envs.carracing.lazy``."""
LAP_RULES: tuple[LapRule, ...] = get_args(LapRule)
"""The first is that of the installed Gymnasium, and holds where nobody says otherwise."""
BESIDE_M, MOST_MPS = 14.0, 15.0
"""How far from the middle of the road, where nobody says otherwise, and how fast, a bad start is at most."""


class Start(Options):
    """How an episode begins."""

    start_offset: Annotated[float | None, Interval(ge=-30, le=30)] = None
    """carracing, udacity-track: metres right of the road's middle, off it too, where an episode begins (default 0)."""
    start_heading: Annotated[float | None, Interval(ge=-180, le=180)] = None
    """carracing, udacity-track: degrees to the right of the road in which the car points at first; 0 if not given."""
    start_speed: Annotated[float | None, Interval(ge=0, le=100)] = None
    """carracing, udacity-track: metres per second at which the car begins; 0 if not given."""

    @property
    def place(self) -> dict[str, Any]:
        """``offset`` (m), ``heading`` (radians) and ``speed`` (m/s), as far as given: options of a ``reset``."""
        place = {name.removeprefix("start_"): value for name, value in self.given.items()}
        return place | ({"heading": math.radians(place["heading"])} if "heading" in place else {})


def bad_start(rng: np.random.Generator, far_m: float = BESIDE_M) -> dict[str, float]:
    """Up to ``far_m`` from the middle of the road, turned any way, half of the time at rest: options of a ``reset``."""
    speed = float(rng.uniform(0, MOST_MPS) * rng.integers(2))
    return {
        "offset": float(rng.uniform(-far_m, far_m)),
        "heading": float(rng.uniform(-math.pi, math.pi)),
        "speed": speed,
    }


START_OPTIONS = tuple(field.name for field in fields(Start))
MIDDLE = Start()
"""In the middle of the road, along it, at rest."""
