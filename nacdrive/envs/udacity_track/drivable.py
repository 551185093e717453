"""Whether a closed road can be driven: it keeps clear of itself, and a car steered by pure pursuit stays on it.

A quick look, for roads that are being drawn; whether a car on springs and tyres keeps to them is tried in the tests.
"""

from __future__ import annotations

import math

import numpy as np

from nacdrive.envs.udacity_track.car import FULL_LOCK, TOP_SPEED, WHEELBASE
from nacdrive.envs.udacity_track.track import Array, Track

CLEARANCE = 22.0
"""Metres that two parts of the road's middle keep from each other, unless one leads to the other in a bend."""
BEND = 0.58
"""Least ratio of straight distance to distance along the road: a half circle has 0.64."""
COARSE = 3
"""Points of the line to one that is compared."""
STEP_M = 1.5
"""Metres between two decisions of the car that tries the road."""
LATERAL = 7.0
"""Sideways acceleration that it takes bends with, m/s²."""
BRAKING = 5.0
LEAD_M, LEAD_S = 3.5, 0.45
"""Metres, and seconds of travel, by which the point that it steers at lies ahead."""
LOCK_SHARE = 0.9
"""Share of the full lock that it may need."""


def keeps_clear(line: Array, spacing: float, clearance: float = CLEARANCE) -> bool:
    """Whether a closed ``line`` [N, 2], points ``spacing`` metres apart, keeps ``clearance`` metres from itself."""
    points = line[::COARSE]
    count = len(points)
    between = np.arange(count)
    along = np.minimum(between, count - between) * (COARSE * spacing)
    squares = (points**2).sum(axis=1)
    distance2 = squares[:, None] + squares[None, :] - 2 * points @ points.T
    needed = np.minimum(clearance, BEND * along)
    # Row i of the distances against the distances along the road from point i.
    turned = needed[(between[None, :] - between[:, None]) % count]
    return bool((distance2 >= turned * turned - 1e-6).all())


def speed_limits(curvature: Array, spacing: float, top_speed: float, lateral: float, braking: float) -> list[float]:
    """Speed at every point from which all bends ahead can be reached at theirs, m/s, and never above ``top_speed``.

    ``curvature`` is that of a closed road, at points ``spacing`` metres apart, 1/m; ``lateral`` the sideways
    acceleration that bends are taken with, and ``braking`` the deceleration before them, m/s².
    """
    limits: list[float] = np.sqrt(lateral / np.maximum(np.abs(curvature), lateral / top_speed**2)).tolist()
    slowing = 2 * braking * spacing
    following = limits[0]
    for _ in range(2):
        for index in range(len(limits) - 1, -1, -1):
            following = min(limits[index], math.sqrt(following * following + slowing))
            limits[index] = following
    return limits


def farthest_off(track: Track, top_speed: float = TOP_SPEED) -> float:
    """Metres from the middle, at most, of a massless car steered by pure pursuit; infinite beyond its lock."""
    east, north, headings = track.line[:, 0].tolist(), track.line[:, 1].tolist(), track.heading.tolist()
    limits = speed_limits(track.curvature, track.spacing, top_speed, LATERAL, BRAKING)
    count, spacing = len(east), track.spacing
    lock = LOCK_SHARE * math.radians(FULL_LOCK)
    heading = headings[0]
    # The rear axle.
    x, y = east[0] - WHEELBASE / 2 * math.cos(heading), north[0] - WHEELBASE / 2 * math.sin(heading)
    farthest, at = 0.0, 0
    for k in range(int(count * spacing / STEP_M * 1.05)):
        place = k * STEP_M / spacing
        at = int(place) % count
        ahead = int(place + (LEAD_M + LEAD_S * limits[at] + WHEELBASE / 2) / spacing) % count
        to_x, to_y = east[ahead] - x, north[ahead] - y
        cos, sin = math.cos(heading), math.sin(heading)
        reach2 = to_x * to_x + to_y * to_y
        turn = 2 * (cos * to_y - sin * to_x) / reach2
        if abs(turn) * WHEELBASE > math.tan(lock):
            return math.inf
        heading += turn * STEP_M
        x, y = x + STEP_M * math.cos(heading - turn * STEP_M / 2), y + STEP_M * math.sin(heading - turn * STEP_M / 2)
        following = (at + round(STEP_M / spacing)) % count
        off_x, off_y = x + WHEELBASE / 2 * cos - east[following], y + WHEELBASE / 2 * sin - north[following]
        along = headings[following]
        farthest = max(farthest, abs(off_x * math.sin(along) - off_y * math.cos(along)))
    return farthest
