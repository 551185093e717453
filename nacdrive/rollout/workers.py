"""Who drives in an evaluation: one process per core, each with its own simulator, policy and expert."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Literal

from nacdrive.common.errors import UserError
from nacdrive.common.files import atomic_path
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.episode_file import to_parquet
from nacdrive.drivers import Expert, load_expert
from nacdrive.drivers.expert_driver import ExpertDriver
from nacdrive.drivers.tick import Listener, Tick
from nacdrive.envs.camera_noise import Camera, CameraNoise
from nacdrive.envs.carracing.env import Renderer, make_carracing
from nacdrive.envs.carracing.lazy import FPS
from nacdrive.models import Policy, load_policy
from nacdrive.rollout.notes import EpisodeBuffer, advised
from nacdrive.rollout.old_loop import Driver, Observer, drive_episode
from nacdrive.rollout.results import Row, Trace
from nacdrive.viz.video import video

DRIVES = "drives"
"""Folder of a result that holds the filmed drives as a recording."""
NEURONS_EVERY = 2
"""Decisions between two readings of the neurons for those who watch."""


@dataclass(frozen=True)
class Course:
    """What is driven, by whom, and through which camera."""

    model: Path
    """The policy's file."""
    expert: str | None
    """Name or file of the expert that drives the same tracks and rides along; None for none."""
    device: str = "cpu"
    """Where the policy runs."""
    renderer: Renderer = "official"
    """Pixels that policy and expert see."""
    disturbance: CameraNoise = field(default_factory=CameraNoise)
    """What is wrong with the policy's camera; the expert sees the true frames."""
    task: str = "carracing"
    """Task that the policy must have been trained for."""


@dataclass(frozen=True)
class Job:
    """One episode to drive."""

    who: Literal["policy", "expert"]
    episode: int
    seed: int
    film: Path | None = None
    """Where to write a video of it; the drive is kept beside it in ``DRIVES``, for ``nacdrive replay``."""


class RolloutWorker:
    """Drives the jobs of one process; loads what a job needs when the first such job comes.

    ``listeners`` hear of every decision, ``watchers`` of the policy's alone, with its neurons.
    """

    def __init__(self, course: Course, listeners: Iterable[Listener] = (), watchers: Iterable[Listener] = ()) -> None:
        self.course, self.listeners, self.watchers = course, tuple(listeners), tuple(watchers)

    @cached_property
    def policy(self) -> Policy:
        """The policy."""
        return load_policy(self.course.model, device=self.course.device, expect_task=self.course.task)

    @cached_property
    def expert(self) -> Expert | None:
        """The expert, where one is asked for."""
        return load_expert(self.course.expert) if self.course.expert else None

    def drive(self, job: Job) -> Row:
        """Drive one episode and say what came of it."""
        trace, expert = Trace(), self.expert
        with ExitStack() as stack:
            listeners: list[Listener] = [trace, *self.listeners]
            driver: Driver
            beside: Callable[[Any], Observer] | None = None
            if job.who == "expert":
                assert expert is not None
                repeat, title = expert.repeat, f"expert {expert.name}"
                world = make_carracing(renderer=self.course.renderer, repeat=repeat)
                driver = ExpertDriver(expert.new_episode, world)
            else:
                driver, repeat, title = self.policy, self.policy.repeat, self.policy.name
                listeners += self.watchers
                world = make_carracing(renderer=self.course.renderer, repeat=repeat)
                if expert is not None and expert.repeat == repeat:
                    beside = expert.new_episode
            stack.callback(world.close)
            notes = EpisodeBuffer(advised)
            if job.film is not None:
                listeners += [stack.enter_context(video(job.film, title, FPS / repeat)), notes]
            result = drive_episode(
                world,
                driver,
                job.seed,
                episode=job.episode,
                listeners=listeners,
                expert=beside,
                camera=Camera(self.course.disturbance) if job.who == "policy" else None,
                neurons_every=NEURONS_EVERY if self.watchers else 0,
            )
        if job.film is not None:
            keep(job, notes.episode(source=self.course.task, driver=title, meta={}))
        return trace.row(result)


def keep(job: Job, episode: Episode) -> None:
    """Write a filmed episode; the main process lists it when all are there."""
    assert job.film is not None
    folder = job.film.parent / DRIVES
    folder.mkdir(exist_ok=True)
    with atomic_path(folder / f"episode-{job.seed:07d}.parquet") as partial:
        partial.write_bytes(to_parquet(episode))


class CancelledError(Exception):
    """The main process wants the episode to end."""


_cockpit: RolloutWorker


def start_worker(course: Course, stop: Event) -> None:
    """Make this process ready to drive."""
    global _cockpit
    import cv2
    import torch

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    # Ctrl-C reaches every process of the terminal: the main one decides, and tells us through `stop`.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()

    def heed(tick: Tick) -> None:
        if stop.is_set():
            raise CancelledError

    _cockpit = RolloutWorker(course, [heed])


def exit_with_parent() -> None:
    """Leave when the main process has been killed: nobody is left to drive for."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def drive_job(job: Job) -> Row:
    """Drive one job in a worker."""
    return _cockpit.drive(job)


def drive_jobs(
    course: Course, jobs: list[Job], workers: int, listeners: Iterable[Listener] = ()
) -> Iterator[tuple[Job, Row]]:
    """Drive ``jobs`` and yield each with its row as soon as it is done.

    ``workers`` processes; 0 drives in this process, where ``listeners`` hear every Tick of the policy.

    Raises:
        UserError: if a worker dies.
    """
    if workers == 0:
        cockpit = RolloutWorker(course, watchers=listeners)
        for job in jobs:
            yield job, cockpit.drive(job)
        return
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(min(workers, len(jobs)) or 1, context, start_worker, (course, stop))
    try:
        waiting: dict[Future[Row], Job] = {pool.submit(drive_job, job): job for job in jobs}
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), future.result()
    except BrokenProcessPool as error:
        raise UserError(
            "a driving process died, probably for lack of memory: what is complete is kept, "
            "run the same command with --resume and fewer --workers."
        ) from error
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
