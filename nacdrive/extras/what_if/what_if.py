"""What if? Answers about a held moment of a drive: what an edited policy decides there, and how it would drive on.

A ghost is no guess: the episode is driven once more from its start, in the same environment with the same seed and the
actions that were taken, up to the moment; from there on the edited policy drives, and beside it the unedited one.
"""

from __future__ import annotations

import base64
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.datasets.images import encode_jpeg
from nacdrive.drivers.base import Driver, DriverWrapper, Rerun
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv, Frame, Info
from nacdrive.envs.registry import action_names
from nacdrive.extras.what_if.interventions import IntervenedPolicy, edits_from_json, occlusion_map
from nacdrive.models.effects import EffectMeter
from nacdrive.models.policy import Policy
from nacdrive.rollout.rollout import rollout
from nacdrive.web.protocol import road_json
from nacdrive.web.stream import finite

CELLS = 12
GHOST_S = 10.0
POINTS_AT_ONCE = 5
LARGEST_PICTURE = 160
"""Columns of the pictures that a ghost's drive is shown by; larger ones are thinned out."""
JPEG_LEVELS = 6.0
"""Mean difference in grey levels between a picture and what is left of it in a JPEG, at most."""


NOT_THE_SAME = (
    "driven once more (options, version, noise of the wheel), it does not come to the same picture: no ghost."
)


def unwrapped(driver: Driver, env: DrivingEnv) -> Driver:
    """A driver with nothing around it."""
    return driver


@dataclass(frozen=True)
class Simulation:
    """How to drive an episode once more; pickles if its functions do."""

    make_env: Callable[[int], DrivingEnv]
    """Seed -> the environment that the episode was driven in."""
    wrap: Callable[[Driver, DrivingEnv], Driver] = unwrapped
    """What stands around the policy in it, such as a speed control."""
    load_expert: Callable[[], Driver | None] | None = None
    """Who rides along, for the line that the expert drives."""
    pictures_apart: float = 0.0
    """Mean difference in grey levels up to which two pictures are one; ``JPEG_LEVELS`` where frames were kept so."""


@dataclass(frozen=True)
class Moment:
    """A held decision: the frames that it was made of, and how the car had come there."""

    frames: Sequence[NDArray[np.uint8]]
    """The window and the frame before it, oldest first, as far as there are any."""
    times: Sequence[float]
    """When they were taken, in seconds since the episode began."""
    seed: int = 0
    """Seed of the episode."""
    past: Sequence[Action] = field(default=(), repr=False)
    """All actions of the episode before this decision."""

    @property
    def key(self) -> tuple[int, int, float, bytes]:
        """The same for the same moment of the same drive."""
        return self.seed, len(self.past), self.times[-1], hashlib.sha256(self.frames[-1].tobytes()).digest()


class ReplayedPast(DriverWrapper):
    """Does what was done up to a moment, and lets another driver take over there.

    The other one is asked from decision ``first`` on, and of frames taken from ``since_s`` on, which may be more where
    some are lost or late, so that what it remembers is true when it takes over.
    """

    def __init__(self, driver: Driver, past: Sequence[Action], first: int = 0, since_s: float = math.inf) -> None:
        super().__init__(driver)
        self.past, self.first, self.since_s = past, first, since_s - 1e-6

    def reset(self, env: DrivingEnv) -> None:
        super().reset(env)
        self._step = 0

    def act(self, frame: Frame, info: Info) -> Action:
        step, self._step = self._step, self._step + 1
        is_remembered = step >= self.first or float(info.get("frame_t_s", info["t_s"])) >= self.since_s
        own = super().act(frame, info) if is_remembered else None
        return self.past[step] if step < len(self.past) or own is None else own


