"""CarRacing in frames a second of one core: the official environment, ours in every way of drawing, and EnvPool.

    python benchmarks/carracing_env.py [--frames 400] [--rounds 5] [--envpool /path/to/python] [--vector]

Every frame is drawn, unless a row says otherwise; what is counted is processor time, so that other jobs disturb little;
the median over rounds is told, resets aside. All drive the same laps by the same five actions; EnvPool has tracks of
its own and takes steering and pedals: it is given what the five actions mean. It is measured where it is installed,
here or in the environment of another Python that ``--envpool`` names (python -m venv v; v/bin/pip install envpool).
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro

import nacdrive.envs  # noqa: F401
from nacdrive.common.runs import package_versions
from nacdrive.drivers.pure_pursuit import PurePursuit
from nacdrive.envs.carracing.fast_renderer import FastCar, FastCarRacing

SEEDS = range(1_000_000, 1_000_100)
WARM_UP = 60
"""Frames before the clock runs: the zoom of the first second, which is drawn in another way."""
MEANS = np.array([[0, 0, 0], [0.6, 0, 0], [-0.6, 0, 0], [0, 0.2, 0], [0, 0, 0.8]], dtype=np.float32)
"""Steering, gas and brake of the five actions."""
ENVPOOL = """
import sys, time, numpy as np, envpool
actions = np.load(sys.argv[1])
env = envpool.make("CarRacing-v2", env_type="gymnasium", num_envs=1, num_threads=1, batch_size=1)
rates = []
for lap in actions:
    env.reset()
    for action in lap[:{warm}]:
        env.step(action[None])
    began = time.process_time()
    for action in lap[{warm}:]:
        env.step(action[None])
    rates.append((len(lap) - {warm}) / (time.process_time() - began))
print(envpool.__version__, float(np.median(rates)), float(np.min(rates)), float(np.max(rates)))
"""


@dataclass(frozen=True)
class Config:
    """Frames a second of CarRacing."""

    frames: int = 400
    """Frames of a lap that are timed; a tenth of them of the official environment."""
    rounds: int = 5
    """Laps."""
    envpool: Path | None = None
    """A Python with EnvPool; this one if not given."""
    vector: bool = False
    """Also time Gymnasium's vector environments, by the wall clock."""


def choices(seed: int, count: int) -> list[int]:
    """What pure pursuit does on the lap of ``seed``, frame by frame."""
    world = FastCarRacing()
    world.drawing = False
    world.reset(seed=seed)
    driver, found = PurePursuit(), []
    driver.reset(world)
    while len(found) < count:
        choice = driver.act().choice or 0
        for _ in range(4):
            world.step(choice)
            found.append(choice)
    return found[:count]


def rate(world: Any, laps: list[list[int]], frames: int) -> str:
    """Frames a second of processor time: median of the laps, and their range."""
    rates = []
    for seed, lap in zip(SEEDS, laps, strict=False):
        world.reset(seed=seed)
        for choice in lap[:WARM_UP]:
            world.step(choice)
        began = time.process_time()
        for choice in lap[WARM_UP : WARM_UP + frames]:
            world.step(choice)
        rates.append(frames / (time.process_time() - began))
    return in_words(rates)


def in_words(rates: list[float]) -> str:
    return f"{np.median(rates):8.0f} frames/s  ({min(rates):.0f} to {max(rates):.0f})"


def microseconds(job: Callable[[], Any], count: int = 200) -> float:
    began = time.process_time()
    for _ in range(count):
        job()
    return (time.process_time() - began) / count * 1e6


