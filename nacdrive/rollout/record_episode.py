"""One episode with an expert or a person at the wheel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from nacdrive.datasets.episode import Episode
from nacdrive.datasets.images import encode_png
from nacdrive.drivers.expert_driver import ExpertDriver
from nacdrive.drivers.human import HumanControl
from nacdrive.drivers.tick import Listener
from nacdrive.rollout.notes import EpisodeBuffer, driven
from nacdrive.rollout.old_loop import Frame, Observer, World, drive_episode

REPORT_EVERY = 20
"""Recorded frames between two reports of progress."""


class Teacher(Protocol):
    """An expert between episodes."""

    repeat: int
    """Simulated frames for which it holds an action."""

    def new_episode(self, env: Any) -> Observer:
        """Begin an episode in an environment that has been reset."""


def record_episode(
    world: World,
    expert: Teacher | None,
    seed: int,
    *,
    source: str,
    driver: str,
    hold: int = 1,
    meta: dict[str, Any] | None = None,
    on_frames: Callable[[int], None] = lambda frames: None,
    listeners: Iterable[Listener] = (),
    control: HumanControl | None = None,
    encode: Callable[[Frame], bytes] = encode_png,
) -> Episode:
    """Let ``expert`` drive the track of ``seed`` to its end.

    Args:
        world: What is driven; each of its steps is one recorded frame.
        expert: Who drives; None where a person does, at whose speed the clock then runs.
        seed: Seed of the track.
        source: Name of the environment, for the episode.
        driver: Name of who drives, for the episode.
        hold: Steps of ``world`` for which one decision of the expert is held. 1 where the world itself repeats the
            action; the expert's ``repeat`` where the world hands out every frame.
        meta: What else the episode shall say of itself.
        on_frames: Called with the number of frames recorded since the last call.
        listeners: Who else hears every Tick.
        control: What a person at a browser wants; of an episode that is started over the last start is recorded.
        encode: Makes an image's bytes of a frame.

    Raises:
        RuntimeError: if the expert fails.
    """
    notes = EpisodeBuffer(driven, REPORT_EVERY, on_frames, encode)
    at_wheel = ExpertDriver(expert.new_episode, world, hold) if expert is not None else None
    result = drive_episode(
        world, at_wheel, seed, listeners=(notes, *listeners), control=control, realtime=expert is None
    )
    if result.failure is not None:
        raise RuntimeError(f"the expert failed on track {seed}: {result.failure}")
    more = {
        "finished_lap": result.finished_lap,
        "tiles_visited": result.tiles_visited,
        "frames_per_decision": hold,
    }
    return notes.episode(source=source, driver=driver, meta={**(meta or {}), **more})