class WhatIf:
    """Answers questions about moments of a policy's drives; without ``simulation`` the world cannot be made again."""

    def __init__(self, policy: Policy, simulation: Simulation | None = None) -> None:
        self.policy, self.simulation = policy, simulation
        self._kept: dict[str, IntervenedPolicy] = {}
        self._meters: dict[str, EffectMeter] = {}
        self._base: dict[Any, dict[str, Any]] = {}
        self._unedited: dict[Any, list[dict[str, Any]]] = {}

    def edited(self, edits: Any) -> IntervenedPolicy:
        """The policy under edits given as JSON; the last few are kept."""
        key = repr(edits)
        if key not in self._kept:
            self._kept[key] = IntervenedPolicy(self.policy, edits_from_json(edits))
            while len(self._kept) > 8:
                del self._kept[next(iter(self._kept))]
        return self._kept[key]

    def decide(self, moment: Moment, edits: Any) -> dict[str, Any]:
        """What is decided at ``moment``, ``base`` and ``edited``, each with ``why``, the latter with ``neurons``."""
        began = time.perf_counter()
        if moment.key not in self._base:
            self._base = {moment.key: self._explained([], moment)}
        base = self._base[moment.key]
        decisions = {"base": base, "edited": self._explained(edits, moment) if edits else base}
        return {**decisions, "ms": (time.perf_counter() - began) * 1e3}

    def _explained(self, edits: Any, moment: Moment) -> dict[str, Any]:
        policy, key = self.edited(edits), repr(edits)
        made = decision(policy, moment)
        if key not in self._meters:
            self._meters = {key: policy.meter(), **dict(list(self._meters.items())[:7])}
        why = self._meters[key].measure(policy.last_decision()).explain(action_names(policy.task))
        neurons = {name: as_json(values) for name, values in policy.neurons().items()} if edits else {}
        return {**made, "why": why, "neurons": neurons}

    def occlusion(self, moment: Moment, edits: Any) -> dict[str, Any]:
        """Which part of the picture the decision under ``edits`` hangs on; see ``occlusion_map``."""
        began = time.perf_counter()
        window = self.policy.config.window + 1
        shares = occlusion_map(self.edited(edits), moment.frames[-window:], moment.times[-window:], CELLS)
        return {"map": shares.tolist(), "cells": CELLS, "ms": (time.perf_counter() - began) * 1e3}

    def ghost(self, moment: Moment, edits: Any, seconds: float = GHOST_S) -> Iterator[dict[str, Any]]:
        """Drive on from ``moment``: the edited policy, then, once for a moment, the unedited one.

        Yields:
            ``{}`` while the past is driven once more (time for others), ``{"who": "edited" or "unedited", "points":
            [...]}`` with the points driven since (of the edited policy with its ``picture``), at last ``{"effect":
            {...}, "road": ...}``, the road as of ``road_json``.
        """
        lines: dict[str, list[dict[str, Any]]] = {"edited": [], "unedited": []}
        last: dict[str, Any] = {}
        for who, line in lines.items():
            kept = self._unedited.get((moment.key, seconds)) if who == "unedited" else None
            if kept is not None:
                line += kept
                yield {"who": who, "points": kept}
                continue
            sent = 0
            # One of its own, for others are asked between two pieces of this answer.
            policy = IntervenedPolicy(self.policy, edits_from_json(edits if who == "edited" else []))
            for tick in self._drive_on(policy, moment, seconds, last):
                if tick is not None:
                    line.append({**point(tick), "picture": picture(tick)} if who == "edited" else point(tick))
                if tick is None or len(line) - sent >= POINTS_AT_ONCE:
                    yield {"who": who, "points": line[sent:]} if line else {}
                    sent = len(line)
            yield {"who": who, "points": line[sent:]}
        self._unedited = {(moment.key, seconds): lines["unedited"]}
        yield {"effect": effect(lines["edited"], lines["unedited"]), **last}

    def lap(self, moment: Moment, who: str) -> Iterator[dict[str, Any]]:
        """The line of an episode: of ``who`` "expert", or as it was "driven" up to ``moment``; points as they come."""
        if self.simulation is None:
            raise UserError("this world cannot be driven once more.")
        expert = self.simulation.load_expert() if self.simulation.load_expert is not None else None
        driver = expert if who == "expert" else Rerun(moment.past) if moment.past else None
        if driver is None:
            raise UserError(
                "no expert knows this track." if who == "expert" else "nothing was driven before this moment."
            )
        points: list[dict[str, Any]] = []
        with closing(self.simulation.make_env(moment.seed)) as env:
            for tick in rollout(env, driver, moment.seed):
                if who == "driven" and tick.step == len(moment.past) - 1:
                    self._same_picture(tick, moment, -2)
                points.append(point(tick))
                if len(points) >= POINTS_AT_ONCE:
                    yield {"points": points}
                    points = []
            yield {"points": points, "episode_return": tick.episode_return, "done": True}

    def _drive_on(self, policy: Policy, moment: Moment, seconds: float, about: dict[str, Any]) -> Iterator[Tick | None]:
        """Ticks of ``seconds`` from ``moment`` on, None for each one before; ``about`` takes up the ``road``."""
        if self.simulation is None:
            raise UserError("a ghost needs a world that can be made again: a simulator that connects cannot.")
        with closing(self.simulation.make_env(moment.seed)) as env:
            first = len(moment.past) - policy.config.window
            inner = ReplayedPast(PolicyDriver(policy), moment.past, first, moment.times[0])
            driver = ReplayedPast(self.simulation.wrap(inner, env), moment.past)
            for tick in rollout(env, driver, moment.seed):
                if tick.step == 0:
                    about["road"] = road_json(env)
                if tick.step < len(moment.past):
                    yield None
                    continue
                if tick.step == len(moment.past):
                    self._same_picture(tick, moment)
                yield tick
                if tick.t_s >= moment.times[-1] + seconds:
                    return
            if tick.step < len(moment.past):
                raise UserError(NOT_THE_SAME)

    def _same_picture(self, tick: Tick, moment: Moment, place: int = -1) -> None:
        assert self.simulation is not None
        shown = moment.frames[place]
        apart = float(np.abs(tick.frame.astype(np.int16) - shown).mean()) if tick.frame.shape == shown.shape else 255.0
        # A drive knows when the picture was taken, a recording when it was decided on.
        times = (tick.t_s, tick.taken_s)
        if apart > self.simulation.pictures_apart or min(abs(t_s - moment.times[place]) for t_s in times) > 1e-3:
            raise UserError(NOT_THE_SAME)


