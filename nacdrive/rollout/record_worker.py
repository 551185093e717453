"""Body of a recording process: obey the pipe, drive, send whole episodes back."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.rollout.record_config import LakeDrive


@dataclass(frozen=True)
class Job:
    """What all episodes of a recording have in common."""

    source: str
    """The environment's name."""
    expert: str
    """The expert's name or file."""
    driver: str
    """What the episodes call it."""
    every_frame: bool
    """One recorded frame per simulated frame instead of one per decision."""
    max_frames: int
    """Simulated frames after which an episode ends."""
    lake: LakeDrive | None = None
    """How the built-in tracks of the Udacity simulator are driven, where it is these that are recorded."""


@dataclass(frozen=True)
class Frames:
    """So many more frames have been recorded."""

    count: int


@dataclass(frozen=True)
class Failure:
    """The job cannot be done; a sentence for the user."""

    sentence: str


Message = Frames | Failure | Episode


def work(pipe: Connection, job: Job) -> None:
    """Record the episode of every seed that comes in, until None comes or the other end is gone."""
    # The parent decides what Ctrl-C means; if it is killed, the next message finds a broken pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENCV_FOR_THREADS_NUM": "1"}
    try:
        obey(pipe, job)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except UserError as error:
        pipe.send(Failure(str(error)))


def obey(pipe: Connection, job: Job) -> None:
    """Build environment and expert once, then drive seed after seed."""
    if job.lake is not None:
        return obey_on_lake(pipe, job, job.lake)
    with record_carracing(job) as record:
        while (seed := pipe.recv()) is not None:
            pipe.send(record(seed, on_frames=lambda count: pipe.send(Frames(count))))


@contextmanager
def record_carracing(job: Job) -> Iterator[Callable[..., Episode]]:
    """``record_episode`` with environment and expert of ``job``; takes the seed, and who is to hear of the drive."""
    from nacdrive.drivers import load_expert
    from nacdrive.envs.carracing.env import make_carracing
    from nacdrive.rollout.record_episode import record_episode

    expert = load_expert(job.expert)
    if "torch" in sys.modules:
        # Where the caller's own main module had imported torch before the environment could tell it.
        sys.modules["torch"].set_num_threads(1)
    repeat, hold = (1, expert.repeat) if job.every_frame else (expert.repeat, 1)
    world = make_carracing(repeat=repeat, max_frames=job.max_frames)
    meta = {"max_frames": job.max_frames, "repeat": expert.repeat}
    try:
        yield partial(record_episode, world, expert, source=job.source, driver=job.driver, hold=hold, meta=meta)
    finally:
        world.close()


def obey_on_lake(pipe: Connection, job: Job, drive: LakeDrive) -> None:
    """Drive seed after seed on the built-in tracks, each in a landscape of its own."""
    from nacdrive.rollout.lake_drive import drive_lake

    def report(count: int) -> None:
        pipe.send(Frames(count))

    while (seed := pipe.recv()) is not None:
        pipe.send(drive_lake(drive, seed, source=job.source, driver=job.driver, on_frames=report))
