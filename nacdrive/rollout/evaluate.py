"""Drive many tracks that no training touched, beside the expert on the same tracks, and say how well it went."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nacdrive.common.errors import UserError
from nacdrive.common.files import read_json, write_json
from nacdrive.common.runs import plain, run_record
from nacdrive.common.statistics import fraction, summary
from nacdrive.datasets.manifest import MANIFEST, new_manifest, write_manifest
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.drivers import load_expert
from nacdrive.drivers.tick import Listener
from nacdrive.envs.carracing.lazy import FPS
from nacdrive.models import load_policy
from nacdrive.rollout.record import expert_checksum
from nacdrive.rollout.results import ResultsFile, Row
from nacdrive.rollout.workers import DRIVES, Course, Job, drive_jobs
from nacdrive.viz.report import write_report

Progress = Callable[[Job, Row], None]
FILMED = ("worst", "median", "best")


@dataclass(frozen=True)
class Evaluation:
    """Everything that an evaluation depends on."""

    course: Course
    """What is driven, by whom."""
    first_seed: int
    """Seed of the first track; the others follow it."""
    episodes: int
    """Number of tracks."""
    films: bool = True
    """Whether the worst, the median and the best episode are filmed."""

    @property
    def seeds(self) -> range:
        """Seeds of the tracks."""
        return range(self.first_seed, self.first_seed + self.episodes)


def evaluate(
    evaluation: Evaluation,
    out: Path,
    *,
    workers: int,
    listeners: Iterable[Listener] = (),
    progress: Progress = lambda job, row: None,
    config: Any = None,
) -> dict[str, Any]:
    """Drive what is not yet driven; write ``metrics.json``, ``report.html`` and videos into ``out``.


    Returns the metrics. Rows of finished episodes are kept in ``out``; a later call with the same evaluation, or with
    more episodes, drives only what is missing.
    """
    course = evaluation.course
    identity = identify(course)
    claim(out, identity)
    files = {
        "policy": ResultsFile(out / "episodes.jsonl"),
        "expert": ResultsFile(out / f"expert_{identity['expert_key']}.jsonl"),
    }

    jobs = [
        Job(who, episode, seed)
        for episode, seed in enumerate(evaluation.seeds)
        for who in (("policy", "expert") if course.expert else ("policy",))
    ]
    for job in jobs:
        if (row := files[job.who].rows.get(job.seed)) is not None:
            progress(job, row)
    missing = [job for job in jobs if job.seed not in files[job.who].rows]
    for job, row in drive_jobs(course, missing, workers, listeners):
        files[job.who].add(row)
        progress(job, row)

    rows = [{**files["policy"].rows[seed], "episode": k} for k, seed in enumerate(evaluation.seeds)]
    expert_rows = [files["expert"].rows[seed] for seed in evaluation.seeds] if course.expert else []
    films = film(evaluation, rows, out, workers, progress) if evaluation.films else {}
    metrics = {
        **numbers(rows, expert_rows),
        "model": identity,
        "films": films,
        "run": run_record(config if config is not None else evaluation),
        "episodes": rows,
        "expert_episodes": expert_rows,
    }
    write_json(out / "metrics.json", metrics)
    write_report(out / "report.html", metrics)
    return metrics


def numbers(rows: list[Row], expert_rows: list[Row]) -> dict[str, Any]:
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


def film(evaluation: Evaluation, rows: list[Row], out: Path, workers: int, progress: Progress) -> dict[str, Any]:
    """Drive the worst, the median and the best track once more with a camera running: same seed, same drive."""
    ranked = sorted(rows, key=lambda row: (row["episode_return"], row["seed"]))
    chosen = dict(zip(FILMED, (ranked[0], ranked[len(ranked) // 2], ranked[-1]), strict=True))
    jobs: list[Job] = []
    films: dict[str, Any] = {}
    for name, row in chosen.items():
        # Of one or two tracks, several names mean the same drive.
        same = next((entry["file"] for entry in films.values() if entry["seed"] == row["seed"]), None)
        file = same or f"{name}_{row['seed']}.mp4"
        films[name] = {"file": file, "seed": row["seed"], "episode_return": row["episode_return"]}
        if same is None and not (out / file).exists():
            jobs.append(Job("policy", row["episode"], row["seed"], out / file))
    for stale in out.glob("*.mp4"):
        if stale.name not in {entry["file"] for entry in films.values()}:
            stale.unlink()
    seeds = {entry["seed"] for entry in films.values()}
    for stale in (out / DRIVES).glob("*.parquet"):
        if stale.stem not in {f"episode-{seed:07d}" for seed in seeds}:
            stale.unlink()
    for job, again in drive_jobs(evaluation.course, jobs, workers):
        progress(job, again)
        for entry in films.values():
            # Decisions on another kind of processor may differ in the last bit; then the film is of a sister drive.
            if entry["seed"] == job.seed and again["episode_return"] != entry["episode_return"]:
                entry["filmed_return"] = again["episode_return"]
    list_drives(evaluation.course, out / DRIVES)
    return films


def list_drives(course: Course, folder: Path) -> None:
    """Make a recording of the filmed drives that lie in ``folder``."""
    (folder / MANIFEST).unlink(missing_ok=True)
    if any(folder.glob("*.parquet")):
        expert = load_expert(course.expert).name if course.expert else "none"
        fps = FPS / load_policy(course.model, expect_task=course.task).repeat
        write_manifest(folder, new_manifest(source=course.task, fps=fps, expert=expert, recipe={}), [])
        RecordingWriter(folder, source=course.task, fps=fps, expert=expert, resume=True)


def identify(course: Course) -> dict[str, Any]:
    """What the rows of an out folder depend on; another file under the same name is another model."""
    expert_key = "none"
    if course.expert:
        checksum = expert_checksum(course.expert) or "formula"
        expert_key = f"{load_expert(course.expert).name}_{checksum[:12]}_{course.renderer}"
    return {
        "file": course.model.name,
        "sha256": hashlib.sha256(course.model.read_bytes()).hexdigest(),
        "renderer": course.renderer,
        "disturbance": plain(course.disturbance),
        "expert": course.expert,
        "expert_key": expert_key,
    }


def claim(out: Path, identity: dict[str, Any]) -> None:
    """Write down what ``out`` is a result of; refuse to mix two."""
    path = out / "evaluation.json"
    if not path.exists():
        write_json(path, identity)
        return
    before = read_json(path)
    for key, what in (
        ("sha256", "another model file"),
        ("renderer", "another renderer"),
        ("disturbance", "another disturbance"),
    ):
        if before.get(key) != identity[key]:
            raise UserError(f"{out} holds an evaluation of {what}: give another --out, or --overwrite.")
    write_json(path, identity)
