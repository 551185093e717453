"""The Gymnasium environment that a recording was made in, as far as its own words tell."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium

from nacdrive.envs.registry import BOTH, CARRACING, UDACITY_TRACK
from nacdrive.envs.udacity_track.options import ROAD_OPTIONS


class GymSpec(NamedTuple):
    """The Gymnasium environment that a recording was made in."""

    json: str
    """As ``gymnasium.envs.registration.EnvSpec.to_json`` gives it."""
    pedals: int
    """Numbers for the pedals in its actions: 2 (throttle, brake), 1 (throttle less brake), 0 where one chooses."""


def gym_spec_of(meta: Mapping[str, Any]) -> GymSpec | None:
    """The environment of a recording; ``meta`` is what ``recording.json`` says.

    None where Gymnasium cannot make it again: a simulator on the wire, a log, several tracks in turn, a user's own one.
    """
    recipe, source = meta.get("recipe", {}), meta.get("source")
    repeat = recipe.get("repeat", CARRACING.repeat)
    if source == CARRACING.source and "max_frames" in recipe:
        options = {"repeat": 1 if recipe.get("every_frame") else repeat, "max_frames": recipe["max_frames"]}
        options |= {name: recipe[name] for name in ("renderer", "rule", "continuous") if name in recipe}
        return GymSpec(spec_json("nacdrive/CarRacing-v0", options), 2 if recipe.get("continuous") else 0)
    track = recipe.get("track", BOTH)
    if source == UDACITY_TRACK.source and track in UDACITY_TRACK.tracks:
        options = {"track": track, "repeat": UDACITY_TRACK.repeat, "max_seconds": recipe.get("seconds", 600.0)}
        options |= {name: recipe[name] for name in ("repeat", *ROAD_OPTIONS) if name in recipe}
        options |= {"cameras": ("center", "left", "right")} if recipe.get("sides") else {}
        return GymSpec(spec_json("nacdrive/UdacityTrack-v0", options), 1)
    return None


def spec_json(name: str, options: Mapping[str, Any]) -> str:
    """The specification of a registered environment with these options, as JSON."""
    spec = copy.deepcopy(gymnasium.spec(name))
    spec.kwargs.update(options)
    return str(spec.to_json())