def parts(lap: list[int]) -> None:
    """Where the time of a frame goes."""
    world = FastCarRacing(observation="rgb", instruments=True)
    grey = FastCarRacing(observation="grey")
    for env in (world, grey):
        env.drawing = False
        env.reset(seed=SEEDS[0])
        for choice in lap[:WARM_UP]:
            env.step(choice)
    spent = {"car": 0.0, "box2d": 0.0}
    assert world.car is not None
    FastCar.patch(world.car)
    for choice in lap[WARM_UP:]:
        world.car.gas(0.2 * (choice == 3))
        began = time.process_time()
        world.car.step(0.02)
        between = time.process_time()
        world.world.Step(0.02, 180, 60)
        spent["car"] += between - began
        spent["box2d"] += time.process_time() - between
    count = len(lap) - WARM_UP
    print("one frame, in microseconds of processor time")
    print(f"  Box2D's step, with Gymnasium's contact listener in Python {spent['box2d'] / count * 1e6:6.0f}")
    print(f"  the car's forces, in Python                                {spent['car'] / count * 1e6:6.0f}")
    print(f"  drawing in grey                                            {microseconds(grey.picture):6.0f}")
    world.instruments = False
    colour = microseconds(world.picture)
    world.instruments = True
    print(f"  drawing in colour                                          {colour:6.0f}")
    print(f"  instruments                                                {microseconds(world.picture) - colour:6.0f}")
    began = time.process_time()
    for seed in SEEDS[:20]:
        grey.reset(seed=seed)
    print(
        f"  a reset in grey                                            {(time.process_time() - began) / 20 * 1e6:6.0f}"
    )


def envpool(config: Config, laps: list[list[int]]) -> str:
    """EnvPool's frames a second, measured in a process of its own."""
    python = config.envpool or Path(sys.executable)
    if config.envpool is None and importlib.util.find_spec("envpool") is None:
        return "not installed here: see --envpool"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "actions.npy"
        np.save(path, MEANS[np.array([lap[: WARM_UP + config.frames] for lap in laps])])
        code = ENVPOOL.format(warm=WARM_UP)
        done = subprocess.run([python, "-W", "ignore", "-c", code, path], capture_output=True, text=True, check=True)
    found, *rates = done.stdout.split()[-4:]
    median, least, most = map(float, rates)
    return f"{median:8.0f} frames/s  ({least:.0f} to {most:.0f}), EnvPool {found}"


def vector(config: Config, laps: list[list[int]]) -> None:
    """Four environments side by side, by the wall clock: what matters there is what the processes cost."""
    print(f"four environments, grey, 4 frames a decision, wall clock, {os.cpu_count()} cores")
    for mode in ("sync", "async"):
        envs = gymnasium.make_vec("nacdrive/CarRacingFast-v0", num_envs=4, vectorization_mode=mode, observation="grey")
        envs.reset(seed=0)
        actions = np.array(laps[0][: config.frames : 4])
        began = time.perf_counter()
        for action in actions:
            envs.step(np.full(4, action))
        taken = time.perf_counter() - began
        print(f"  {mode:<58} {16 * len(actions) / taken:8.0f} frames/s")
        envs.close()


def main(config: Config) -> None:
    versions = package_versions()
    print(", ".join(f"{name} {versions[name]}" for name in ("gymnasium", "numpy") if name in versions))
    laps = [choices(seed, WARM_UP + config.frames) for seed in SEEDS[: config.rounds]]
    official: Any = gymnasium.make("CarRacing-v3", continuous=False).unwrapped
    undrawn: Any = gymnasium.make("CarRacing-v3", continuous=False).unwrapped
    undrawn._render = lambda mode: None
    few = max(10, config.frames // 10)
    print(f"  {'gymnasium.make, colour and instruments':<58} {rate(official, laps, few)}")
    print(f"  {'EnvPool, colour and instruments':<58} {envpool(config, laps)}")
    for name, options in (
        ("ours, colour and instruments", {"observation": "rgb", "instruments": True}),
        ("ours, colour", {"observation": "rgb"}),
        ("ours, grey and instruments", {"observation": "grey", "instruments": True}),
        ("ours, grey", {"observation": "grey"}),
        ("ours, grey in three channels, as --renderer fast", {}),
    ):
        print(f"  {name:<58} {rate(FastCarRacing(**options), laps, config.frames)}")  # type: ignore[arg-type]
    print(f"  {'gymnasium.make, nothing drawn':<58} {rate(undrawn, laps, config.frames)}")
    world = FastCarRacing()
    reset = world.reset
    world.reset = lambda **given: (setattr(world, "drawing", False), reset(**given))[1]  # type: ignore[method-assign]
    print(f"  {'ours, nothing drawn':<58} {rate(world, laps, config.frames)}")
    parts(laps[0])
    if config.vector:
        vector(config, laps)


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
