"""Drive many tracks that no training touched, beside the expert on the same tracks, and say how well it went."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nacdrive.common.compat import evaluation
from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path, read_json, write_json
from nacdrive.common.parallel import run_jobs
from nacdrive.common.result_folder import is_own, partial_target
from nacdrive.common.runs import plain, run_record
from nacdrive.common.statistics import fraction, proportion, summary
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.episode_file import to_parquet
from nacdrive.datasets.manifest import DRIVES, MANIFEST, new_manifest, write_manifest
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.drivers import load_expert
from nacdrive.drivers.base import Driver
from nacdrive.drivers.exported import ExportedPolicy, load_any_policy
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.drivers.safety_stop import SafetyStop
from nacdrive.drivers.speed_control import at_speed
from nacdrive.drivers.tick import Listener
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.lap_rules import LAP_RULES, LapRule
from nacdrive.envs.registry import EnvSpec, env_spec
from nacdrive.rollout.environment import (
    action_repeat,
    check_repeat,
    checksum,
    driver_options,
    file_checksum,
    make_env,
    option_if_known,
    recorded_fps,
    step_options,
)
from nacdrive.rollout.recorder import EpisodeBuffer, expert_action
from nacdrive.rollout.results import (
    EpisodeCurve,
    EpisodeMetrics,
    ResultsFile,
    Row,
    drive_name,
    in_file_name,
    row_of,
)
from nacdrive.rollout.rollout import Probes, rollout
from nacdrive.viz.report import write_report
from nacdrive.viz.video import video

if TYPE_CHECKING:
    from nacdrive.models import Policy

NEURONS_EVERY = 2
"""Decisions between two readings of the neurons for those who watch."""
FILMED = ("worst", "median", "best")
SUMS = ("laps", "clean_laps", "interventions", "off_road_events", "collisions")
"""Numbers of an environment that are added up over drives; of the others mean and interval are told."""


@dataclass(frozen=True)
class EvalSpec:
    """What is driven, by whom, and through which camera; plain data, so that it can travel to other processes."""

    env: str
    """The environment's name."""
    model: Path | None = None
    """File of the policy that drives; None where ``driver`` does."""
    driver: str | None = None
    """Name of who drives instead of a policy: an expert, or ``module:MyDriver``."""
    expert: str | None = None
    """Name or file of the expert that drives the same tracks and rides along; None for none."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the environment, such as ``renderer``, ``laps``, ``repeat``."""
    noise: CameraNoise = field(default_factory=CameraNoise)
    """What is wrong with the driver's camera; the expert sees the true frames."""
    speed_mph: float | None = None
    """Speed that a controller keeps, for policies that steer alone and the expert beside them."""
    device: str = "cpu"
    """Where the policy runs."""

    @property
    def env_spec(self) -> EnvSpec:
        """What there is to know of the environment."""
        return env_spec(self.env)

    @property
    def name(self) -> str:
        """Of the one who is evaluated."""
        return self.model.name if self.model is not None else str(self.driver)

    @property
    def rule(self) -> LapRule | None:
        """When a lap is finished; None where the environment has no such rule."""
        return self.options.get("rule") or LAP_RULES[0] if self.env_spec.honours("rule") else None

    def repeat(self, driver: Driver) -> int:
        """Frames for which an action of ``driver`` is held."""
        return action_repeat(self.env_spec, driver, self.options.get("repeat"))


@dataclass(frozen=True)
class EvalJob:
    """One episode to drive."""

    who: Literal["policy", "expert"]
    episode: int
    seed: int
    track: str = ""
    film: Path | None = None
    """Where to write a video of it; the drive is kept beside it in ``DRIVES``, for ``nacdrive replay``."""


