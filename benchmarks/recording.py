"""How much of the simulator's own speed is left when the expert looks, frames are encoded and episodes are written.

    python benchmarks/recording.py [--expert ppo] [--episodes 8] [--workers 2] [--max-frames 500] [--rounds 3]

Both sides drive the same tracks with the same actions in the same number of processes, episodes handed out one at a
time; starting the processes is not counted on either side. Rounds alternate, the medians are compared. Beside the wall
clock, the processor seconds of both sides are compared in one process: they mean something on a busy machine, too.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import torch
import tyro

from nacdrive.datasets.recording import Recording, RecordingWriter
from nacdrive.drivers import load_expert
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.rollout.record import EpisodeDriver, RecordProgress, record_episodes
from nacdrive.rollout.record_config import RecordConfig


@dataclass(frozen=True)
class Config:
    """Recording against the bare loop."""

    expert: str = "ppo"
    """Who drives."""
    episodes: int = 8
    """Episodes a round."""
    workers: int = 2
    """Processes."""
    max_frames: int = 500
    """Simulated frames of an episode."""
    rounds: int = 3
    """Rounds of each side."""


ENV: dict[str, Any] = {}


def bare_env(config: Config) -> Any:
    """The environment of the bare loop, which holds an action as long as the expert does."""
    return make_carracing(repeat=load_expert(config.expert).needs.repeat or 4, max_frames=config.max_frames)


def prepare(barrier: Any, config: Config) -> None:
    """A process of the bare loop: build the environment, wait for the others."""
    ENV["bare"] = bare_env(config)
    ENV["bare"].reset(seed=0)
    barrier.wait()


def bare(job: tuple[int, list[int]]) -> int:
    """Drive one track with given actions and look at nothing."""
    seed, actions = job
    ENV["bare"].reset(seed=seed)
    for action in actions:
        ENV["bare"].step(action)
    return len(actions)


def bare_rate(jobs: list[tuple[int, list[int]]], config: Config) -> float:
    """Frames per second of the bare loop."""
    context = mp.get_context("spawn")
    barrier = context.Barrier(config.workers + 1)
    with context.Pool(config.workers, prepare, (barrier, config)) as pool:
        barrier.wait()
        began = time.perf_counter()
        frames = sum(pool.imap_unordered(bare, jobs, chunksize=1))
        return frames / (time.perf_counter() - began)


def recording_rate(out: Path, config: Config) -> float:
    """Frames per second of a recording, from the first report of progress to the last episode on the disk."""
    first: list[tuple[int, float]] = []

    def note(progress: RecordProgress) -> None:
        if not first:
            first.append((progress.frames, time.perf_counter()))

    result = record_episodes(
        RecordConfig(
            expert=config.expert,
            episodes=config.episodes,
            workers=config.workers,
            max_frames=config.max_frames,
            out=out,
            overwrite=True,
        ),
        progress=note,
    )
    frames, began = first[0]
    return (result.frames - frames) / (time.perf_counter() - began)


def cpu_rates(jobs: list[tuple[int, list[int]]], folder: Path, config: Config) -> tuple[float, float]:
    """Frames per processor second in one process: recording (driving, encoding, writing), and the bare loop."""
    expert = load_expert(config.expert)
    driver = EpisodeDriver(RecordConfig(expert=config.expert, max_frames=config.max_frames))
    writer = RecordingWriter(folder, source="carracing", fps=12.5, expert=expert.name)
    spent = {"bare": 0.0, "recording": 0.0}
    ENV["bare"] = bare_env(config)
    frames = 0
    driver.record(jobs[0][0])
    for job in jobs:
        began = time.process_time()
        frames += bare(job)
        spent["bare"] += time.process_time() - began
        began = time.process_time()
        writer.add(driver.record(job[0]))
        spent["recording"] += time.process_time() - began
    return frames / spent["recording"], frames / spent["bare"]


def official_rate(job: tuple[int, list[int]]) -> float:
    """Decisions per second of plain ``gymnasium.make`` in one process, which draws all four frames of a decision."""
    env = gymnasium.make("CarRacing-v3", continuous=False)
    env.reset(seed=job[0])
    began = time.perf_counter()
    for action in job[1][:40]:
        for _ in range(4):
            env.step(action)
    return 40 / (time.perf_counter() - began)


def main(config: Config) -> None:
    """Print one JSON line."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "recording"
        recording_rate(out, config)
        recording = Recording.open(out)
        jobs = [(info.seed, recording.load(i).choice.tolist()) for i, info in enumerate(recording.episodes)]
        ours, theirs = [], []
        for _ in range(config.rounds):
            theirs.append(bare_rate(jobs, config))
            ours.append(recording_rate(out, config))
        cpu_ours, cpu_theirs = cpu_rates(jobs, Path(folder) / "one-process", config)
    result = {
        "benchmark": "recording",
        "expert": config.expert,
        "environments": config.workers,
        "frames": sum(len(actions) for _, actions in jobs),
        "recording_frames_per_s": round(statistics.median(ours), 1),
        "bare_loop_frames_per_s": round(statistics.median(theirs), 1),
        "ratio": round(statistics.median(ours) / statistics.median(theirs), 3),
        "ratios": [round(a / b, 3) for a, b in zip(ours, theirs, strict=True)],
        "recording_frames_per_cpu_s": round(cpu_ours, 1),
        "bare_loop_frames_per_cpu_s": round(cpu_theirs, 1),
        "cpu_ratio": round(cpu_ours / cpu_theirs, 3),
        "load_average": round(os.getloadavg()[0], 1),
        "official_decisions_per_s_one_process": round(official_rate(jobs[0]), 1),
        "cores": os.cpu_count(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(tyro.cli(Config))
