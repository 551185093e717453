"""Speed of the built-in track, and whether its geometric driver keeps to the road.

    python benchmarks/lake.py [--frames 300] [--seeds 10] [--laps 3]

Processor seconds of this one process are counted, not the wall clock: they mean something on a busy machine, too. The
laps are driven without drawing, at ten decisions a second; no wheel may leave the asphalt.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tyro

from nacdrive.common.runs import package_versions
from nacdrive.common.statistics import proportion
from nacdrive.drivers.pure_pursuit import PurePursuit
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.envs.udacity_track.env import UdacityTrackEnv
from nacdrive.envs.udacity_track.track import TRACKS


@dataclass(frozen=True)
class Config:
    """Speed and laps of the built-in track."""

    frames: int = 300
    """Pictures, spread over the lap, of one round."""
    rounds: int = 5
    """Rounds; the quickest counts."""
    seeds: int = 10
    """Drives of the geometric driver per track."""
    laps: float = 3
    """Laps of each drive."""


def seconds(work: Callable[[], None], rounds: int) -> float:
    """Processor seconds of the quickest round."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return best


def speeds(track: str, config: Config) -> str:
    """A row of the table of speeds."""
    env, three = make_udacity_track(track), make_udacity_track(track, cameras=("center", "left", "right"))
    places = np.linspace(0, env.track.length, config.frames)
    cost = {}
    for name, made in (("one camera", env), ("three cameras", three)):
        made.reset(seed=0)
        cost[name] = seconds(lambda made=made: views(made, places), config.rounds) / config.frames
    env.reset(seed=0)
    driver = PurePursuit()
    driver.reset(env)
    env.place(0.0, speed=10.0)
    cost["physics"] = seconds(lambda: steps(env, driver, config.frames), config.rounds) / config.frames
    env.place(0.0, speed=10.0)
    count = config.frames // env.repeat
    cost["env.step"] = seconds(lambda: [env.step(driver.act()) for _ in range(count)] and None, 3) / count
    cost["reset"] = seconds(lambda: [env.reset(seed=seed) for seed in range(5)] and None, 2) / 5
    env.close()
    three.close()
    return (
        f"| {track} | {1 / cost['one camera']:.0f} | {1 / cost['three cameras']:.0f} | {1 / cost['physics']:.0f} "
        f"| {1 / cost['env.step']:.0f} | {cost['reset'] * 1000:.0f} |"
    )


def views(env: UdacityTrackEnv, places: np.ndarray) -> None:
    """Pictures along the lap, the car set down at each place without a world of its own."""
    for s in places:
        point, heading = env.track.at(s)
        env.car.path.set_pos(*point)
        env.car.path.set_h(np.degrees(heading) - 90)
        env.look()


def steps(env: UdacityTrackEnv, driver: PurePursuit, count: int) -> None:
    """Steps of 0.02 s along the road, without a picture."""
    for _ in range(count // env.repeat):
        action = driver.act()
        for _ in range(env.repeat):
            env.advance(action.steering, action.throttle - action.brake)


def laps(track: str, config: Config) -> str:
    """A row of the table of laps."""
    env = make_udacity_track(track, randomize=False)
    clean, offsets, times = 0, [], []
    for seed in range(config.seeds):
        env.reset(seed=seed)
        driver, kept = PurePursuit(), True
        driver.reset(env)
        while kept and env.track_position.driven < config.laps * env.track_position.length:
            action = driver.act()
            for _ in range(env.repeat):
                env.advance(action.steering, action.throttle - action.brake)
                kept = kept and env.wheels_off() == 0 and not env.is_lost()
            offsets.append(abs(env.track_position.offset))
        clean += kept
        # A drive that has left the road has not driven all of its laps.
        times.append(env.t_s * env.track_position.length / env.track_position.driven)
    env.close()
    low, high = proportion(clean, config.seeds)
    return (
        f"| {track} | {clean} of {config.seeds} ({low:.0%} to {high:.0%}) | {np.mean(offsets):.2f} "
        f"| {max(offsets):.2f} | {np.mean(times):.1f} | {env.track_position.length / np.mean(times):.1f} |"
    )


def main(config: Config) -> None:
    """Print both tables."""
    print("| track | frames/s, one camera | three cameras | steps of 0.02 s /s | env.step/s (repeat 5) | reset, ms |")
    print("|---|---|---|---|---|---|")
    for track in TRACKS:
        print(speeds(track, config), flush=True)
    print(f"\n| track | {config.laps:g} laps, no wheel off (95 %) | mean offset, m | largest | s per lap | m/s |")
    print("|---|---|---|---|---|---|")
    for track in TRACKS:
        print(laps(track, config), flush=True)
    print(f"\nload {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {package_versions()}")


if __name__ == "__main__":
    main(tyro.cli(Config))