class RolloutWorker:
    """Drives the jobs of one process; loads what a job needs when the first such job comes.

    ``watchers`` hear of every decision of the policy, with its neurons.
    """

    def __init__(self, spec: EvalSpec, watchers: Iterable[Listener] = ()) -> None:
        self.spec, self.watchers = spec, tuple(watchers)

    @cached_property
    def policy(self) -> Policy | ExportedPolicy:
        """The policy."""
        assert self.spec.model is not None
        return load_any_policy(self.spec.model, device=self.spec.device, expect_task=self.spec.env_spec.task or None)

    @cached_property
    def policy_driver(self) -> PolicyDriver:
        """The policy that drives."""
        return PolicyDriver(self.policy)

    @cached_property
    def subject(self) -> Driver:
        """Who is evaluated."""
        spec, asked = self.spec, self.spec.options.get("repeat")
        if spec.driver is None:
            check_repeat(spec.env_spec, self.policy_driver, asked)
            return at_speed(self.policy_driver, spec.speed_mph)
        driver = load_expert(spec.driver, device=spec.device, discrete_only=False)
        check_repeat(spec.env_spec, driver, asked)
        return driver

    @cached_property
    def expert(self) -> Driver | None:
        """Who drives the same tracks and rides along."""
        return (
            load_expert(self.spec.expert, discrete_only=not self.subject.needs.continuous) if self.spec.expert else None
        )

    def drive(self, job: EvalJob) -> Row:
        """Drive one episode; the row depends on the spec and the job alone, times aside."""
        if job.who == "expert":
            assert self.expert is not None
            driver, beside, title = at_speed(self.expert, self.spec.speed_mph), None, f"expert {self.expert.name}"
            repeat = self.spec.repeat(self.expert)
        else:
            driver, beside, title = self.subject, self.expert, self.subject.name
            repeat = self.spec.repeat(driver)
            if beside is not None and self.spec.repeat(beside) != repeat:
                beside = None
        with ExitStack() as stack:
            env = self._env(job, repeat, driver)
            stack.callback(env.close)
            listeners: list[Listener] = []
            probes = None
            if job.who == "policy" and self.watchers:
                listeners += self.watchers
                probes = Probes(self.policy_driver.neurons, NEURONS_EVERY) if self.spec.driver is None else None
            buffer = EpisodeBuffer(expert_action, self.spec.env_spec.image_format)
            if job.film is not None:
                on = f"{title} on {job.track}" if job.track else title
                listeners += [stack.enter_context(video(job.film, on, 1 / env.step_s)), buffer]
            metrics, curve = EpisodeMetrics(), EpisodeCurve(len(env.actions))
            ticks = rollout(env, SafetyStop(driver), job.seed, episode=job.episode, expert=beside, probes=probes)
            for tick in ticks:
                metrics.add(tick)
                curve.add(tick)
                for listener in listeners:
                    listener(tick)
            meta = env.episode_meta()
            row = row_of(metrics.result(), curve, env.metrics(), job.track)
        if job.film is not None:
            _keep(job, buffer.episode(source=self.spec.env_spec.source, driver=title, meta=meta))
        return row

    def _env(self, job: EvalJob, repeat: int, driver: Driver) -> DrivingEnv:
        spec, options = self.spec.env_spec, dict(self.spec.options)
        options |= {**step_options(spec, repeat), "track": job.track or None}
        # A car that has left the road is put back on it and pays for that, so that every drive is whole.
        options |= option_if_known(spec, "recover") | driver_options(spec, driver)
        noise = self.spec.noise if job.who == "policy" else CameraNoise()
        return make_env(spec, options, noise)


def _keep(job: EvalJob, episode: Episode) -> None:
    """Write a filmed episode; the main process lists it when all are there."""
    assert job.film is not None
    folder = job.film.parent / DRIVES
    folder.mkdir(exist_ok=True)
    with atomic_path(folder / drive_name(job.seed, job.track)) as partial:
        partial.write_bytes(to_parquet(episode))


_worker: RolloutWorker


def _start_worker(spec: EvalSpec, watchers: tuple[Listener, ...] = ()) -> None:
    """Make this process ready to drive."""
    global _worker
    _worker = RolloutWorker(spec, watchers)


def _drive_job(job: EvalJob) -> Row:
    return _worker.drive(job)


def drive_jobs(
    spec: EvalSpec,
    jobs: Iterable[EvalJob],
    workers: int,
    listeners: Iterable[Listener] = (),
    *,
    ray: str | None = None,
) -> Generator[tuple[EvalJob, Row], None, None]:
    """Drive ``jobs`` and yield each with its row as soon as it is done.

    ``workers`` processes; 0 drives in this process, where ``listeners`` hear every Tick of the policy.

    Raises:
        UserError: if a worker dies.
    """
    initargs = (spec, *((tuple(listeners),) if workers == 0 else ()))
    return run_jobs(_drive_job, jobs, workers=workers, initializer=_start_worker, initargs=initargs, ray=ray)


