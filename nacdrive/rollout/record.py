"""Episodes of an expert, kept in a recording: driven here or by several processes, the same files either way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nacdrive.common.action import KEYBOARD
from nacdrive.common.errors import UserError
from nacdrive.common.parallel import report, run_by_method, run_jobs
from nacdrive.common.result_folder import foreign_files
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.manifest import EpisodeInfo
from nacdrive.datasets.udacity_log_convert import export_log
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.drivers import driver_checksum, load_expert
from nacdrive.drivers.human import HumanControl
from nacdrive.drivers.tick import Listener
from nacdrive.envs.registry import BOTH
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.envs.start import LAP_RULES
from nacdrive.rollout.drive import Drive, LoadedDrive, action_repeat, check_repeat
from nacdrive.rollout.record_config import OFFICIAL_FRAMES, RecordConfig
from nacdrive.rollout.recorder import EpisodeBuffer, executed_action, expert_action

TRIES = 5
"""Tracks driven per episode asked for before --min-return is taken for unreachable."""
REPORT_EVERY = 20
"""Recorded frames between two reports of progress."""
OnEpisode = Callable[[Episode, Path | None], None]
"""Called with what was driven, and where it lies; None where its return was below --min-return."""


@dataclass(frozen=True)
class RecordProgress:
    """How far a recording is."""

    kept: int
    """Episodes in the recording."""
    dropped: int
    """Episodes driven and not kept."""
    frames: int
    """Frames recorded by this call so far, unfinished episodes included."""


@dataclass(frozen=True)
class RecordResult:
    """What a recording holds now."""

    folder: Path
    episodes: list[EpisodeInfo]
    dropped: dict[int, float]
    """Seeds below --min-return, and their returns."""
    frames: int


def record_episodes(
    config: RecordConfig,
    on_episode: OnEpisode = lambda episode, path: None,
    progress: Callable[[RecordProgress], None] = lambda progress: None,
    listeners: Iterable[Listener] | None = None,
    control: HumanControl | None = None,
) -> RecordResult:
    """Record until the folder holds ``config.episodes`` episodes; ``UserError`` if too few are good enough.

    Which tracks these are depends on the options alone, not on the number of processes or on interruptions: the first
    ones from ``config.seed`` on whose return reaches ``config.min_return``. With ``listeners`` it is driven in this
    process, and they hear every Tick; ``control`` is for a person who drives.
    """
    if (log := config.log) and (
        log.resolve().is_relative_to(config.folder.resolve())
        or (log.exists() and not (log.is_dir() and not any(foreign_files(log) if config.overwrite else log.iterdir())))
    ):
        # Refused now, not after all the drives.
        raise UserError(f"{log} already holds something, or will hold the recording: give another --log.")
    here = EpisodeDriver(config, () if listeners is None else listeners, control)
    writer = RecordingWriter(
        config.folder,
        source=config.spec.source,
        fps=here.loaded.fps,
        expert=(here.loaded.expert or here.loaded.driver).name,
        recipe=here.recipe,
        license=config.license,
        drive=here.loaded.drive.to_json(),
        resume=config.resume,
        overwrite=config.overwrite,
    )
    seeds, frames = SeedQueue(config, writer), 0

    def count(seed: int, recorded: int) -> None:
        nonlocal frames
        frames += recorded
        progress(RecordProgress(config.episodes - seeds.missing, len(writer.dropped), frames))

    if listeners is None:
        done = run_by_method(
            EpisodeDriver, (config,), "record", seeds, workers=config.at_once, on_message=count, ray=config.ray
        )
    else:
        done = run_jobs(here.record, seeds, workers=0, on_message=count)
    try:
        with closing(done):
            for seed, episode in done:
                kept = config.min_return is None or episode.episode_return >= config.min_return
                path = writer.add(episode) if kept else None
                if not kept:
                    writer.drop(seed, episode.episode_return)
                seeds.driving -= 1
                on_episode(episode, path)
                count(seed, 0)
    except KeyboardInterrupt:
        # Between an episode's renaming and its listing there is an instant.
        writer.adopt_unlisted()
        raise
    if log is not None:
        export_log(config.folder, log, overwrite=config.overwrite)
    return RecordResult(config.folder, writer.episodes, writer.dropped, frames)


class SeedQueue:
    """Hands out seeds in order, as many as are missing, leaving out what the recording already knows."""

    def __init__(self, config: RecordConfig, writer: RecordingWriter) -> None:
        self._config, self._writer = config, writer
        self._seed, self.driving = config.seed, 0
        """Seeds that have been handed out and whose episodes are neither kept nor dropped."""

    @property
    def missing(self) -> int:
        return max(0, self._config.episodes - sum(info.seed >= self._config.seed for info in self._writer.episodes))

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        """The next seed to drive; there may be another one later; ``UserError`` where too many were dropped."""
        if self.driving >= self.missing:
            raise StopIteration
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
        self.driving += 1
        return self._seed - 1


class EpisodeDriver:
    """Drives episodes as a ``RecordConfig`` wants them, and says what they have in common."""

    def __init__(
        self, config: RecordConfig, listeners: Iterable[Listener] = (), control: HumanControl | None = None
    ) -> None:
        self.config, self.listeners, self.control = config, tuple(listeners), control
        spec, by_expert = config.spec, config.expert is not None and not config.by_hand
        expert = load_expert(str(config.expert), discrete_only=False) if by_expert else None
        driver = load_expert(config.driver, discrete_only=False) if config.driver is not None else None
        for who in filter(None, (expert, driver)):
            check_repeat(spec, who, config.repeat)
        # What is learnt comes from the expert, so that its pace counts.
        pace = expert or driver
        repeat = action_repeat(spec, pace, config.repeat) if pace is not None else config.repeat
        self.loaded = LoadedDrive(self.described, driver=driver, expert=expert, repeat=repeat)

    @property
    def described(self) -> Drive:
        config, spec = self.config, self.config.spec
        options = {"max_frames": config.max_frames, "rule": config.rule, "repeat": config.repeat, **config.road.given}
        if spec.honours("sides") and not config.by_hand:
            options["sides"] = config.sides
        return Drive(
            config.env,
            driver=KEYBOARD if config.by_hand else config.driver,
            expert=None if config.by_hand else config.expert,
            options=options,
            camera=config.disturbance,
            track=config.track,
            roads=config.roads,
            steering_noise=self.steering_noise or 0.0,
            recover=config.by_hand,
            safety_stop=False,
            random_start=spec.steering_noise is not None and not config.by_hand,
            every_frame=config.every_frame,
        )

    @property
    def steering_noise(self) -> float | None:
        if self.config.by_hand:
            return None
        given = self.config.steering_noise
        return self.config.spec.steering_noise if given is None else given

    @property
    def recipe(self) -> dict[str, Any]:
        """What must be the same on resuming, by its names in ``recording.json``."""
        config, spec = self.config, self.config.spec
        recipe: dict[str, Any] = {"first_seed": config.seed}
        checksum = None if config.expert is None or config.by_hand else driver_checksum(config.expert)
        if config.by_hand:
            recipe["max_frames"] = config.max_frames
        elif spec.steering_noise is not None:
            seconds = (config.max_frames or OFFICIAL_FRAMES) / (spec.frames_per_second or 1)
            recipe |= {"track": config.track or BOTH, "seconds": seconds, "noise": self.steering_noise}
            recipe |= {"sides": config.sides, "beta": 1.0}
            known = {"min_return": config.min_return, "expert_sha256": checksum}
            recipe |= {name: value for name, value in known.items() if value is not None}
        else:
            recipe = {
                "expert_sha256": checksum,
                **recipe,
                "repeat": self.loaded.repeat,
                "every_frame": config.every_frame,
                "max_frames": config.max_frames,
                "min_return": config.min_return,
                **({"renderer": "official"} if spec.honours("renderer") else {}),
                **({"steering_noise": config.steering_noise} if config.steering_noise is not None else {}),
            }
            recipe |= {"continuous": True} if self.loaded.driver.needs.continuous else {}
        recipe |= config.road.given | ({"roads": config.roads} if config.roads is not None else {})
        recipe |= {name: value for name in ("track", "repeat") if (value := getattr(config, name)) is not None}
        recipe |= {"rule": config.rule} if config.rule not in (None, LAP_RULES[0]) else {}
        if config.driver is not None:
            recipe |= {"driver": config.driver, "driver_sha256": driver_checksum(config.driver)}
        return recipe | ({"camera": str(config.disturbance)} if config.disturbance.active else {})

    def record(self, seed: int) -> Episode:
        """The episode of ``seed``; it depends on the config and that alone, unless a person drives."""
        config, loaded = self.config, self.loaded
        label = executed_action if loaded.expert is None else expert_action
        buffer = EpisodeBuffer(label, loaded.spec.image_format, batch=REPORT_EVERY, on_frames=report)
        with loaded.open(seed, control=self.control, realtime=config.by_hand) as opened:
            for tick in opened:
                buffer(tick)
                for listener in self.listeners:
                    listener(tick)
            meta = {**opened.env.episode_meta(), **opened.meta}
        if not loaded.drive.random_start:
            meta |= {"max_frames": config.max_frames, "repeat": loaded.repeat}
            meta["frames_per_decision"] = loaded.repeat if config.every_frame else 1
        return buffer.episode(source=loaded.spec.source, driver=loaded.driver.name, meta=meta)
