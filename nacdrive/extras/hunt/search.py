"""Which episodes are driven: first spread over all knobs, then half of them near those that failed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.options import flag
from nacdrive.common.plugins import trusted
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.registry import EnvSpec
from nacdrive.envs.seeds import HUNT
from nacdrive.envs.udacity_track.options import is_random
from nacdrive.rollout.drive import Drive
from nacdrive.rollout.results import Row

Area = Literal["seeds", "roads", "starts", "cameras", "traffic"]
AREAS: tuple[Area, ...] = get_args(Area)
ROUND = 20
"""Episodes that are drawn at a time: what they come to decides where the next ones lie."""
CELLS = 16
"""Into so many ranges each knob is cut, and of so many episodes each gets one (a Latin hypercube)."""
NEAR = 0.1
"""Standard deviation of a knob near a failure, as a share of its range."""
EPISODES = 10_000
"""Seeds of tracks that belong to a seed of the search."""


@dataclass(frozen=True)
class Knob:
    """One option that is turned."""

    option: str
    area: Area
    low: float
    high: float
    usual: float
    words: str
    """For people, such as ``road difficulty``."""
    whole: bool = False

    def at(self, share: float) -> float:
        """The value at a share of the range; what is beyond its ends is reflected."""
        share = 1 - abs(1 - abs(share) % 2)
        value = self.low + share * (self.high - self.low)
        return round(value) if self.whole else float(f"{value:.3g}")

    def share(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)


KNOBS = (
    Knob("road_difficulty", "roads", 0, 1, 0.5, "road difficulty"),
    Knob("scene_variety", "roads", 0, 1, 0.5, "scene variety"),
    Knob("missing_marks", "roads", 0, 1, 0, "share without marks"),
    Knob("patches", "roads", 1, 60, 0, "patches", whole=True),
    Knob("sun_elevation", "roads", 8, 80, 45, "degrees of sun"),
    Knob("speed", "roads", 12, 30, 20, "mph"),
    Knob("start_offset", "starts", -1, 1, 0, "metres off the line at first"),
    Knob("start_heading", "starts", -45, 45, 0, "degrees turned at first"),
    Knob("start_speed", "starts", 0, 1, 0, "m/s at first"),
    Knob("noise", "cameras", 0, 0.15, 0, "noise of the camera"),
    Knob("blackout", "cameras", 0, 0.2, 0, "share of frames black"),
    Knob("delay_steps", "cameras", 1, 2, 0, "decisions by which all frames are late", whole=True),
    Knob("brightness", "cameras", 0.5, 1.5, 1, "brightness"),
    Knob("dropped", "cameras", 0, 0.4, 0, "share of frames lost"),
    Knob("late", "cameras", 1, 2, 0, "decisions by which some frames are late", whole=True),
    Knob("parked_cars", "traffic", 1, 12, 0, "parked cars", whole=True),
    Knob("slow_cars", "traffic", 1, 8, 0, "slow cars", whole=True),
)
"""All of them; of the speed the environment says what is usual."""
REACH = {"carracing": (12.0, 60.0), "udacity-track": (4.0, 13.0)}
"""Farthest start beside the middle of the road (some wheels then stand beside it), and fastest one, in m/s."""


@dataclass(frozen=True)
class Case:
    """One episode; plain data."""

    number: int
    area: Area
    seed: int
    knobs: Mapping[str, float]
    """Options of the command line and their values, where they are not as in the hunt's own drive."""
    near: int | None = None
    """Number of the failure near which it was drawn; None where it was drawn regardless of any."""

    def of(self, drive: Drive) -> Drive:
        camera = {name: value for name, value in self.knobs.items() if name in CAMERA}
        options = {name: value for name, value in self.knobs.items() if name not in CAMERA and name != "speed"}
        return replace(
            drive,
            options={**drive.options, **options},
            camera=replace(drive.camera, **camera),  # type: ignore[arg-type]
            speed_mph=self.knobs.get("speed", drive.speed_mph),
        )


CAMERA = {field.name: field.default for field in fields(CameraNoise)}


def knobs_of(spec: EnvSpec, drive: Drive, areas: Sequence[Area]) -> tuple[Knob, ...]:
    """The knobs of ``areas`` that the environment has and that ``drive`` does not pin by a value of its own."""
    far, fast = REACH.get(spec.name, (1.0, 1.0))
    usual = {"speed": spec.speed_mph}
    pinned = {name for name, value in drive.options.items() if value is not None}
    if drive.speed_mph != spec.speed_mph or drive.driver is not None:
        pinned.add("speed")
    if drive.camera.active:
        pinned |= {*CAMERA}
    if not is_random(drive.track):
        pinned |= {"road_difficulty", "scene_variety"}
    scale = {"start_offset": far, "start_speed": fast}
    return tuple(
        replace(
            knob,
            low=knob.low * scale.get(knob.option, 1),
            high=knob.high * scale.get(knob.option, 1),
            usual=usual.get(knob.option) or knob.usual,
        )
        for knob in KNOBS
        if knob.area in areas and knob.option not in pinned and (knob.option in CAMERA or spec.honours(knob.option))
    )


