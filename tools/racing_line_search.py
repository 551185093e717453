"""Search the numbers of the racing-line driver on training tracks, by the cross-entropy method.

Run: python tools/racing_line_search.py [--minutes 12] [--tracks 24] [--seed 0]. Physics alone, nothing is drawn. Every
generation drives all its candidates over the same new tracks; the mean of the best quarter is where the next one is
drawn around. The last words are the parameters, for ``RacingLineParameters``, and their returns on further training
tracks, beside those of the parameters that the search began with.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, fields

import numpy as np

from nacdrive.drivers.racing_line import RacingLine, RacingLineParameters
from nacdrive.envs.carracing.fast_renderer import FastCarRacing
from nacdrive.envs.seeds import EXPERT_TRAINING

MAX_FRAMES = 1000
CANDIDATES, ELITE = 16, 4
SPREAD = 0.12
"""Of the first generation, as a share of each number."""
FLOOR = 860
"""Every point that a lap stays below it counts three times: no lap shall be lost for the sake of the mean."""


def lap(env: FastCarRacing, driver: RacingLine, seed: int) -> float:
    """Return of the lap of ``seed`` under the rule of the installed Gymnasium."""
    env.reset(seed=seed)
    driver.reset(env)
    total, frames, over = 0.0, 0, False
    while not over:
        action = driver.act()
        native = np.array([action.steering, action.throttle, action.brake], dtype=np.float32)
        for _ in range(driver.needs.repeat):
            _, reward, ended, _, _ = env.step(native)
            total, frames = total + reward, frames + 1
            over = ended or frames >= MAX_FRAMES
            if over:
                break
    return total


def score(env: FastCarRacing, numbers: np.ndarray, seeds: list[int]) -> float:
    """Mean return of the driver with these parameters, less what its bad laps cost."""
    driver = RacingLine(RacingLineParameters(*numbers.tolist()))
    returns = np.array([lap(env, driver, seed) for seed in seeds])
    return float((returns - 2 * np.maximum(0, FLOOR - returns)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--tracks", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    env = FastCarRacing(continuous=True)
    env.drawing = False
    names = [field.name for field in fields(RacingLineParameters)]
    first = np.array(list(asdict(RacingLineParameters()).values()))
    middle, spread = np.log(first), np.full(len(first), SPREAD)
    end, generation = time.monotonic() + 60 * asked.minutes, 0
    while time.monotonic() < end:
        seeds = rng.integers(EXPERT_TRAINING.start, EXPERT_TRAINING.stop, asked.tracks).tolist()
        candidates = middle + spread * rng.standard_normal((CANDIDATES, len(first)))
        candidates[0] = middle
        scores = np.array([score(env, np.exp(candidate), seeds) for candidate in candidates])
        best = candidates[np.argsort(-scores)[:ELITE]]
        middle = 0.5 * middle + 0.5 * best.mean(axis=0)
        spread = np.maximum(0.6 * spread + 0.4 * best.std(axis=0), 0.01)
        generation += 1
        parameters = ", ".join(f"{name}={value:.4g}" for name, value in zip(names, np.exp(middle), strict=True))
        print(
            f"{generation}: middle {scores[0]:.1f}, best {scores.max():.1f}, spread {spread.mean():.3f}; {parameters}",
            flush=True,
        )
    seeds = rng.integers(EXPERT_TRAINING.start, EXPERT_TRAINING.stop, 100).tolist()
    for name, numbers in (("before", first), ("after", np.exp(middle))):
        driver = RacingLine(RacingLineParameters(*numbers.tolist()))
        returns = np.array([lap(env, driver, seed) for seed in seeds])
        print(f"{name}: mean {returns.mean():.1f}, worst {returns.min():.1f}, best {returns.max():.1f} on 100 tracks")


if __name__ == "__main__":
    main()
