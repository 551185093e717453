"""Drive whole laps with an expert and say how they went."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.runs import start_method
from nacdrive.drivers.expert import Expert
from nacdrive.envs.carracing.env import Renderer, make_carracing


@dataclass(frozen=True)
class Lap:
    """How one episode went."""

    seed: int
    total: float
    """Return in the environment's own units."""
    frames: int
    tiles: float
    """Share of the tiles that were visited."""
    grass: float
    """Share of wheels on grass, mean over the decisions."""
    finished: bool


def drive_laps(expert: Expert, seeds: Sequence[int], *, renderer: Renderer = "official") -> Iterator[Lap]:
    """One lap per seed with the expert's deterministic actions, one after the other."""
    continuous = getattr(expert, "continuous", False)
    env = make_carracing(renderer=renderer, repeat=expert.repeat, continuous=continuous)
    for seed in seeds:
        frame, info = env.reset(seed=seed)
        episode = expert.new_episode(env)
        total, grass, over = 0.0, [], False
        while not over:
            action = episode.observe(frame)
            frame, reward, terminated, truncated, info = env.step(controls(action) if continuous else action.choice)
            total += float(reward)
            grass.append(info["wheels_on_grass"])
            over = terminated or truncated
        yield Lap(seed, total, info["frame"], info["tiles_visited"], float(np.mean(grass)), info["finished_lap"])
    env.close()


def controls(action: Action) -> NDArray[np.float32]:
    """The environment's continuous action: steering (right is positive), gas, brake."""
    return np.array([action.steering, action.throttle, action.brake], dtype=np.float32)


def evaluate(
    expert: str | Path,
    seeds: Sequence[int],
    *,
    renderer: Renderer = "official",
    device: str = "cpu",
    workers: int = 1,
    show: Callable[[Lap], None] = lambda lap: None,
) -> list[Lap]:
    """One lap per seed, in ``workers`` processes; in the order of ``seeds``, whatever the number of processes."""
    if workers <= 1:
        laps = []
        for lap in drive_laps(load(expert, device), seeds, renderer=renderer):
            show(lap)
            laps.append(lap)
        return laps
    with ProcessPoolExecutor(workers, mp_context=get_context(start_method())) as pool:
        futures = [pool.submit(one_lap, expert, seed, renderer, device) for seed in seeds]
        laps = []
        for future in futures:
            laps.append(future.result())
            show(laps[-1])
        return laps


def load(expert: str | Path, device: str) -> Expert:
    """The expert of that name or file; continuous ones included."""
    from nacdrive.drivers import load_expert

    found: Expert = load_expert(expert, device=device, discrete_only=False)
    return found


def one_lap(expert: str | Path, seed: int, renderer: Renderer, device: str) -> Lap:
    """Body of a worker: one lap, on one thread."""
    import torch

    torch.set_num_threads(1)
    return next(drive_laps(load(expert, device), [seed], renderer=renderer))
