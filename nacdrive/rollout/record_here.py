"""Recording in this process, where people watch and where a person may be the one who drives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from nacdrive.datasets.episode import Episode
from nacdrive.datasets.images import encode_jpeg
from nacdrive.drivers.human import HumanControl
from nacdrive.drivers.tick import Listener
from nacdrive.rollout.lake_drive import REPEAT, drive_lake
from nacdrive.rollout.record_config import KEYBOARD
from nacdrive.rollout.record_episode import record_episode
from nacdrive.rollout.record_worker import Frames, Job, record_carracing


class RecordHere:
    """Takes the place of ``RecordWorkers``: one episode at a time, each Tick of which ``listeners`` hear.

    Args:
        job: what is recorded.
        listeners: who watches.
        control: what persons at their browsers want; for a recording by keyboard.
    """

    def __init__(self, job: Job, listeners: Iterable[Listener], control: HumanControl | None = None) -> None:
        self._job, self._listeners, self._control = job, tuple(listeners), control
        self._seed: int | None = None

    def __enter__(self) -> RecordHere:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    @property
    def idle(self) -> int:
        """1 while no episode is under way."""
        return int(self._seed is None)

    @property
    def driving(self) -> int:
        """Episodes under way."""
        return 1 - self.idle

    def drive(self, seed: int) -> None:
        """Take ``seed`` as the next one."""
        self._seed = seed

    def messages(self) -> Iterator[Frames | Episode]:
        """Drive the episode; yields its frames' number, and itself."""
        assert self._seed is not None
        episode = self._record(self._seed)
        self._seed = None
        yield Frames(len(episode))
        yield episode

    def _record(self, seed: int) -> Episode:
        job = self._job
        if job.expert == KEYBOARD:
            return self._by_hand(seed)
        if job.lake is not None:
            return drive_lake(job.lake, seed, source=job.source, driver=job.driver, listeners=self._listeners)
        with record_carracing(job) as record:
            return record(seed, listeners=self._listeners)

    def _by_hand(self, seed: int) -> Episode:
        job = self._job
        options: dict[str, Any] = {"listeners": self._listeners, "control": self._control}
        meta: dict[str, Any] = {"max_frames": job.max_frames, "repeat": REPEAT}
        if job.lake is None:
            from nacdrive.envs.carracing.env import make_carracing

            world: Any = make_carracing(repeat=REPEAT, max_frames=job.max_frames)
        else:
            from nacdrive.envs.udacity_track import make_udacity_track

            track = job.lake.track_of(seed)
            world = make_udacity_track(track, repeat=REPEAT, laps=1000, max_seconds=job.lake.seconds, recover=True)
            meta["track"] = track
            options["encode"] = encode_jpeg
        try:
            return record_episode(world, None, seed, source=job.source, driver=job.driver, meta=meta, **options)
        finally:
            world.close()
