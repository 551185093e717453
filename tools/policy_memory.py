"""What the memory of a driving policy is worth: driven as it is, with its memory wiped, and with black frames held.

    python tools/policy_memory.py agents/carracing/nac_steady.pt --episodes 100 --blackout 0.2 --out wiped.json
    python tools/policy_memory.py agents/udacity/nac_steady.pt --sim udacity --episodes 50 --blackout 0.3 --out it.json

Each track is driven three times through the same camera: as it is; ``wiped``, every decision the first of its memory;
and ``held``, by the rule that needs no learning: where a frame is black the last action holds, and the frame stays out
of the memory. Of a policy that decides between frames, from black ones, ``wiped, held`` stands for ``wiped`` with
--rate, every decision on a frame that has come the first of its memory; ``released`` does nothing over black frames.
``smoothed`` is for what has no memory: a low-pass filter over its steering, with ``--time-constant`` seconds.
CarRacing's tracks are judged by their returns, random roads at 25 mph by autonomy, the mean distance from the middle
(m) and how much the wheel moves (a second). Beside them stands what the decisions make of order and time, frame by
frame of the drives through a good camera: the earlier frames of the window in another order, and each twice as old.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import track
from roads_curve import read

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.common.files import read_json, write_json
from nacdrive.common.plugins import load_object
from nacdrive.common.runs import run_record
from nacdrive.common.statistics import paired_difference, summary
from nacdrive.drivers.base import DriverWrapper
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.envs.base import DrivingEnv, Frame, Info
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.envs.udacity_track.options import RANDOM
from nacdrive.models import Policy, load_policy
from nacdrive.rollout.drive import Drive
from nacdrive.rollout.evaluate import EvalJob, RolloutWorker, identify

CLOSE = (0.05, 0.1)
"""Of steering and pedal: what is nearer is the same decision."""


class Wiped(DriverWrapper):
    """A policy that begins anew at every decision."""

    def act(self, frame: Frame, info: Info) -> Action:
        driver = self.driver
        while isinstance(driver, DriverWrapper):  # such as the one that holds the speed
            driver = driver.driver
        assert isinstance(driver, PolicyDriver)
        driver.policy.reset()
        return self.driver.act(frame, info)


class Held(DriverWrapper):
    """Holds the action over a black frame, which the policy never gets."""

    def reset(self, env: DrivingEnv) -> None:
        super().reset(env)
        # Until the first frame that is not black: nothing, which is the first of CarRacing's choices.
        self._action = self.nothing = env.action_of(0) if env.actions else Action(0.0, 0.0, 0.0)

    def act(self, frame: Frame, info: Info) -> Action:
        if frame.any():
            self._action = self.driver.act(frame, info)
        return self._action


class Released(Held):
    """Does nothing over a black frame, which the policy never gets."""

    def act(self, frame: Frame, info: Info) -> Action:
        return super().act(frame, info) if frame.any() else self.nothing


class Smoothed(DriverWrapper):
    """A low-pass filter of the first order over the steering."""

    time_constant_s = 0.08

    def reset(self, env: DrivingEnv) -> None:
        super().reset(env)
        self._last: tuple[float, float] | None = None

    def act(self, frame: Frame, info: Info) -> Action:
        action, t_s = self.driver.act(frame, info), float(info["t_s"])
        steering = action.steering
        if self._last is not None:
            before_s, before = self._last
            steering = before + (steering - before) * -math.expm1((before_s - t_s) / self.time_constant_s)
        self._last = t_s, steering
        return replace(action, steering=steering)


MANNERS: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "wiped": ("policy_memory:Wiped",),
    "held": ("policy_memory:Held",),
    "wiped, held": ("policy_memory:Wiped", "policy_memory:Held"),
    "released": ("policy_memory:Released",),
    "smoothed": ("policy_memory:Smoothed",),
    "held, smoothed": ("policy_memory:Held", "policy_memory:Smoothed"),
}


JUDGED = {"carracing": ("episode_return",), "udacity-track": ("autonomy", "offset_mean_m", "jitter_per_s")}
ROADS = Drive("udacity-track", options={"laps": 1.0, "repeat": 4}, speed_mph=25.0, track=RANDOM)
USUAL = {"carracing": (Drive(options={"renderer": "fast"}), 2_000_000), "udacity": (ROADS, POLICY_TEST.start)}
"""How each simulator is driven, and its first seed."""


NOT_ASKED = ("file", "expert", "expert_key")
"""What an evaluation says of itself, and no drive of a policy depends on."""


def drives(drive: Drive, seeds: range, manner: str) -> dict[str, list[float]]:
    """What every track is judged by."""
    worker = RolloutWorker(drive)
    jobs = [EvalJob("policy", episode, seed, drive.track or "") for episode, seed in enumerate(seeds)]
    rows = [worker.drive(job) for job in track(jobs, manner)]
    for row in rows:
        if row["failure"] is not None:
            raise SystemExit(f"{manner}, track of seed {row['seed']}: {row['failure']}")
    return judged(drive, rows)


def judged(drive: Drive, rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """What the tracks of ``rows`` are judged by."""
    return {name: [float(row[name]) for row in rows] for name in JUDGED[drive.env]}


def driven(folder: Path, drive: Drive, seeds: range) -> dict[str, list[float]]:
    """The same of the result of ``nacdrive eval`` in ``folder``: this policy on these tracks through this camera, with
    the same pixels, laps and speed.
    """
    evaluation = read_json(folder / "evaluation.json")
    rows = sorted(read(folder / f"{drive.track or 'episodes'}.jsonl"), key=lambda row: int(row["seed"]))
    asked, of = ({k: v for k, v in one.items() if k not in NOT_ASKED} for one in (identify(drive), evaluation))
    if asked != of or list(seeds) != [row["seed"] for row in rows]:
        raise SystemExit(f"{folder}: of another policy, camera or environment, or other tracks")
    return judged(drive, rows)


def windows(drive: Drive, seeds: range, window: int) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.float64]]]:
    """Full windows of frames and their times, as the policy saw them; one in ten decisions."""
    loaded = drive.load()
    for seed in seeds:
        with loaded.open(seed) as opened:
            frames: list[Frame] = []
            times: list[float] = []
            for tick in opened:
                frames, times = [*frames, tick.frame][-window:], [*times, tick.t_s][-window:]
                if tick.step % 10 == 0 and len(frames) == window:
                    yield np.stack(frames), np.array(times)


@torch.inference_mode()
def changes(policy: Policy, drive: Drive, seeds: range) -> dict[str, Any]:
    """Share of the decisions that are another one with the earlier frames re-ordered, or twice as old."""
    rng, rows = np.random.default_rng(0), []
    for frames, times in windows(drive, seeds, policy.config.window):
        order = np.append(rng.permutation(len(frames) - 1), len(frames) - 1)
        older = times[-1] - 2 * (times[-1] - times)
        answers = [scores(policy, *seen) for seen in ((frames, times), (frames[order], times), (frames, older))]
        rows.append(
            [(differs(policy, answers[0], answer), np.abs(answers[0] - answer).max()) for answer in answers[1:]]
        )
    table = np.array(rows, dtype=np.float64)
    return {
        name: {"decisions": len(table), "others": float(table[:, k, 0].mean()), "change": float(table[:, k, 1].mean())}
        for k, name in enumerate(("re-ordered", "twice as old"))
    }


def scores(policy: Policy, frames: NDArray[np.uint8], times: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the head gives for the last of ``frames``."""
    seen, t = torch.from_numpy(frames)[None], torch.tensor(times, dtype=torch.float32)[None]
    answer: torch.Tensor = policy.network(seen, t, torch.zeros(1, len(times), dtype=torch.bool))
    return np.asarray(answer[0, -1].double())


