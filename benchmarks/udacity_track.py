"""Frames a second of the built-in tracks: one camera picture, what of it is pixels, a whole step, several processes.

    python benchmarks/udacity_track.py [--frames 400] [--seconds 10]

A picture is 320 x 160 pixels, drawn by Panda3D's software renderer on one core. Times are processor time of single
pictures along a lap: the median, and the fastest tenth, which says more where other programs are at work. *Without
pixels* is the same picture drawn 16 x 8 pixels large: what remains is choosing what is in view, and its corners.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import gymnasium
import numpy as np
import tyro
from panda3d.core import BoundingVolume

import nacdrive.envs  # noqa: F401
from nacdrive.common.runs import package_versions
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.envs.udacity_track.env import UdacityTrackEnv

SCENES = (("lake", False), ("lake", True), ("mountain", True), ("random:4000003", True))
SMALL = 16 / 320, 8 / 160
PLACES = 20


@dataclass(frozen=True)
class Config:
    """Speed of the scene."""

    frames: int = 400
    """Pictures that are timed, for each scene."""
    seconds: float = 10.0
    """Wall-clock time for which the environments of each number of processes step."""


def times_ms(env: UdacityTrackEnv, frames: int, share: tuple[float, float] = (1.0, 1.0)) -> np.ndarray:
    """Processor milliseconds of single pictures, at places along the lap in turn; ``share`` of width and height."""
    region = env.cameras.buffer.get_display_region(env.cameras.buffer.get_num_display_regions() - 1)
    region.set_dimensions(0, share[0], 0, share[1])
    found = []
    for number in range(frames):
        point, heading = env.track.at(env.track.length * (number % PLACES) / PLACES)
        env.car.path.set_pos(*point)
        env.car.path.set_h(np.degrees(heading) - 90)
        if number < PLACES:
            env.look()
        began = time.thread_time()
        env.look()
        found.append(1e3 * (time.thread_time() - began))
    region.set_dimensions(0, 1, 0, 1)
    return np.array(found)


def in_view(env: UdacityTrackEnv) -> tuple[float, float]:
    """Pieces of geometry in view, and their vertices, in the mean over the lap."""
    camera = env.cameras.rig.find("**/+Camera")
    view = camera.node().get_lens().make_bounds()
    pieces = vertices = 0
    for number in range(PLACES):
        point, heading = env.track.at(env.track.length * number / PLACES)
        env.cameras.rig.set_pos(*point)
        env.cameras.rig.set_h(np.degrees(heading) - 90)
        for node in env.cameras.rig.get_top().find_all_matches("**/+GeomNode"):
            for geom in node.node().get_geoms():
                bounds = geom.get_bounds().make_copy()
                bounds.xform(node.get_mat(camera))
                if view.contains(bounds) != BoundingVolume.IF_no_intersection:
                    pieces, vertices = pieces + 1, vertices + geom.get_vertex_data().get_num_rows()
    return pieces / PLACES, vertices / PLACES


def scene(track: str, randomize: bool, frames: int) -> str:
    """A row of the table of scenes."""
    env = make_udacity_track(track, randomize=randomize)
    env.reset(seed=1)
    whole, small = times_ms(env, frames), times_ms(env, frames, SMALL)
    median, quick = np.percentile(whole, (50, 10))
    pieces, vertices = in_view(env)
    began = time.process_time()
    for _ in range(200):
        env.step(np.array([0.0, 0.3], dtype=np.float32))
        if env.is_lost():
            env.put_back()
    step = 1e3 * (time.process_time() - began) / 200
    env.close()
    name = track if randomize else f"{track}, plain"
    numbers = f"{pieces:.0f} | {vertices:.0f} | {median:.2f} | {1e3 / median:.0f} | {quick:.2f} | {1e3 / quick:.0f}"
    return f"| {name} | {numbers} | {np.percentile(small, 10):.2f} | {step:.2f} |"


def several(mode: str, count: int, seconds: float) -> str:
    """A row of the table of vector environments."""
    envs = gymnasium.make_vec("nacdrive/UdacityTrack-v0", num_envs=count, vectorization_mode=mode, randomize=False)
    envs.reset(seed=1)
    actions = np.tile(np.array([0.0, 0.3], dtype=np.float32), (count, 1))
    envs.step(actions)
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        envs.step(actions)
        steps += count
    rate = steps / (time.perf_counter() - began)
    envs.close()
    return f"| {count} | {mode} | {rate:.0f} |"


def main(config: Config) -> None:
    """Print both tables."""
    head = ("scene", "in view: pieces", "vertices", "ms", "frames/s", "fastest tenth, ms", "frames/s")
    print("| " + " | ".join((*head, "without pixels, ms", "step, ms")) + " |")
    print("|---|---|---|---|---|---|---|---|---|")
    for track, randomize in SCENES:
        print(scene(track, randomize, config.frames), flush=True)
    print("\n| environments | | steps/s, 5 steps of the physics and one picture each |\n|---|---|---|")
    for mode, count in (("sync", 1), ("sync", 4), ("async", 2), ("async", 4)):
        print(several(mode, count, config.seconds), flush=True)
    versions = package_versions()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    names = ("python", "numpy", "panda3d", "gymnasium")
    print(f"\nload {load:.1f}; " + ", ".join(f"{name} {versions[name]}" for name in names if name in versions))


if __name__ == "__main__":
    main(tyro.cli(Config))
