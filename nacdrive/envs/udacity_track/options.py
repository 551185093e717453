"""The options of random roads and of what is wrong with a road; imports nothing heavy."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Literal

from annotated_types import Interval

from nacdrive.common.errors import UserError, unknown_name
from nacdrive.common.options import LARGEST, Options, Share, flag

RANDOM = "random"
"""A track of its own for every episode; ``random:SEED`` is one of them."""
MOST_CARS, MOST_PATCHES, MOST_SLOW = 60, 400, 30
USUAL_TOP_SPEED_MPH = 30.0
"""The simulator's own."""


class RoadOptions(Options):
    """Random roads, what is wrong with a road, and what its car can do."""

    road_difficulty: Share | None = None
    """udacity-track, random roads: bends, width, hills and banking, from 0 (as gentle as lake) to 1 (as tight, narrow
    and steep as mountain); 0.5 if not given."""
    scene_variety: Share | None = None
    """udacity-track, random roads: how far surfaces, lines, edges, weather, season, hour are from lake's, 0 to 1; 0.5
    if not given."""
    missing_marks: Share | None = None
    """udacity-track: share of the lap, 0 to 1, on which all painted lines and kerbs have gone."""
    patches: Annotated[int | None, Interval(ge=0, le=MOST_PATCHES)] = None
    """udacity-track: how many patches and stains lie on the road."""
    parked_cars: Annotated[int | None, Interval(ge=0, le=MOST_CARS)] = None
    """udacity-track: how many cars stand at the edges of the road, half on the asphalt."""
    slow_cars: Annotated[int | None, Interval(ge=0, le=MOST_SLOW)] = None
    """udacity-track: how many cars drive in the right lane at 3 to 6 m/s, to be passed."""
    car_top_speed: Annotated[float | None, Interval(ge=30, le=60)] = None
    """udacity-track: what the car does at most, in miles per hour; 30 if not given, as the simulator's."""
    camera_mount: Literal["scene", "straight"] | None = None
    """udacity-track: scene (if not given): the cameras look to the right by 0.7 degrees and are rolled by 1.2, as the
    simulator's; straight: without that, for policies that were trained so."""
    sun_elevation: Annotated[float | None, Interval(ge=5, le=90)] = None
    """udacity-track: degrees of the sun above the horizon, in the day's direction; the day's own if not given."""

    def check(self, track: str | None) -> None:
        """Refuse options of random roads where ``track`` is none of them."""
        for name in ("road_difficulty", "scene_variety"):
            if getattr(self, name) is not None and not is_random(track):
                raise UserError(f"{flag(name)} is for random roads: add --track {RANDOM}, or leave it out.")


ROAD_OPTIONS = tuple(field.name for field in fields(RoadOptions))


def is_random(track: str | None) -> bool:
    """Whether ``track`` means random roads, in general or one of them."""
    return track is not None and track.partition(":")[0] == RANDOM


def road_seed(track: str) -> int | None:
    """The seed in ``random:SEED``; None for ``random``."""
    _, colon, text = track.partition(":")
    if not colon:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= LARGEST):
        raise UserError(f"--track {track}: the seed of a random road is a whole number from 0 to {LARGEST}.")
    return int(text)


def check_track(track: str, fixed: tuple[str, ...]) -> None:
    """Refuse what is neither one of the ``fixed`` tracks nor random."""
    if is_random(track):
        road_seed(track)
    elif track not in fixed:
        raise unknown_name("track", track, (*fixed, RANDOM))