def decision(policy: IntervenedPolicy, moment: Moment) -> dict[str, Any]:
    """What ``policy`` decides after it has seen the frames of ``moment``, as plain JSON."""
    policy.reset()
    for frame, t_s in zip(moment.frames[:-1], moment.times[:-1], strict=True):
        policy.remember(frame, t_s)
    action = policy.step(moment.frames[-1], moment.times[-1])
    logits = None if action.logits is None else [float(x) for x in action.logits]
    return {name: getattr(action, name) for name in ("steering", "throttle", "brake", "choice")} | {"logits": logits}


def as_json(values: NDArray[np.float32]) -> dict[str, Any]:
    """An array as plain JSON: its shape, and its numbers in base64."""
    return {"shape": list(values.shape), "f32": base64.b64encode(values.astype("<f4").tobytes()).decode("ascii")}


def point(tick: Tick) -> dict[str, Any]:
    """One place of a line on the map, as plain JSON."""
    numbers = ("t_s", "x_m", "y_m", "heading_rad", "speed_mps", "progress")
    return {
        **{name: finite(getattr(tick, name)) for name in numbers},
        "steering": tick.action.steering,
        "choice": tick.action.choice,
        "off_road": bool(tick.info.get("off_road", False)),
        "events": list(tick.events),
    }


def picture(tick: Tick) -> str:
    """What was seen, as a small JPEG in base64."""
    step = -(-tick.frame.shape[1] // LARGEST_PICTURE)
    return base64.b64encode(encode_jpeg(tick.frame[::step, ::step])).decode("ascii")


def effect(edited: Sequence[dict[str, Any]], unedited: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What came of the edits, measured on the two lines; times are seconds after the moment, None where it is not so.

    ``decides_otherwise_s`` (first other decision), ``off_road_s`` and ``unedited_off_road_s`` (first leaving of the
    road), ``apart_m`` (greatest distance at the same time), ``ahead`` (progress gained), ``over_s`` (the edited drive
    ended early) and ``seconds`` compared.
    """
    if not edited or not unedited:
        raise UserError("the drive ends with this decision: there is nothing to drive on to.")
    start, last, plain_last = edited[0]["t_s"], edited[-1], unedited[-1]
    both = list(zip(edited, unedited, strict=False))
    other = (
        a["t_s"] - start for a, b in both if a["choice"] != b["choice"] or abs(a["steering"] - b["steering"]) > 0.1
    )
    gaps = [
        float(np.hypot(a["x_m"] - b["x_m"], a["y_m"] - b["y_m"])) for a, b in both if None not in (a["x_m"], b["x_m"])
    ]
    off, plain_off = (
        next((p["t_s"] - start for p in line if p["off_road"] or "off road" in p["events"]), None)
        for line in (edited, unedited)
    )
    known = None not in (last["progress"], plain_last["progress"])
    return {
        "decides_otherwise_s": next(other, None),
        "off_road_s": off,
        "unedited_off_road_s": plain_off,
        "apart_m": max(gaps) if gaps else None,
        "ahead": last["progress"] - plain_last["progress"] if known else None,
        "over_s": last["t_s"] - start if len(edited) < len(unedited) else None,
        "seconds": max(last["t_s"], plain_last["t_s"]) - start,
    }
