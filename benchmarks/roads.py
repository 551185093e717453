"""Random roads: how long one takes to come, and whether the geometric driver keeps to all of them.

    python benchmarks/roads.py [--resets 40] [--laps 60] [--slow-cars 6]

Processor time and the wall clock of resets, each on a new road; the laps are driven without drawing, at 12.5 decisions
a second and as fast as the car goes, and no wheel may leave the asphalt, nor another car be touched.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import numpy as np
import tyro

from nacdrive.common.runs import package_versions
from nacdrive.common.statistics import proportion
from nacdrive.drivers.pure_pursuit import PurePursuit
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.envs.udacity_track.env import UdacityTrackEnv

DIFFICULTIES = (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class Config:
    """Speed and laps of random roads."""

    resets: int = 40
    """Roads whose resets are timed, for each difficulty."""
    laps: int = 60
    """Roads that the geometric driver laps once, for each difficulty."""
    first: int = POLICY_TEST.start
    """Seed of the first road."""
    slow_cars: int | None = None
    """How many of them are to be passed on each lap."""


def resets(difficulty: float, config: Config) -> str:
    """A row of the table of resets."""
    env = make_udacity_track("random", road_difficulty=difficulty)
    env.reset(seed=config.first - 1)
    processor, wall, redraws, frames = [], [], [], []
    for seed in range(config.first, config.first + config.resets):
        began = time.process_time(), time.perf_counter()
        env.reset(seed=seed)
        processor.append(1e3 * (time.process_time() - began[0]))
        wall.append(1e3 * (time.perf_counter() - began[1]))
        redraws.append(env.track.redraws)
        frames.append(frame_ms(env))
    env.close()
    return (
        f"| {difficulty:g} | {np.median(processor):.0f} | {np.percentile(processor, 95):.0f} | {np.median(wall):.0f} "
        f"| {np.mean(redraws):.1f} | {1e3 / np.median(frames):.0f} |"
    )


def frame_ms(env: UdacityTrackEnv, count: int = 12) -> float:
    """Processor milliseconds of a picture, over pictures spread along the lap."""
    began = time.process_time()
    for s in np.linspace(0, env.track.length, count):
        point, heading = env.track.at(s)
        env.car.path.set_pos(*point)
        env.car.path.set_h(np.degrees(heading) - 90)
        env.look()
    return 1e3 * (time.process_time() - began) / count


def laps(difficulty: float, config: Config) -> str:
    """A row of the table of laps."""
    env = make_udacity_track("random", road_difficulty=difficulty, randomize=False, slow_cars=config.slow_cars)
    clean, farthest, room, speeds, tightest = 0, [], [], [], []
    for seed in range(config.first, config.first + config.laps):
        env.reset(seed=seed)
        driver, kept, most = PurePursuit(), True, 0.0
        driver.reset(env)
        while kept and env.track_position.driven < env.track.length:
            action = driver.act()
            for _ in range(4):
                env.advance(action.steering, action.throttle - action.brake)
                kept = kept and env.wheels_off() == 0 and not env.is_lost() and not env.car.touched()
            most = max(most, abs(env.track_position.offset))
        clean += kept
        farthest.append(most)
        room.append(env.track.half_width - most)
        # A drive that has left the road has not driven all of its lap.
        speeds.append(env.track_position.driven / env.t_s)
        tightest.append(1 / np.abs(env.track.curvature).max())
    env.close()
    low, high = proportion(clean, config.laps)
    return (
        f"| {difficulty:g} | {clean} of {config.laps} ({low:.0%} to {high:.0%}) | {np.mean(farthest):.2f} "
        f"| {max(farthest):.2f} | {min(room):.2f} | {np.mean(speeds):.1f} | {min(tightest):.0f} |"
    )


def main(config: Config) -> None:
    """Print both tables."""
    print("| difficulty | reset, processor ms, median | 95 % below | wall ms, median | redraws | frames/s |")
    print("|---|---|---|---|---|---|")
    for difficulty in DIFFICULTIES:
        print(resets(difficulty, config), flush=True)
    print("\n| difficulty | laps, no wheel off | farthest off, m: mean | most | least to the edge | m/s | R, m |")
    print("|---|---|---|---|---|---|---|")
    for difficulty in DIFFICULTIES:
        print(laps(difficulty, config), flush=True)
    versions = package_versions()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    names = ("python", "numpy", "panda3d", "opencv-python-headless")
    print(f"\nload {load:.1f}; " + ", ".join(f"{name} {versions[name]}" for name in names if name in versions))


if __name__ == "__main__":
    main(tyro.cli(Config))
