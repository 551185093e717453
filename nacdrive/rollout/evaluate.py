"""Drive many tracks that no training touched, beside the expert on the same tracks, and say how well it went."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nacdrive.common import compat
from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path, write_json
from nacdrive.common.foreign_json import read_object
from nacdrive.common.parallel import run_by_method
from nacdrive.common.paths import is_model
from nacdrive.common.result_folder import is_own, partial_target
from nacdrive.common.runs import plain, run_record
from nacdrive.common.statistics import fraction, proportion, summary
from nacdrive.datasets.episode_file import to_parquet
from nacdrive.datasets.manifest import DRIVES, MANIFEST, new_manifest, write_manifest
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.drivers import driver_checksum, load_expert
from nacdrive.drivers.tick import Listener
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.start import LAP_RULES
from nacdrive.rollout.drive import Drive, LoadedDrive
from nacdrive.rollout.recorder import EpisodeBuffer, expert_action
from nacdrive.rollout.results import EpisodeMetrics, ResultsFile, Row, drive_name, own_metrics, row_of, slug
from nacdrive.rollout.rollout import Probes
from nacdrive.viz.report import write_report
from nacdrive.viz.video import video

NEURONS_EVERY = 2
"""Decisions between two readings of the neurons for those who watch."""
Report = Callable[[Path, dict[str, Any]], None]
"""Writes about an evaluation into its folder, from its metrics."""


@dataclass(frozen=True)
class EvalJob:
    """One episode to drive."""

    who: Literal["policy", "expert"]
    episode: int
    seed: int
    track: str = ""
    film: Path | None = None
    """Where to write a video of it; the drive is kept beside it, for ``nacdrive replay``."""

    @property
    def kept(self) -> Path:
        assert self.film is not None
        return self.film.parent / DRIVES / drive_name(self.seed, self.track)


class RolloutWorker:
    """Drives the jobs of one process; loads what a job needs when the first such job comes.

    ``watchers`` hear of every decision of the policy, with its neurons. ``env``: what is driven, where it is open
    already and stays open.
    """

    def __init__(
        self, drive: Drive | LoadedDrive, watchers: Iterable[Listener] = (), env: DrivingEnv | None = None
    ) -> None:
        self.loaded = LoadedDrive(drive) if isinstance(drive, Drive) else drive
        self.watchers, self._env = tuple(watchers), env

    @cached_property
    def expert(self) -> LoadedDrive:
        """The expert alone, driving the same tracks with a good camera."""
        drive = self.loaded.drive
        alone = replace(drive, model=None, driver=drive.expert, expert=None, camera=CameraNoise())
        return LoadedDrive(alone, driver=self.loaded.expert)

    def drive(self, job: EvalJob, also: Iterable[Listener] = ()) -> Row:
        """Drive one episode, which alone the row depends on, times aside. ``also`` hear decisions without neurons."""
        loaded = self.loaded if job.who == "policy" else self.expert
        title = loaded.driver.name if job.who == "policy" else f"expert {loaded.driver.name}"
        watchers = self.watchers if job.who == "policy" else ()
        probes, policy = None, loaded.policy
        if watchers and policy is not None:
            probes = Probes(policy.neurons, NEURONS_EVERY, why=policy.why)
        with ExitStack() as stack:
            opened = loaded.open(job.seed, episode=job.episode, track=job.track, probes=probes, env=self._env)
            env = stack.enter_context(opened).env
            metrics = EpisodeMetrics(len(env.actions))
            listeners: list[Listener] = [metrics.add, *watchers, *also]
            buffer = EpisodeBuffer(expert_action, loaded.spec.image_format)
            if job.film is not None:
                on = f"{title} on {job.track}" if job.track else title
                listeners += [stack.enter_context(video(job.film, on, 1 / env.step_s, actions=env.actions)), buffer]
            for tick in opened:
                for listener in listeners:
                    listener(tick)
            meta = env.episode_meta()
            row = row_of(metrics.result(), metrics, env.metrics(), job.track)
        if job.film is not None:
            # The main process lists it when all are there.
            with atomic_path(job.kept) as unfinished:
                unfinished.write_bytes(to_parquet(buffer.episode(source=loaded.spec.source, driver=title, meta=meta)))
        return row


def drive_jobs(
    drive: Drive, jobs: Iterable[EvalJob], workers: int, listeners: Iterable[Listener] = (), *, ray: str | None = None
) -> Generator[tuple[EvalJob, Row], None, None]:
    """Yield each of ``jobs`` with its row as soon as it is driven; by 0 ``workers``: here, where ``listeners`` hear."""
    arguments = (drive, *((tuple(listeners),) if workers == 0 else ()))
    return run_by_method(RolloutWorker, arguments, "drive", jobs, workers=workers, ray=ray)


def evaluate(
    drive: Drive,
    seeds: Sequence[int],
    out: Path,
    *,
    tracks: Sequence[str] | None = None,
    workers: int,
    films: bool = True,
    listeners: Iterable[Listener] = (),
    progress: Callable[[EvalJob, Row], None] = lambda job, row: None,
    config: Any = None,
    expert_folder: Path | None = None,
    ray: str | None = None,
    reports: Iterable[Report] = (write_report,),
) -> dict[str, Any]:
    """Drive what is not yet driven; write ``metrics.json``, videos and ``reports`` into ``out``; the metrics.

    Rows of finished episodes are kept in ``out``; a later call with the same evaluation, or with more episodes, drives
    only what is missing. One that holds another evaluation is a ``UserError``.

    Args:
        seeds: Every track is driven with each of them.
        tracks: Of the environment; all of them if not given.
        workers: Processes that drive, of the Ray cluster at ``ray`` if that is given; 0 drives here, where
            ``listeners`` hear every Tick of the policy.
        films: Whether the worst, the median and the best episode of each track are filmed.
        progress: Called with each job that is done, those of an earlier call first.
        config: What is noted as the settings of the run; ``drive`` if not given.
        expert_folder: Where the expert's rows are kept, to share them among evaluations; ``out`` if not given.
    """
    identity = identify(drive)
    claim(out / "evaluation.json", identity)
    tracks = drive.env_spec.tracks if tracks is None else tuple(tracks)
    drivers: tuple[Literal["policy", "expert"], ...] = ("policy", "expert") if drive.expert else ("policy",)
    listeners = tuple(listeners)
    # Whoever watches is told at the end of a drive what the expert scored on that track.
    order = tuple(reversed(drivers)) if listeners else drivers
    expert_name = f"expert_{identity['expert_key']}"
    files = {
        (who, track): ResultsFile(
            out / f"{slug(track) or 'episodes'}.jsonl"
            if who == "policy"
            else (expert_folder or out) / f"{expert_name}{f'_{slug(track)}' if track else ''}.jsonl"
        )
        for who in drivers
        for track in tracks
    }

    jobs = [
        EvalJob(who, episode, seed, track) for episode, seed in enumerate(seeds) for track in tracks for who in order
    ]
    missing = []
    for job in jobs:
        row = files[job.who, job.track].rows.get(job.seed)
        if row is None:
            missing.append(job)
        else:
            progress(job, row)
    with closing(drive_jobs(drive, missing, workers, listeners, ray=ray)) as done:
        for job, row in done:
            files[job.who, job.track].add(row)
            progress(job, row)

    def rows_of(who: Literal["policy", "expert"]) -> list[Row]:
        return [{**files[who, track].rows[seed], "episode": k} for track in tracks for k, seed in enumerate(seeds)]

    rows, expert_rows = rows_of("policy"), rows_of("expert") if drive.expert else []
    metrics: dict[str, Any] = {
        **numbers(rows, expert_rows),
        **({"tracks": by_track(rows, drive)} if any(tracks) else {}),
        **({"drives": [{k: v for k, v in row.items() if k != "curve"} for row in rows]} if any(tracks) else {}),
        **({"expert_tracks": by_track(expert_rows, drive)} if any(tracks) and expert_rows else {}),
        "env": drive.env_spec.title,
        **({"rule": drive.rule} if drive.rule is not None else {}),
        "model": identity,
        "films": film(drive, rows, out, workers, progress, ray=ray) if films else {},
        "run": run_record(config if config is not None else drive),
        "episodes": rows,
        "expert_episodes": expert_rows,
    }
    write_json(out / "metrics.json", metrics)
    for report in reports:
        report(out, metrics)
    return metrics


def numbers(rows: Sequence[Row], expert_rows: Sequence[Row]) -> dict[str, Any]:
    """What the rows say together."""
    returns = [row["episode_return"] for row in rows]
    expert_returns = [row["episode_return"] for row in expert_rows]
    agreements = [row["expert_agreement"] for row in rows if row["expert_agreement"] is not None]
    return {
        "return": summary(returns),
        "expert_return": summary(expert_returns) if expert_returns else None,
        "expert_fraction": fraction(returns, expert_returns) if expert_returns else None,
        "finished_laps": sum(row["finished_lap"] for row in rows),
        "safety_stops": sum(row["failure"] is not None for row in rows),
        "late_decisions": sum(row["late_decisions"] for row in rows),
        "decisions": sum(row["decisions"] for row in rows),
        **{name: float(np.mean([row[name] for row in rows])) for name in ("progress", "wheels_off")},
        "mean_speed_mps": float(np.mean([row["mean_speed_mps"] for row in rows])),
        "decision_ms_median": float(np.median([row["decision_ms_median"] for row in rows])),
        "decision_ms_p99": float(np.max([row["decision_ms_p99"] for row in rows])),
        "expert_agreement": float(np.mean(agreements)) if agreements else None,
    }


def by_track(rows: Sequence[Row], drive: Drive) -> dict[str, Any]:
    """What the drives of each track say together: the environment's own numbers, with 95 % intervals."""
    return {
        track: track_numbers(
            [row for row in rows if row["track"] == track], drive.options.get("laps") or 0, drive.env_spec.totals
        )
        for track in dict.fromkeys(row["track"] for row in rows)
    }