def differs(policy: Policy, one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """Whether two answers are different decisions."""
    if not policy.config.continuous:
        return bool(one.argmax() != other.argmax())
    return bool((np.abs(one.clip(-1, 1) - other.clip(-1, 1)) > CLOSE[: len(one)]).any())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--sim", choices=tuple(USUAL), default="carracing")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--manners", nargs="+", choices=tuple(MANNERS), help="usually the first three")
    parser.add_argument("--blackout", type=float, default=0.0)
    parser.add_argument("--rate", type=float, nargs=2)
    parser.add_argument("--time-constant", type=float, default=Smoothed.time_constant_s, help="seconds, of smoothed")
    parser.add_argument("--driven", type=Path, help="result of nacdrive eval, in the place of driving it as it is")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not given.time_constant > 0:
        raise SystemExit(f"--time-constant is {given.time_constant:g}: give seconds above 0.")
    # The drives load the wrapper by its name, which is another module than this one that was called.
    load_object(MANNERS["smoothed"][0]).time_constant_s = given.time_constant
    policy = load_policy(given.model)
    camera = CameraNoise(blackout=given.blackout, rate=tuple(given.rate) if given.rate else None)
    usual, first = USUAL[given.sim]
    usual = replace(usual, model=given.model)
    first = first if given.seed is None else given.seed
    seeds = range(first, first + given.episodes)
    result: dict[str, Any] = {"model": given.model.name, "camera": str(camera), **run_record(vars(given)), "drives": {}}
    is_between = policy.config.between_frames and given.rate is not None
    for manner in given.manners or ("as it is", "wiped, held" if is_between else "wiped", "held"):
        if manner == "held" and not given.blackout and not is_between:
            continue
        drive = replace(usual, camera=camera, around=MANNERS[manner])
        is_driven = given.driven is not None and manner == "as it is"
        result["drives"][manner] = driven(given.driven, drive, seeds) if is_driven else drives(drive, seeds, manner)
        for name, values in result["drives"][manner].items():
            about = summary(values)
            print(f"{manner}: {name} {about['mean']:.3f} ({', '.join(f'{end:.3f}' for end in about['interval95'])})")
            if manner != "as it is" and "as it is" in result["drives"]:
                gap = paired_difference(values, result["drives"]["as it is"][name])
                result.setdefault(manner, {})[name] = gap
                print(f"  minus as it is: {gap}")
    if policy.config.window > 1 and "as it is" in result["drives"]:
        result["decisions"] = changes(policy, usual, seeds[:20])
        print(result["decisions"])
    write_json(given.out, result)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