def evaluate(
    spec: EvalSpec,
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
) -> dict[str, Any]:
    """Drive what is not yet driven; write ``metrics.json``, ``report.html`` and videos into ``out``.

    Rows of finished episodes are kept in ``out``; a later call with the same evaluation, or with more episodes, drives
    only what is missing.

    Args:
        spec: What is driven, by whom.
        seeds: Of the episodes; every track is driven with each of them.
        out: Folder of the result.
        tracks: Of the environment; all of them if not given.
        workers: Processes that drive; 0 drives here, where ``listeners`` hear every Tick of the policy.
        films: Whether the worst, the median and the best episode of each track are filmed.
        listeners: Who watches.
        progress: Called with each job that is done, those of an earlier call first.
        config: What is noted as the settings of the run; ``spec`` if not given.
        expert_folder: Where the expert's rows are kept, to share them among evaluations; ``out`` if not given.
        ray: Address of a Ray cluster that drives.

    Returns:
        The metrics.

    Raises:
        UserError: if ``out`` holds another evaluation, or a driving process dies.
    """
    identity = identify(spec)
    claim(out, identity)
    tracks = spec.env_spec.tracks if tracks is None else tuple(tracks)
    whos: tuple[Literal["policy", "expert"], ...] = ("policy", "expert") if spec.expert else ("policy",)
    listeners = tuple(listeners)
    # Whoever watches is told at the end of a drive what the expert scored on that track.
    order = tuple(reversed(whos)) if listeners else whos
    expert_name = f"expert_{identity['expert_key']}"
    files = {
        (who, track): ResultsFile(
            out / f"{in_file_name(track) or 'episodes'}.jsonl"
            if who == "policy"
            else (expert_folder or out) / f"{expert_name}{f'_{in_file_name(track)}' if track else ''}.jsonl"
        )
        for who in whos
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
    with closing(drive_jobs(spec, missing, workers, listeners, ray=ray)) as done:
        for job, row in done:
            files[job.who, job.track].add(row)
            progress(job, row)

    def rows_of(who: Literal["policy", "expert"]) -> list[Row]:
        pairs = [(k, seed, track) for track in tracks for k, seed in enumerate(seeds)]
        return [{**files[who, track].rows[seed], "episode": k} for k, seed, track in pairs]

    rows, expert_rows = rows_of("policy"), rows_of("expert") if spec.expert else []
    filmed = film(spec, rows, out, workers, progress, ray=ray) if films else {}
    metrics: dict[str, Any] = {
        **numbers(rows, expert_rows),
        **({"tracks": by_track(rows, spec)} if any(tracks) else {}),
        **({"drives": [{k: v for k, v in row.items() if k != "curve"} for row in rows]} if any(tracks) else {}),
        **({"expert_tracks": by_track(expert_rows, spec)} if any(tracks) and expert_rows else {}),
        "env": spec.env_spec.title,
        **({"rule": spec.rule} if spec.rule is not None else {}),
        "model": identity,
        "films": filmed,
        "run": run_record(config if config is not None else spec),
        "episodes": rows,
        "expert_episodes": expert_rows,
    }
    write_json(out / "metrics.json", metrics)
    write_report(out / "report.html", metrics)
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
        "tiles_visited": float(np.mean([row["tiles_visited"] for row in rows])),
        "grass_share": float(np.mean([row["grass_share"] for row in rows])),
        "mean_speed_mps": float(np.mean([row["mean_speed_mps"] for row in rows])),
        "decision_ms_median": float(np.median([row["decision_ms_median"] for row in rows])),
        "decision_ms_p99": float(np.max([row["decision_ms_p99"] for row in rows])),
        "expert_agreement": float(np.mean(agreements)) if agreements else None,
    }


def by_track(rows: Sequence[Row], spec: EvalSpec) -> dict[str, Any]:
    """What the drives of each track say together: the environment's own numbers, with 95 % intervals."""
    return {
        track: track_numbers([row for row in rows if row["track"] == track], spec.options.get("laps", 0))
        for track in dict.fromkeys(row["track"] for row in rows)
    }


def track_numbers(rows: Sequence[Row], laps: float) -> dict[str, Any]:
    """What the drives of one track say together; ``laps`` is how many were asked for.

    A drive is flawless that has all its laps, no wheel off the road, and no intervention.
    """
    flawless = sum(row["laps"] >= laps and not row["off_road_events"] and not row["interventions"] for row in rows)
    own = list(rows[0])[list(rows[0]).index("track") + 1 :]
    return {
        "drives": len(rows),
        "flawless": {"count": flawless, "share": flawless / len(rows), "interval95": proportion(flawless, len(rows))},
        "safety_stops": sum(row["failure"] is not None for row in rows),
        **{name: sum(row[name] for row in rows) for name in own if name in SUMS},
        **{name: summary([row[name] for row in rows]) for name in own if name not in SUMS},
    }


