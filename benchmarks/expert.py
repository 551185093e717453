"""Speed of CarRacing's renderers, of the expert as a labeller, of a whole training; minutes to a return of 850 and 900.

Run: python benchmarks/expert.py [--quick]. Everything is timed in this process, one after the other, same seeds.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import gymnasium
import numpy as np
import torch

from nacdrive.common.paths import shipped
from nacdrive.drivers import load_expert
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.rl.config import PpoConfig
from nacdrive.rl.train import LOG, train

SEEDS = (1_000_000, 1_000_001, 1_000_002)


def decisions_per_s(step: Callable[[int], tuple], reset: Callable[[int], object], count: int) -> float:
    """Median over the seeds; a reset is part of driving, but timed apart from it here."""
    rates = []
    for seed in SEEDS:
        choices = np.random.default_rng(seed).choice(5, count, p=(0.1, 0.15, 0.15, 0.5, 0.1)).tolist()
        reset(seed)
        began = time.perf_counter()
        for choice in choices:
            step(choice)
        rates.append(count / (time.perf_counter() - began))
    return float(np.median(rates))


def environments(repeat: int, quick: bool) -> None:
    def plain_step(choice: int) -> tuple:
        for _ in range(repeat):
            found = plain.step(choice)
        return found

    plain = gymnasium.make("CarRacing-v3", continuous=False)
    official = make_carracing(repeat=repeat)
    fast = make_carracing(renderer="fast", repeat=repeat)
    rows = (
        ("gymnasium.make, every frame drawn", plain_step, lambda seed: plain.reset(seed=seed), 20),
        ("official pixels, last frame of a repeat drawn", official.step, lambda seed: official.reset(seed=seed), 60),
        ("fast renderer", fast.step, lambda seed: fast.reset(seed=seed), 200),
    )
    first = 0.0
    for name, step, reset, count in rows:
        rate = decisions_per_s(step, reset, count // 2 if quick else count)
        first = first or rate
        print(f"  {name:<46} {rate:8.0f} decisions/s {rate * repeat:8.0f} frames/s  x{rate / first:.0f}")


def labelling() -> None:
    expert = load_expert("ppo")
    stacks = np.random.default_rng(0).integers(0, 256, (256, 4, 48, 48), dtype=np.uint8)
    for size in (1, 16, 256):
        batch = stacks[:size]
        expert.logits(batch)  # type: ignore[attr-defined]
        repeats = max(4, 1024 // size)
        began = time.perf_counter()
        for _ in range(repeats):
            expert.logits(batch)  # type: ignore[attr-defined]
        print(f"  batch {size:>3}: {repeats * size / (time.perf_counter() - began):8.0f} frames/s")


def whole_training(rollouts: int) -> None:
    rates = []
    config = PpoConfig(timesteps=4096 * rollouts, eval_every=10**9, eval_episodes=1, checkpoint_every_s=1e9)
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder) / "run", show=lambda progress: rates.append(progress.frames_per_s))
    # The last one holds the final evaluation.
    print(f"  {np.median(rates[:-1]):.0f} frames/s with 16 environments in 2 processes, updates included")


def minutes(log: Path) -> None:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for goal in (850, 900):
        seen = next((line for line in lines if (line["return"] or 0) >= goal), None)
        tested = next((line for line in lines if "eval" in line and line["eval"]["mean"] >= goal), None)
        for name, line in (("training, last 100 episodes", seen), ("official environment, 10 laps", tested)):
            told = (
                f"{line['seconds'] / 60:.0f} min, {line['decisions'] / 1e6:.2f}M decisions" if line else "not reached"
            )
            print(f"  return of {goal}, {name:<30} {told}")


def main() -> None:
    quick = "--quick" in sys.argv[1:]
    torch.set_num_threads(1)
    print(f"CarRacing-v3, gymnasium {version('gymnasium')}, torch {version('torch')}, one thread")
    for repeat in (4,) if quick else (4, 8):
        print(f"environment, actions held for {repeat} frames")
        environments(repeat, quick)
    print("expert as a labeller")
    labelling()
    print("whole training")
    whole_training(3 if quick else 6)
    log = shipped("agents") / "carracing" / "ppo" / LOG
    if log.exists():
        print("minutes of the shipped training, evaluations included")
        minutes(log)


if __name__ == "__main__":
    main()
