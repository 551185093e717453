"""Policies and experts of CarRacing through five cameras, from bad starts, and led off the road: a line per drive.

    python tools/carracing_cameras.py agents/carracing/nac_steady.pt --validation --out validation.jsonl
    python tools/carracing_cameras.py agents/carracing/nac_steady.pt new.pt --experts ppo predictive --out test.jsonl
    python tools/carracing_cameras.py --out test.jsonl --show

It goes on where it was stopped: a drive whose line is in --out is not driven again. Tracks are 2000000 to 2000099,
with --tests 2 2001000 to 2001099 (and other bad starts) and so on, with --validation 3999000 to 3999015, with
--validation 2 also 3998200 to 3998215; fast pixels. What is compared is registered in docs/results/carracing.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import track
from sampled_drives import several_faults

from nacdrive.common.action import FULL_BRAKE, Action
from nacdrive.common.statistics import fraction, paired_difference
from nacdrive.drivers.base import Driver
from nacdrive.drivers.override import Override
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.start import bad_start
from nacdrive.rollout.drive import Drive

CAMERAS = {
    "good": CameraNoise(),
    "noise, one late": CameraNoise(noise=0.1, delay_steps=1),
    "black": CameraNoise(blackout=0.2),
    "dusk": CameraNoise(brightness=0.5),
    "5 to 20 Hz": CameraNoise(rate=(5.0, 20.0)),
}
USUAL = {"renderer": "fast"}
STARTS, LED_OFF, SEVERAL = "bad starts", "led off, to the ", "several faults"
VALIDATION = range(3_999_000, 3_999_016), range(3_998_200, 3_998_216)
TESTS = [range(first, first + 100) for first in range(2_000_000, 2_009_000, 1000)]
"""The first tracks, and those of --tests 2 to 9, for what was taught after the ones before had been looked at."""
BEGINS = [range(first, first + 24) for first in range(4_000_200, 4_009_200, 1000)]
"""Tracks on which the car begins at rest beside the road, and has 600 frames."""
LED = [range(first, first + 8) for first in range(3_999_020, 3_999_920, 100)]
"""Tracks on which a car is led off the road."""
WON = 0.05
"""Share of the lap from which on a car has left the place where it stood."""
LED_AT_S, BRAKED_AT_S, FREE_AT_S = 5.0, 6.2, 9.0
"""When the wheel is held to one side, when the brake, and when the driver has the car again."""


def led_off(driver: Driver, steering: float) -> Override:
    return Override(driver, (LED_AT_S, None), (BRAKED_AT_S, Action(steering, 0.0, 0.0)), (FREE_AT_S, FULL_BRAKE))


def to_the_right(driver: Driver) -> Override:
    return led_off(driver, 1.0)


def to_the_left(driver: Driver) -> Override:
    return led_off(driver, -1.0)


def validation_jobs(parts: int) -> list[tuple[str, int, Drive]]:
    """Name of the camera, seed, and how it is driven: on so many parts of the validation tracks."""
    return camera_jobs(validation_tracks(parts))


def validation_tracks(parts: int) -> list[int]:
    return [seed for part in VALIDATION[:parts] for seed in part]


def camera_jobs(seeds: Iterable[int]) -> list[tuple[str, int, Drive]]:
    return [(name, seed, Drive(options=USUAL, camera=one)) for name, one in CAMERAS.items() for seed in seeds]


def test_jobs(which: int) -> list[tuple[str, int, Drive]]:
    """Likewise on the tests, the first of which is 0."""
    drives = camera_jobs(TESTS[which])
    for k, seed in enumerate(BEGINS[which]):
        place = bad_start(np.random.default_rng(k + 100 * which))
        start = {"start_offset": place["offset"], "start_heading": np.degrees(place["heading"]), "start_speed": 0.0}
        drives.append((STARTS, seed, Drive(options={**USUAL, **start, "max_frames": 600})))
    for side in ("left", "right"):
        led = Drive(options=USUAL, around=(f"carracing_cameras:to_the_{side}",), safety_stop=False)
        drives += [(LED_OFF + side, seed, led) for seed in LED[which]]
    return drives


def several_jobs(seeds: Iterable[int]) -> list[tuple[str, int, Drive]]:
    """On each track a camera of its own with several faults."""
    return [(SEVERAL, seed, Drive(options=USUAL, camera=several_faults(np.random.default_rng(seed)))) for seed in seeds]


def drive_all(who: dict[str, Drive], jobs: list[tuple[str, int, Drive]], out: Path) -> None:
    rows = read(out)
    known = {(row["who"], row["camera"], row["seed"]) for row in rows}
    checksums = {name: whose.checksum for name, whose in who.items()}
    for row in rows:
        # Old rows do not say it.
        if "sha256" in row and row["sha256"] != checksums.get(row["who"], row["sha256"]):
            raise SystemExit(f"{out} holds drives of another {row['who']}: rename the file, or give another --out.")
    with out.open("a") as file:
        for name, whose in who.items():
            checksum = checksums[name]
            todo = [job for job in jobs if (name, *job[:2]) not in known]
            for camera, seed, drive in track(todo, name):
                reward, progress = return_and_progress(replace(drive, model=whose.model, driver=whose.driver), seed)
                row = {
                    "who": name, "sha256": checksum, "camera": camera, "seed": seed,
                    "return": round(reward, 2), "progress": round(progress, 4),
                }  # fmt: skip
                print(json.dumps(row), file=file, flush=True)


def return_and_progress(drive: Drive, seed: int) -> tuple[float, float]:
    """Of a drive, and the share of the lap driven; of who is led off the road, since the car was free again."""
    free = 0.0
    with drive.open(seed) as opened:
        for last in opened:
            free = float(last.progress or 0) if drive.around and last.t_s < FREE_AT_S else free
    return last.episode_return, float(last.progress or 0) - free


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def show(path: Path, against: str | None, expert: str | None) -> None:
    """Mean, spread and laps below 800 of each; differences and shares on the tracks that both have driven."""
    rows = read(path)
    names = list(dict.fromkeys(row["who"] for row in rows))
    returns = {
        (name, camera): {r["seed"]: r["return"] for r in rows if (r["who"], r["camera"]) == (name, camera)}
        for name in names
        for camera in (*CAMERAS, SEVERAL)
    }
    for name in names:
        means = []
        for camera in (*CAMERAS, SEVERAL):
            mine = returns[name, camera]
            if not mine:
                continue
            values = np.array(list(mine.values()))
            means += [values.mean()] if camera != SEVERAL else []
            line = (
                f"{name} | {camera} | {values.mean():.1f} ± {values.std(ddof=1):.0f}, {(values < 800).sum()} below 800"
            )
            for other, is_share in ((against, False), (expert, True)):
                theirs = returns.get((other or "", "good" if is_share else camera), {})
                both = sorted(mine.keys() & theirs.keys())
                if not both or other == name:
                    continue
                pair = [mine[s] for s in both], [theirs[s] for s in both]
                about: Any = fraction(*pair) if is_share else paired_difference(*pair)
                line += f" | {'share of' if is_share else 'minus'} {other} {about}"
            print(line)
        if means:
            print(f"{name} | mean of the cameras | {np.mean(means):.1f}")
        for place in (STARTS, f"{LED_OFF}left", f"{LED_OFF}right"):
            begun = [row for row in rows if row["who"] == name and row["camera"] == place]
            if begun:
                print(f"{name} | {place} | {sum(row['progress'] >= WON for row in begun)} of {len(begun)} got away")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--experts", nargs="*", default=())
    parts = range(1, 1 + len(VALIDATION))
    parser.add_argument("--validation", type=int, nargs="?", const=1, choices=parts, help="on so many parts of them")
    parser.add_argument("--tests", type=int, default=1, choices=range(1, 1 + len(TESTS)))
    parser.add_argument("--several", action="store_true", help="on the same tracks through cameras with several faults")
    parser.add_argument("--against", help="who is subtracted")
    parser.add_argument("--expert", help="whose undisturbed returns are 100 %%")
    parser.add_argument("--show", action="store_true", help="drive nothing")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    who = {str(path): Drive(model=path) for path in given.models} | {name: Drive(driver=name) for name in given.experts}
    if not given.show:
        jobs = validation_jobs(given.validation) if given.validation else test_jobs(given.tests - 1)
        if given.several:
            jobs = several_jobs(validation_tracks(given.validation) if given.validation else TESTS[given.tests - 1])
        drive_all(who, jobs, given.out)
    show(given.out, given.against, given.expert)


if __name__ == "__main__":
    main()