def film(
    spec: EvalSpec,
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
        for name, row in zip(FILMED, (ranked[0], ranked[len(ranked) // 2], ranked[-1]), strict=True):
            seed = row["seed"]
            if seed not in files:
                # Of one or two drives, several names mean the same one.
                files[seed] = f"{f'{in_file_name(track)}_' if track else ''}{name}_{seed}.mp4"
                jobs.append(EvalJob("policy", row["episode"], seed, track, out / files[seed]))
            entry = {"file": files[seed], "seed": seed, "episode_return": row["episode_return"]}
            entry["drive"] = drive_name(seed, track)
            films[f"{track}: {name}" if track else name] = {**entry, **({"track": track} if track else {})}
    _remove_stale(out, jobs)
    missing = [job for job in jobs if job.film is not None and not job.film.exists()]
    try:
        with closing(drive_jobs(spec, missing, workers, ray=ray)) as done:
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
    list_drives(spec, out / DRIVES)
    return films


def _remove_stale(out: Path, jobs: Sequence[EvalJob]) -> None:
    """Remove videos and drives of an earlier ranking."""
    films = {job.film for job in jobs}
    kept = {drive_name(job.seed, job.track) for job in jobs}
    for path in out.glob("*.mp4"):
        if path not in films and is_own(path):
            path.unlink()
    for path in (out / DRIVES).glob("*.parquet"):
        if path.name not in kept and is_own(path):
            path.unlink()


def list_drives(spec: EvalSpec, folder: Path) -> None:
    """Make a recording of the filmed drives that lie in ``folder``."""
    (folder / MANIFEST).unlink(missing_ok=True)
    if not any(folder.glob("*.parquet")):
        return
    about = spec.env_spec
    expert = load_expert(spec.expert, discrete_only=False).name if spec.expert else "none"
    subject = (
        PolicyDriver(load_any_policy(spec.model))
        if spec.model is not None
        else load_expert(str(spec.driver), discrete_only=False)
    )
    fps = recorded_fps(about, spec.repeat(subject), spec.options)
    rule = {"rule": spec.rule} if spec.rule not in (None, LAP_RULES[0]) else {}
    write_manifest(folder, new_manifest(source=about.source, fps=fps, expert=expert, recipe=rule), [])
    RecordingWriter(folder, source=about.source, fps=fps, expert=expert, recipe=rule, resume=True)


def identify(spec: EvalSpec) -> dict[str, Any]:
    """What the rows of an out folder depend on; another file under the same name is another model."""
    options = {name: value for name, value in sorted(plain(spec.options).items()) if value is not None}
    rule = options.pop("rule", LAP_RULES[0])
    if spec.speed_mph is not None:
        options["speed_mph"] = spec.speed_mph
    expert_key = "none"
    if spec.expert:
        expert = load_expert(spec.expert, discrete_only=False)
        key = (expert.name, (checksum(spec.expert) or "formula")[:12], *map(str, options.values()))
        key = (*key, rule) if rule != LAP_RULES[0] else key
        expert_key = "_".join("".join(c if c.isalnum() or c in "-." else "-" for c in part) for part in key)
    return {
        "file": spec.name,
        "sha256": file_checksum(spec.model) if spec.model is not None else checksum(str(spec.driver)),
        "env": spec.env,
        **options,
        **({"rule": spec.rule} if spec.rule is not None else {}),
        "disturbance": plain(spec.noise),
        "expert": spec.expert,
        "expert_key": expert_key,
    }


def claim(out: Path, identity: Mapping[str, Any]) -> None:
    """Write down what ``out`` is a result of; refuse to mix two.

    Raises:
        UserError: if it is the result of something else.
    """
    path = out / "evaluation.json"
    if path.exists():
        before = evaluation(read_json(path), LAP_RULES[0], plain(CameraNoise()))
        for key, now in identity.items():
            was = before.get(key, now)
            # Who else drives may change.
            if key not in ("file", "expert", "expert_key") and was != now:
                what = "model file" if key == "sha256" else key
                raise UserError(f"{out} holds an evaluation of another {what}: give another --out, or --overwrite.")
    write_json(path, identity)
