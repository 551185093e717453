"""A picture of random roads: each from above, and as its car's camera sees it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from nacdrive.common.files import atomic_path
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.envs.udacity_track.terrain import terrain_of
from nacdrive.envs.udacity_track.track import Track

Picture = NDArray[np.uint8]
WIDE, HIGH, CAPTION = 320, 160, 18
"""Pixels of a camera's picture, of a map, and the height of the line beneath them."""
GAP = 6
FINE = 4
"""Shift of the fractional pixels that cv2 draws with."""
ROAD, BRIDGE, TUNNEL, RAIL = (235, 235, 230), (178, 142, 108), (40, 40, 44), (214, 90, 60)
WATER, BEYOND = (112, 156, 196), (228, 230, 226)
JPEG_QUALITY = 78


def gallery(seeds: Sequence[int], columns: int = 4, **road: Any) -> Picture:
    """A sheet of random roads, RGB uint8 [height, width, 3]."""
    env = make_udacity_track("random", **road)
    cells = []
    for seed in seeds:
        env.reset(seed=seed)
        view, _ = env.place(best_place(env.track, seed))
        cells.append(cell(env.track, view))
    env.close()
    cells += [np.full_like(cells[0], 255)] * (-len(cells) % columns)
    return np.concatenate([np.concatenate(cells[k : k + columns], axis=1) for k in range(0, len(cells), columns)])


def best_place(track: Track, seed: int) -> float:
    """Metres along the lap to a place with a view: a tunnel or bridge by two seeds of three, or the sharpest bend."""
    for built in ((track.tunnel, track.bridge), (track.bridge, track.tunnel), ())[seed % 3]:
        if built.any():
            return float(np.flatnonzero(built)[0] - 18) * track.spacing
    return float(np.abs(track.curvature).argmax() - 22) * track.spacing


def cell(track: Track, view: Picture) -> Picture:
    """One road: the camera's picture, the map, and a line of words."""
    caption = np.full((CAPTION, WIDE, 3), 255, dtype=np.uint8)
    words = f"{track.name}  {track.length:.0f} m  R {1 / np.abs(track.curvature).max():.0f} m  {track.style.surface}"
    cv2.putText(caption, words, (3, 13), cv2.FONT_HERSHEY_SIMPLEX, 0.40, (20, 20, 20), 1, cv2.LINE_AA)
    return np.pad(np.concatenate([view, from_above(track), caption]), ((0, GAP), (0, GAP), (0, 0)), constant_values=255)


def from_above(track: Track) -> Picture:
    """A map, north up: land lit from the north-west, water, and the road with what is built along it."""
    low, high = track.line[:, :2].min(axis=0) - 30, track.line[:, :2].max(axis=0) + 30
    scale = min(WIDE / (high[0] - low[0]), HIGH / (high[1] - low[1]))
    middle = (low + high) / 2
    ground = terrain_of(track)
    columns = middle[0] + (np.arange(WIDE) + 0.5 - WIDE / 2) / scale
    places = np.stack(np.meshgrid(columns, middle[1] - (np.arange(HIGH) + 0.5 - HIGH / 2) / scale))
    east = np.clip(places[0], ground.east[0], ground.east[-1])
    north = np.clip(places[1], ground.north[0], ground.north[-1])
    height = ground.at(ground.height, east, north)
    slope_south, slope_east = np.gradient(height, 1 / scale)
    light = np.clip(0.85 + 0.55 * (slope_east + slope_south), 0.45, 1.2)
    rise = np.clip((height - track.water_level) / 45, 0, 1)[:, :, None]
    land = np.array((150, 172, 104)) * (1 - rise) + np.array((186, 160, 128)) * rise
    picture: Picture = np.clip(land * light[:, :, None], 0, 255).astype(np.uint8)
    picture[height < track.water_level] = WATER
    picture[(places != np.stack([east, north])).any(axis=0)] = BEYOND

    def pixels(points: NDArray[np.float64]) -> NDArray[np.int32]:
        flat = (points[:, :2] - middle) * (scale, -scale) + (WIDE / 2, HIGH / 2)
        return np.asarray(np.round(flat * (1 << FINE)), np.int32)

    wide = max(2, round(2 * track.half_width * scale))
    line = pixels(track.line)
    cv2.polylines(picture, [line], True, (60, 60, 60), wide + 2, cv2.LINE_AA, FINE)
    cv2.polylines(picture, [line], True, ROAD, wide, cv2.LINE_AA, FINE)
    pairs = np.stack([line, np.roll(line, -1, axis=0)], axis=1)
    for built, colour in ((track.bridge, BRIDGE), (track.tunnel, TUNNEL)):
        if built.any():
            cv2.polylines(picture, list(pairs[built]), False, colour, wide + 1, cv2.LINE_AA, FINE)
    for side, sign in enumerate((-1, 1)):
        at = pixels(track.line[:, :2] - track.left * (sign * (track.half_width + 1.5 / scale)))
        both = np.stack([at, np.roll(at, -1, axis=0)], axis=1)[track.rails[:, side]]
        cv2.polylines(picture, list(both), False, RAIL, 1, cv2.LINE_AA, FINE)
    return picture


def write_gallery(path: Path, sheet: Picture) -> None:
    """Write a sheet as ``path``, whose ending names the format; a picture that is there is replaced."""
    with atomic_path(path) as partial:
        blue_first = cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR)
        _, coded = cv2.imencode(path.suffix, blue_first, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
        partial.write_bytes(coded.tobytes())
