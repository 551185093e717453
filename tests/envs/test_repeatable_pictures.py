"""A drive is a function of its seed and its actions: not of what its process drew before, nor of its threads."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.carracing.env import CarRacingEnv
from nacdrive.envs.udacity_track import make_udacity_track

Case = tuple[str, int, tuple[tuple[str, Any], ...]]
TRACKS: list[tuple[tuple[str, Any], ...]] = [
    (("track", "lake"),),
    (("track", "mountain"), ("cameras", ("center", "left", "right"))),
    (("track", "random"),),
    (("track", "random"), ("slow_cars", 4), ("parked_cars", 6), ("patches", 8), ("missing_marks", 0.4)),
    (("track", "random"), ("road_difficulty", 1.0), ("scene_variety", 1.0), ("camera_mount", "straight")),
]
LANDS = """
import hashlib
from nacdrive.envs.udacity_track.random_road import draw_road
from nacdrive.envs.udacity_track.terrain import terrain_of
from nacdrive.envs.udacity_track.track import TRACKS, load_track
for road in [*map(load_track, TRACKS), *(draw_road(seed, 0.5, 0.5) for seed in range(4))]:
    print(road.name, hashlib.sha256(terrain_of(road).height.tobytes()).hexdigest())
"""


def cases(count: int) -> list[Case]:
    """Drives on ``count`` roads of the built-in tracks, and a few of CarRacing, with both of its renderers."""
    roads = [("udacity-track", seed, TRACKS[seed % len(TRACKS)]) for seed in range(count)]
    laps = [("carracing", seed, (("renderer", ("official", "fast")[seed % 2]),)) for seed in range(count // 3)]
    return roads + laps


def make(case: Case) -> DrivingEnv:
    return (CarRacingEnv if case[0] == "carracing" else make_udacity_track)(**dict(case[2]))


def digest(case: Case, env: DrivingEnv | None = None) -> str:
    """Of all pictures and places of a few steps, in a new environment or in one that has driven."""
    new = env is None
    env = env or make(case)
    summed = hashlib.sha256()
    frame, info = env.reset(seed=case[1])
    for step in range(4):
        for picture in (frame, *info.get("cameras", {}).values()):
            summed.update(picture.tobytes())
        summed.update(repr([info.get(name) for name in ("x_m", "y_m", "speed_mps", "lane_offset_m")]).encode())
        frame, _, _, _, info = env.step(3 if env.actions else np.array([0.3 * np.sin(step), 1.0], dtype=np.float32))
    if new:
        env.close()
    return summed.hexdigest()


def alone(todo: list[Case]) -> Iterator[str]:
    """``digest`` of each, the only thing that its process draws."""
    with get_context("forkserver").Pool(2, maxtasksperchild=1) as pool:
        yield from pool.imap(digest, todo, chunksize=1)


@pytest.mark.parametrize(
    "count", [3, pytest.param(6, marks=pytest.mark.nightly), pytest.param(50, marks=pytest.mark.soak)]
)
def test_a_drive_is_the_same_first_last_and_in_between(count: int) -> None:
    todo = cases(count)
    first = dict(zip(todo, alone(todo), strict=True))
    order = random.Random(0)
    kept: dict[tuple[Any, ...], DrivingEnv] = {}
    for case in order.sample(todo, len(todo)):
        kind = case[0], case[2]
        # About every second drive is that of an environment that stays alive, and has driven where there are many.
        if kind not in kept and order.random() < 0.5:
            kept[kind] = make(case)
        assert digest(case, kept.get(kind)) == first[case], case
    for env in kept.values():
        env.close()


def test_the_hood_does_not_depend_on_the_first_picture_of_the_process() -> None:
    # After road 27, the hood's matrix on road 36 is within Panda's tolerance of one that its transform cache still has.
    earlier, drive = (("udacity-track", seed, TRACKS[seed % len(TRACKS)]) for seed in (27, 36))
    with get_context("forkserver").Pool(1, maxtasksperchild=1) as pool:
        assert list(alone([drive])) == pool.map(digest, [earlier, drive], chunksize=2)[1:]


@pytest.mark.nightly
def test_the_land_is_the_same_with_any_number_of_threads() -> None:
    # The libraries of linear algebra share large products out, and sum in another order then.
    lands = [
        subprocess.Popen(
            [sys.executable, "-c", LANDS],
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for threads in (1, 4)
    ]
    texts = [process.communicate()[0] for process in lands]
    assert len(texts[0].split()) == 12 and texts[0] == texts[1]
