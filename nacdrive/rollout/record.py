"""Many episodes with an expert at the wheel, several at a time, kept in a recording."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.datasets.manifest import EpisodeInfo
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.drivers import load_expert
from nacdrive.drivers.human import HumanControl
from nacdrive.drivers.tick import Listener
from nacdrive.envs.carracing.lazy import FPS
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.rollout.lake_drive import REPEAT as LAKE_REPEAT
from nacdrive.rollout.record_config import FRAMES_PER_SECOND, KEYBOARD, RecordConfig
from nacdrive.rollout.record_here import RecordHere
from nacdrive.rollout.record_worker import Frames, Job
from nacdrive.rollout.record_workers import RecordWorkers

TRIES = 5
"""Tracks driven per episode asked for before --min-return is taken for unreachable."""


@dataclass(frozen=True)
class Outcome:
    """One episode that has been driven to its end."""

    seed: int
    """Seed of the track."""
    episode_return: float
    """Sum of the rewards."""
    steps: int
    """Recorded frames."""
    path: Path | None
    """Where it lies; None where its return was below --min-return."""


@dataclass(frozen=True)
class RecordProgress:
    """How far a recording is."""

    kept: int
    """Episodes in the recording."""
    asked: int
    """Episodes that it shall hold."""
    dropped: int
    """Episodes driven and not kept."""
    driving: int
    """Episodes under way."""
    frames: int
    """Frames recorded by this call so far, unfinished episodes included."""


@dataclass(frozen=True)
class RecordResult:
    """What a recording holds now."""

    folder: Path
    """Where it lies."""
    episodes: list[EpisodeInfo]
    """Its episodes."""
    dropped: dict[int, float]
    """Seeds below --min-return, and their returns."""
    frames: int
    """Frames recorded by this call."""


def record_episodes(
    config: RecordConfig,
    on_episode: Callable[[Outcome], None] = lambda outcome: None,
    progress: Callable[[RecordProgress], None] = lambda progress: None,
    listeners: Iterable[Listener] | None = None,
    control: HumanControl | None = None,
) -> RecordResult:
    """Record until the folder holds ``config.episodes`` episodes.

    Which tracks these are depends on the options alone, not on the number of processes or on interruptions: the first
    ones from ``config.seed`` on whose return reaches ``config.min_return``. With ``listeners`` it is driven in this
    process, and they hear every Tick; ``control`` is for a person who drives.

    Raises:
        UserError: if the folder holds something else, the expert cannot be loaded, the disk is full, or too few
            tracks reach ``config.min_return``.
    """
    job, fps, recipe = plan(config)
    writer = RecordingWriter(
        config.out,
        source=config.env,
        fps=fps,
        expert=job.driver,
        recipe=recipe,
        resume=config.resume,
        overwrite=config.overwrite,
    )
    seeds = SeedQueue(config, writer)
    frames = 0
    try:
        with ExitStack() as stack:
            workers: RecordWorkers | RecordHere
            if listeners is None:
                workers = stack.enter_context(RecordWorkers(job, min(config.parallel, seeds.missing)))
            else:
                workers = stack.enter_context(RecordHere(job, listeners, control))
            while seeds.missing:
                while workers.idle and workers.driving < seeds.missing:
                    workers.drive(seeds.next())
                for message in workers.messages():
                    if isinstance(message, Frames):
                        frames += message.count
                    else:
                        kept = config.min_return is None or message.episode_return >= config.min_return
                        path = writer.add(message) if kept else None
                        if not kept:
                            writer.drop(message.seed, message.episode_return)
                        on_episode(Outcome(message.seed, message.episode_return, len(message), path))
                    progress(
                        RecordProgress(
                            kept=config.episodes - seeds.missing,
                            asked=config.episodes,
                            dropped=len(writer.dropped),
                            driving=workers.driving,
                            frames=frames,
                        )
                    )
    except KeyboardInterrupt:
        # Between an episode's renaming and its listing there is an instant.
        writer.adopt_unlisted()
        raise
    return RecordResult(config.out, writer.episodes, writer.dropped, frames)


def plan(config: RecordConfig) -> tuple[Job, float, dict[str, Any]]:
    """What the processes are told, the recorded frames per second, and what must be the same on resuming.

    Raises:
        UserError: if the expert cannot be loaded.
    """
    if config.by_hand:
        by_hand = Job(config.env, KEYBOARD, KEYBOARD, False, config.max_frames, config.lake)
        return by_hand, FRAMES_PER_SECOND / LAKE_REPEAT, {"first_seed": config.seed, "max_frames": config.max_frames}
    if config.lake is not None:
        recipe: dict[str, Any] = {"first_seed": config.seed, **asdict(config.lake)}
        job = Job(config.env, config.expert, config.expert, False, config.max_frames, config.lake)
        return job, FRAMES_PER_SECOND / LAKE_REPEAT, recipe
    expert = load_expert(config.expert)
    recipe = {
        "expert_sha256": expert_checksum(config.expert),
        "first_seed": config.seed,
        "repeat": expert.repeat,
        "every_frame": config.every_frame,
        "max_frames": config.max_frames,
        "min_return": config.min_return,
        "renderer": "official",
    }
    job = Job(config.env, config.expert, expert.name, config.every_frame, config.max_frames)
    return job, FPS if config.every_frame else FPS / expert.repeat, recipe


def expert_checksum(name: str) -> str | None:
    """SHA-256 of the file of a trained expert, so that no recording mixes two of them; None for the geometric one."""
    path = Path(name).expanduser()
    if name == "ppo" and not path.is_file():
        path = shipped("agents") / "carracing" / "ppo" / "ppo.pt"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


class SeedQueue:
    """Hands out seeds in order, leaving out what the recording already knows."""

    def __init__(self, config: RecordConfig, writer: RecordingWriter) -> None:
        self._config, self._writer = config, writer
        self._seed = config.seed

    @property
    def missing(self) -> int:
        """Episodes that the recording still lacks."""
        kept = sum(info.seed >= self._config.seed for info in self._writer.episodes)
        return max(0, self._config.episodes - kept)

    def next(self) -> int:
        """The next seed to drive.

        Raises:
            UserError: if too many tracks were dropped, or the seeds reach those that policies are judged on.
        """
        config, dropped = self._config, self._writer.dropped
        known = {info.seed for info in self._writer.episodes} | dropped.keys()
        while self._seed in known:
            self._seed += 1
        if len(dropped) >= TRIES * config.episodes:
            raise UserError(
                f"{len(dropped)} tracks stayed below --min-return {config.min_return:g} (the best at "
                f"{max(dropped.values()):.0f}), {config.episodes - self.missing} reached it: lower --min-return."
            )
        if self._seed in POLICY_TEST:
            raise UserError(f"the seeds have reached {self._seed}, kept for judging policies: give another --seed.")
        self._seed += 1
        return self._seed - 1