def track_numbers(rows: Sequence[Row], laps: float, totals: Collection[str]) -> dict[str, Any]:
    """What the drives of one track say together; ``totals`` are the environment's own numbers that are added up.

    A drive is flawless that has all the ``laps`` that were asked for, no wheel off the road where that is counted, no
    intervention, and no safety stop.
    """
    flawless = sum(
        (row["laps"] if "laps" in row else row["progress"]) >= laps
        and row["failure"] is None
        and not row.get("off_road_events")
        and not row.get("interventions")
        for row in rows
    )
    own = dict.fromkeys(name for row in rows for name in own_metrics(row))
    return {
        "drives": len(rows),
        "flawless": {"count": flawless, "share": flawless / len(rows), "interval95": proportion(flawless, len(rows))},
        "safety_stops": sum(row["failure"] is not None for row in rows),
        **{name: sum(row.get(name, 0) for row in rows) for name in own if name in totals},
        **{name: summary([row[name] for row in rows if name in row]) for name in own if name not in totals},
    }


def film(
    drive: Drive,
    rows: Sequence[Row],
    out: Path,
    workers: int,
    progress: Callable[[EvalJob, Row], None],
    *,
    ray: str | None = None,
) -> dict[str, Any]:
    """Drive the worst, the median and the best episode of each track again, with a camera running: the same drives."""
    jobs: list[EvalJob] = []
    films: dict[str, Any] = {}
    for track in dict.fromkeys(row.get("track", "") for row in rows):
        ranked = sorted(
            (row for row in rows if row.get("track", "") == track), key=lambda row: (row["episode_return"], row["seed"])
        )
        files: dict[int, str] = {}
        for name, row in {"worst": ranked[0], "median": ranked[len(ranked) // 2], "best": ranked[-1]}.items():
            seed = row["seed"]
            if seed not in files:
                # Of one or two drives, several names mean the same one.
                files[seed] = f"{f'{slug(track)}_' if track else ''}{name}_{seed}.mp4"
                jobs.append(EvalJob("policy", row["episode"], seed, track, out / files[seed]))
            entry = {"file": files[seed], "seed": seed, "episode_return": row["episode_return"]}
            entry |= {"drive": drive_name(seed, track), **({"track": track} if track else {})}
            films[f"{track}: {name}" if track else name] = entry
    # Videos, drives and their pages of an earlier ranking go.
    wanted = {job.film for job in jobs} | {job.kept for job in jobs}
    wanted |= {film.with_suffix(".html") for film in wanted if film is not None}
    for path in (*out.glob("*.mp4"), *out.glob("*_*.html"), *(out / DRIVES).glob("*.parquet")):
        if path not in wanted and is_own(path):
            path.unlink()
    # The drive is written last: without it the film is of one that was stopped.
    missing = [job for job in jobs if job.film is not None and not (job.film.exists() and job.kept.exists())]
    try:
        with closing(drive_jobs(drive, missing, workers, ray=ray)) as done:
            for job, again in done:
                progress(job, again)
                for entry in films.values():
                    mine = (entry["seed"], entry.get("track", "")) == (job.seed, job.track)
                    # Decisions on another kind of processor may differ in the last bit; the film is of a sister drive.
                    if mine and again["episode_return"] != entry["episode_return"]:
                        entry["filmed_return"] = again["episode_return"]
    finally:
        for partial in [*out.iterdir(), *((out / DRIVES).iterdir() if (out / DRIVES).is_dir() else ())]:
            if partial_target(partial) is not None and is_own(partial):
                partial.unlink(missing_ok=True)
    list_drives(drive, out / DRIVES)
    return films


def list_drives(drive: Drive, folder: Path) -> None:
    """Make a recording of the filmed drives that lie in ``folder``."""
    (folder / MANIFEST).unlink(missing_ok=True)
    if not any(folder.glob("*.parquet")):
        return
    loaded = LoadedDrive(drive)
    expert = loaded.expert.name if loaded.expert is not None else "none"
    source, fps = loaded.spec.source, loaded.fps
    rule = {"rule": drive.rule} if drive.rule not in (None, LAP_RULES[0]) else {}
    write_manifest(folder, new_manifest(source=source, fps=fps, expert=expert, recipe=rule, drive=drive.to_json()), [])
    RecordingWriter(folder, source=source, fps=fps, expert=expert, recipe=rule, resume=True)


def identify(drive: Drive) -> dict[str, Any]:
    """What the rows of an out folder depend on; another file under the same name is another model."""
    options = {name: value for name, value in sorted(plain(drive.options).items()) if value is not None}
    rule = options.pop("rule", LAP_RULES[0])
    if drive.speed_mph is not None:
        options["speed_mph"] = drive.speed_mph
    expert_key = "none"
    if drive.expert:
        expert = load_expert(drive.expert, discrete_only=False)
        key = (expert.name, (driver_checksum(drive.expert) or "formula")[:12], *map(str, options.values()))
        key = (*key, rule) if rule != LAP_RULES[0] else key
        expert_key = "_".join("".join(c if c.isalnum() or c in "-." else "-" for c in part) for part in key)
    return {
        "file": drive.name,
        "sha256": drive.checksum,
        "env": drive.env,
        **options,
        **({"rule": drive.rule} if drive.rule is not None else {}),
        "disturbance": plain(drive.camera),
        "expert": drive.expert,
        "expert_key": expert_key,
    }


def claim(path: Path, identity: Mapping[str, Any]) -> None:
    """Write down in ``path`` what its folder is a result of; refuse to mix two."""
    if path.exists():
        stored = read_object(path)
        before = compat.evaluation(stored, LAP_RULES[0], plain(CameraNoise()))
        # What one of the two does not say was given to the other alone; first whether data were judged, not drives.
        for key in {"data": None, **stored, **identity}:
            # A file may be renamed, a driver's name is all that tells it from another one of its module.
            is_renamed = key == "file" and is_model(str(identity["file"]))
            if not is_renamed and before.get(key) != identity.get(key):
                kind = "kind" if None in (before.get(key), identity.get(key)) else key
                what = {"sha256": "model file", "expert_key": "expert", "file": "driver", "data": kind}.get(key, key)
                raise UserError(f"{path.parent} holds drives of another {what}: give another --out, or --overwrite.")
    write_json(path, identity)
