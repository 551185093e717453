"""Laps of the built-in tracks under unseen skies: how far a policy drives by itself, and how well."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from nacdrive.common.errors import UserError
from nacdrive.common.files import read_json, write_json
from nacdrive.common.runs import plain, run_record, start_method
from nacdrive.common.statistics import proportion, summary
from nacdrive.drivers.old_cruise import SpeedControl
from nacdrive.drivers.speed_control import SpeedController
from nacdrive.drivers.tick import Listener
from nacdrive.envs.camera_noise import Camera, CameraNoise
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.models import load_policy
from nacdrive.rollout.lake_referee import Referee
from nacdrive.rollout.old_loop import drive_episode
from nacdrive.rollout.results import ResultsFile, Row
from nacdrive.viz.video import video

MPS_PER_MPH = 1 / 2.23693629
NUMBERS = ("autonomy", "off_road_per_lap", "offset_mean_m", "offset_max_m", "jitter_per_s", "speed_mps")
"""Columns of a row that are summed up."""


@dataclass(frozen=True)
class LakeCourse:
    """Everything that a drive depends on, its track and seed aside."""

    model: Path
    """The policy's file."""
    laps: float
    """Laps of a drive."""
    speed_mph: float
    """Speed that the controller keeps."""
    repeat: int
    """Steps of 0.02 s between two frames."""
    disturbance: CameraNoise
    """What is wrong with the camera."""
    device: str = "cpu"
    """Where the policy runs."""


@dataclass(frozen=True)
class LakeJob:
    """One drive."""

    track: str
    seed: int
    film: Path | None = None
    """Where to write a video of it."""


def drive_job(course: LakeCourse, job: LakeJob, listeners: Sequence[Listener] = ()) -> Row:
    """Drive one track under one sky; the row depends on the arguments alone, times aside."""
    policy = load_policy(course.model, device=course.device, expect_task="udacity")
    env = make_udacity_track(job.track, repeat=course.repeat, laps=course.laps, recover=True)
    referee = Referee(env)
    with ExitStack() as stack:
        stack.callback(env.close)
        heard = list(listeners)
        if job.film is not None:
            title = f"{policy.name} on the {job.track} track"
            heard.append(stack.enter_context(video(job.film, title, 50 / course.repeat)))
        result = drive_episode(
            referee,
            SpeedControl(policy, SpeedController(course.speed_mph * MPS_PER_MPH)),
            job.seed,
            listeners=heard,
            camera=Camera(course.disturbance),
        )
    times = {"decision_ms_median": result.decision_ms_median, "decision_ms_p99": result.decision_ms_p99}
    return {"seed": job.seed, **referee.row(), **times, "failure": result.failure}


def evaluate_lake(
    course: LakeCourse,
    tracks: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    *,
    workers: int,
    films: bool,
    listeners: Sequence[Listener] = (),
    progress: Callable[[LakeJob, Row], None] = lambda job, row: None,
    config: Any = None,
) -> dict[str, Any]:
    """Drive what ``out`` does not hold yet, and write ``metrics.json`` and a film of each track's worst drive.

    ``workers`` processes drive; 0 drives here, where ``listeners`` hear every Tick.

    Raises:
        UserError: if ``out`` holds another evaluation, or a driving process dies.
    """
    claim(out, course)
    files = {track: ResultsFile(out / f"{track}.jsonl") for track in tracks}
    jobs = []
    for job in (LakeJob(track, seed) for seed in seeds for track in tracks):
        if job.seed in files[job.track].rows:
            progress(job, files[job.track].rows[job.seed])
        else:
            jobs.append(job)
    for job, row in drive_jobs(course, jobs, workers, listeners):
        files[job.track].add(row)
        progress(job, row)
    rows = {track: [files[track].rows[seed] for seed in seeds] for track in tracks}
    if films:
        worst = {track: min(rows[track], key=lambda row: (row["autonomy"], -row["offset_max_m"])) for track in tracks}
        shots = [LakeJob(track, row["seed"], out / f"{track}_{row['seed']}.mp4") for track, row in worst.items()]
        for _ in drive_jobs(course, [job for job in shots if job.film and not job.film.exists()], workers):
            pass
    metrics = {
        "tracks": {track: numbers(rows[track], course.laps) for track in tracks},
        "model": identity(course),
        "run": run_record(config if config is not None else course),
        "drives": [row for track in tracks for row in rows[track]],
    }
    write_json(out / "metrics.json", metrics)
    return metrics


def drive_jobs(
    course: LakeCourse, jobs: Sequence[LakeJob], workers: int, listeners: Sequence[Listener] = ()
) -> Iterator[tuple[LakeJob, Row]]:
    """Drive ``jobs`` and yield each with its row as soon as it is done.

    Raises:
        UserError: if a driving process dies.
    """
    if workers <= 1 or len(jobs) <= 1:
        for job in jobs:
            yield job, drive_job(course, job, listeners)
        return
    pool = ProcessPoolExecutor(min(workers, len(jobs)), get_context(start_method()), one_thread)
    try:
        waiting = {pool.submit(drive_job, course, job): job for job in jobs}
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    except BrokenProcessPool as error:
        raise UserError(
            "a driving process died, probably for lack of memory: what is complete is kept, "
            "run the same command with --resume and fewer --workers."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def one_thread() -> None:
    """Several processes share the cores: each keeps to one."""
    import torch

    torch.set_num_threads(1)


def numbers(rows: Sequence[Row], laps: float) -> dict[str, Any]:
    """What the drives of one track say together, with 95 % intervals."""
    flawless = sum(row["laps"] >= laps and not row["off_road_events"] and not row["interventions"] for row in rows)
    return {
        "drives": len(rows),
        "flawless": {"count": flawless, "share": flawless / len(rows), "interval95": proportion(flawless, len(rows))},
        "clean_laps": sum(row["clean_laps"] for row in rows),
        "laps": sum(row["laps"] for row in rows),
        "interventions": sum(row["interventions"] for row in rows),
        "safety_stops": sum(row["failure"] is not None for row in rows),
        **{name: summary([row[name] for row in rows]) for name in NUMBERS},
    }


def identity(course: LakeCourse) -> dict[str, Any]:
    """What the rows of a folder depend on."""
    checksum = hashlib.sha256(course.model.read_bytes()).hexdigest()
    return {**plain(course), "model": course.model.name, "sha256": checksum}


def claim(out: Path, course: LakeCourse) -> None:
    """Write down what ``out`` is a result of; refuse to mix two.

    Raises:
        UserError: if it is the result of something else.
    """
    path, now = out / "evaluation.json", identity(course)
    before = read_json(path) if path.exists() else now
    changed = [key for key in now if key != "device" and before.get(key) != now[key]]
    if changed:
        raise UserError(f"{out} holds an evaluation with another {changed[0]}: give another --out, or --overwrite.")
    write_json(path, now)
