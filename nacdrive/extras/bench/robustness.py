"""Trained cells tested under conditions that they were not trained for; nothing is trained here.

A job is one trained model of a run of ``bench table`` or ``bench run``; its result is one line with every condition.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from nacdrive.common.errors import UserError
from nacdrive.common.files import result_folder, write_text
from nacdrive.common.parallel import run_jobs
from nacdrive.common.plugins import check_trusted
from nacdrive.common.runs import check_resumable, run_record
from nacdrive.extras.bench.cell import REFERENCES, Result, cell_folder
from nacdrive.extras.bench.conditions import changed, conditions_for
from nacdrive.extras.bench.config import RobustnessConfig
from nacdrive.extras.bench.grid import RESULTS, check_models, read_cells
from nacdrive.extras.bench.machine import machine_state
from nacdrive.extras.bench.report import settings_of
from nacdrive.models.series import load_series
from nacdrive.tasks import load_task
from nacdrive.tasks.base import ProtocolName, Size
from nacdrive.tasks.sample import Sample
from nacdrive.tasks.series import SeriesTask
from nacdrive.tasks.splits import evenly
from nacdrive.training.log import read_rows
from nacdrive.training.predict import outputs

ROWS = "robustness.jsonl"


@dataclass(frozen=True)
class Job:
    """One trained model, and how it is tested."""

    row: Result  # line of the run's results that tells of its training
    model: Path
    most_tests: int  # test sequences, evenly thinned; 0: all
    seed: int  # of what the conditions draw

    @property
    def key(self) -> str:
        """Names the training among those of all runs."""
        return json.dumps([self.row["key"], settings_of(self.row)], sort_keys=True)


def find_jobs(config: RobustnessConfig) -> tuple[list[Job], list[str]]:
    """The trained models of the runs, in the order of their results, and a sentence for each task that is left out."""
    check_models(config.models)
    jobs: dict[str, Job] = {}
    left_out: dict[str, str] = {}
    for run in config.data:
        if not (run / RESULTS).is_file():
            raise UserError(f"{run} holds no {RESULTS}: name folders of 'nacdrive bench table' or 'bench run'.")
        for row in read_cells(run / RESULTS):
            wanted = not config.models or row["model"] in config.models
            if row["status"] != "done" or row["model"] == REFERENCES or not wanted:
                continue
            if reason := unsuitable(row):
                left_out[row["task"]] = f"{row['task']} of {run} is left out: {reason}"
                continue
            model = cell_folder(run, row["key"]) / "model.pt"
            if not model.is_file():
                raise UserError(
                    f"{model} is not there, and {run / RESULTS} alone holds no weights: train that cell again with "
                    "'nacdrive bench run', or name the folder with its 'cells'."
                )
            job = Job(row, model, config.most_tests, config.seed)
            jobs[job.key] = job
    if not jobs:
        reasons = " ".join(f"{text}." for text in left_out.values())
        raise UserError(f"there is no trained model to test in {', '.join(map(str, config.data))}. {reasons}".strip())
    return list(jobs.values()), list(left_out.values())


def unsuitable(row: Result) -> str | None:
    """Why the model of ``row`` cannot be tested under the conditions; None if it can."""
    protocol: ProtocolName = row["record"]["config"]["protocol"]
    check_trusted("a result", row["task"])
    task = load_task(row["task"], protocol)
    if not isinstance(task, SeriesTask) or task.read != "last":
        return "it has an answer for every step, so a step that is missing takes its own answer along"
    if protocol != "sequence":
        return f"under protocol {protocol} its layers are given no time"
    return "its data were made up" if row["task"] in row["made_up"] else None


def plan(config: RobustnessConfig) -> tuple[list[Job], dict[str, Result], list[str]]:
    """All jobs, the results that are there already by the key of their job, and what is left out; claims the folder."""
    jobs, left_out = find_jobs(config)
    again = {"overwrite": config.overwrite, "resume": not config.overwrite}
    folder = result_folder(config.out, **again, reads=config.data, own=ROWS)
    check_resumable(folder, config, ("data", "models", "workers", "out", "overwrite"))
    rows = [row for row in read_rows(folder / ROWS) if isinstance(row.get("trained"), dict)]
    have = {row["trained"].get("id"): row for row in rows}
    # A model that was trained again since then is another one.
    return jobs, {job.key: have[job.key] for job in jobs if is_of(have.get(job.key), job)}, left_out


def is_of(result: Result | None, job: Job) -> bool:
    """Whether a result is that of the model of ``job``."""
    return result is not None and result["trained"].get("scores") == job.row["scores"]


def compute(
    config: RobustnessConfig, jobs: Sequence[Job], done: dict[str, Result], on_result: Callable[[Job, Result], None]
) -> list[Result]:
    """Test what has no result yet, keep each at once; all results, in the order of ``jobs``."""
    path = config.out / ROWS
    # A line that a crash cut short must not swallow the next; results of models that are not asked for now are kept.
    write_text(path, "".join(json.dumps(row) + "\n" for row in read_rows(path)))
    results = dict(done)
    missing = [job for job in jobs if job.key not in done]
    # One alone needs no other process.
    workers = config.at_once if config.at_once > 1 else 0
    with path.open("a", encoding="utf-8") as file, closing(run_jobs(test_model, missing, workers=workers)) as computed:
        for job, result in computed:
            results[job.key] = result
            file.write(json.dumps(result, allow_nan=False) + "\n")
            file.flush()
            on_result(job, result)
    return [results[job.key] for job in jobs]


def test_model(job: Job) -> Result:
    """Every condition for one model."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    row, training = job.row, job.row["record"]
    task = load_task(row["task"], "sequence")
    assert isinstance(task, SeriesTask)  # as ``unsuitable`` has judged
    part = {name: training["config"][name] for name in ("data_dirs", "folds", "seed", "size")}
    samples = test_part(row["task"], json.dumps(part), row["fold"], job.most_tests)
    network, _ = load_series(job.model, task=row["task"])
    gap_s = network.config.gap_s
    assert gap_s is not None
    conditions = {}
    for condition in conditions_for(task, samples):
        tested = changed(task, samples, condition, gap_s, job.seed)
        answers = outputs(network, task, tested, batch=task.settings.get("valid_batch", 1))
        if not all(bool(y.isfinite().all()) for y in answers):
            raise UserError(f"{job.model} gives no finite answer under the condition '{condition.key}'.")
        conditions[condition.key] = dict(task.score(row["task"], answers, tested))
    if any(not math.isfinite(value) for scores in conditions.values() for value in scores.values()):
        raise UserError(f"{job.model} has a score that is no number on {len(samples)} tests: give more --most-tests.")
    return {
        **{name: row[name] for name in ("key", "task", "model", "fold", "repeat")},
        "time_sense": network.sequence.time_sense, "conditions": conditions, "tests": len(samples), "seed": job.seed,
        "wall_s": round(time.perf_counter() - began, 2),
        "trained": {
            "id": job.key, "scores": row["scores"],
            **{name: training.get(name) for name in ("command", "config", "commit", "processor", "instructions")},
        },
        "record": {**run_record({}), **machine_state()},
    }  # fmt: skip


@lru_cache(maxsize=1)
def test_part(name: str, part: str, fold: int, most: int) -> Sequence[Sample]:
    """Test samples of a fold; ``part``, JSON of what the split depends on. Those of the last call are kept at hand."""
    config: dict[str, Any] = json.loads(part)
    folders = {task: Path(place) for task, place in config["data_dirs"].items()}
    # What there is to say of the data was said when the model was trained.
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        parts = load_task(name, "sequence").folds(folders, config["folds"], config["seed"], Size(**config["size"]))
    samples = parts[fold].tests[name]
    return [samples[i] for i in evenly(range(len(samples)), most or None)]