class Search:
    """An iterator of cases for ``run_jobs``, in rounds; ``add`` tells it what came of each.

    Which cases it gives depends on the seed and on what came of those before, whoever drives them at the same time.
    ``areas`` take turns; one without a knob turns nothing but the seed. ``known`` are rows of an earlier search with
    the same arguments, by the seeds of their episodes; ``more`` says whether another case is wanted beside so many.
    """

    def __init__(
        self,
        knobs: Sequence[Knob],
        areas: Sequence[Area],
        seed: int,
        known: Mapping[int, Row],
        more: Callable[[int], bool],
    ) -> None:
        self.knobs, self.areas, self.known, self.more = tuple(knobs), tuple(areas), known, more
        self.first_seed = HUNT.start + seed % (len(HUNT) // EPISODES) * EPISODES
        self._rng = np.random.default_rng([seed, 0x40A7])
        self._cells: dict[Area, list[NDArray[np.float64]]] = {}
        self._round: list[Case] = []
        self._missing = self._count = 0
        self.failures: list[Case] = []
        self._failed: list[Case] = []

    def __iter__(self) -> Iterator[Case]:
        return self

    def __next__(self) -> Case:
        while True:
            if not self._round:
                if self._missing:
                    raise StopIteration  # until the last results of the round are in
                self.failures += sorted(self._failed, key=lambda case: case.number)
                self._failed = []
                first = self._count
                for number in range(first, first + ROUND):
                    near = self.near(number) if number % 2 and first else None
                    self._round.append(near or self.anywhere(number))
                self._missing = ROUND
            if self._count >= EPISODES or not self.more(self._count):
                raise StopIteration
            case = self._round.pop(0)
            self._count += 1
            row = self.known.get(case.seed)
            if row is None:
                return case
            self.add(case, failed=row["failed"])

    def add(self, case: Case, *, failed: bool) -> None:
        self._missing -= 1
        if failed:
            self._failed.append(case)

    def anywhere(self, number: int) -> Case:
        """A case regardless of what failed; of an area's knobs each is turned or left alone."""
        area = self.areas[(number // 2 if number >= ROUND else number) % len(self.areas)]
        mine = [knob for knob in self.knobs if knob.area == area]
        if not self._cells.get(area):
            cells = np.array([self._rng.permutation(CELLS) for _ in mine]).reshape(len(mine), CELLS)
            self._cells[area] = list(((cells + self._rng.random(cells.shape)) / CELLS).T)
        shares = self._cells[area].pop()
        turned = self._rng.random(len(mine)) < 0.5
        if mine:
            turned[self._rng.integers(len(mine))] = True
        knobs = {knob.option: knob.at(float(share)) for knob, share, on in zip(mine, shares, turned, strict=True) if on}
        return Case(number, area, self.first_seed + number, knobs)

    def near(self, number: int, seed: int | None = None, failures: Sequence[Case] | None = None) -> Case | None:
        """A case on another track with the knobs of a failure (of these, or any) moved a little; None where none is
        known to have any. Areas take turns by chance, so that one that always fails does not take all.
        """
        turned = [case for case in (self.failures if failures is None else failures) if case.knobs]
        if not turned:
            return None
        areas = sorted({case.area for case in turned})
        area = areas[self._rng.integers(len(areas))]
        mine = [case for case in turned if case.area == area]
        case = mine[self._rng.integers(len(mine))]
        by_name = {knob.option: knob for knob in self.knobs}
        knobs = {
            name: by_name[name].at(by_name[name].share(value) + NEAR * float(self._rng.standard_normal()))
            for name, value in case.knobs.items()
        }
        return Case(number, area, self.first_seed + number if seed is None else seed, knobs, near=case.number)


def command(case: Case, drive: Drive) -> str:
    """The line that drives the episode again, with numbers and a film."""
    whole = case.of(drive)
    given = {name: value for name, value in whole.options.items() if value is not None}
    given |= {name: value for name, usual in CAMERA.items() if (value := getattr(whole.camera, name)) != usual}
    given |= {"speed": whole.speed_mph} if whole.speed_mph is not None and whole.driver is None else {}
    if whole.env_spec.honours("track"):
        given["track"] = whole.track if is_random(whole.track) else whole.env_spec.track_of(whole.track, case.seed)
    words = ["nacdrive", "eval", *([str(whole.model)] if whole.driver is None else ["--driver", whole.driver])]
    words += ["--env", whole.env, "--expert", "none", "--seed", str(case.seed), "--episodes", "1"]
    for name, value in given.items():
        words += [flag(name), *map(str, value if isinstance(value, tuple) else (value,))]
    words += [word for module in sorted(trusted()) for word in ("--trust", module)]
    return shlex.join(words)
