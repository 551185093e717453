"""One episode with an expert at the wheel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nacdrive.base.control import Action
from nacdrive.data.episode import Episode
from nacdrive.data.images import encode_png
from nacdrive.driving.loop import Observer, World, ending

REPORT_EVERY = 20
"""Recorded frames between two reports of progress. They are encoded together: with the encoder's code and tables in the
processor's cache this takes about half the time that it takes between two frames of the simulator."""


class Teacher(Protocol):
    """An expert between episodes."""

    repeat: int
    """Simulated frames for which it holds an action."""

    def new_episode(self, env: Any) -> Observer:
        """Begin an episode in an environment that has been reset."""


def record_episode(
    world: World,
    expert: Teacher,
    seed: int,
    *,
    source: str,
    driver: str,
    hold: int = 1,
    meta: dict[str, Any] | None = None,
    on_frames: Callable[[int], None] = lambda frames: None,
) -> Episode:
    """Let ``expert`` drive the track of ``seed`` to its end.

    Args:
        world: What is driven; each of its steps is one recorded frame.
        expert: Who drives.
        seed: Seed of the track.
        source: Name of the environment, for the episode.
        driver: Name of the expert, for the episode.
        hold: Steps of ``world`` for which one decision of the expert is held. 1 where the world itself repeats the
            action; the expert's ``repeat`` where the world hands out every frame.
        meta: What else the episode shall say of itself.
        on_frames: Called with the number of frames recorded since the last call.
    """
    frame, info = world.reset(seed=seed)
    at_wheel = expert.new_episode(world)
    frames: list[bytes] = []
    seen: list[NDArray[np.uint8]] = []
    actions: list[Action] = []
    times, speeds, rewards = [], [], []
    done = terminated = False
    while not done:
        if len(actions) % hold == 0:
            action = decided(at_wheel.observe(frame))
        seen.append(frame)
        actions.append(action)
        times.append(float(info["t_s"]))
        speeds.append(float(info["speed_mps"]))
        assert action.choice is not None
        frame, reward, terminated, truncated, info = world.step(action.choice)
        rewards.append(float(reward))
        done = terminated or truncated
        if done or len(seen) == REPORT_EVERY:
            frames += map(encode_png, seen)
            on_frames(len(seen))
            seen.clear()
    choices = np.array([action.choice for action in actions])
    return Episode(
        frames=frames,
        t_s=np.array(times),
        choice=choices,
        steering=np.array([action.steering for action in actions], dtype=np.float32),
        throttle=np.array([action.throttle for action in actions], dtype=np.float32),
        brake=np.array([action.brake for action in actions], dtype=np.float32),
        reward=np.array(rewards, dtype=np.float32),
        speed_mps=np.array(speeds, dtype=np.float32),
        expert_choice=choices,
        expert_logits=stacked([action.logits for action in actions]),
        seed=seed,
        source=source,
        driver=driver,
        episode_return=float(sum(rewards)),
        meta={
            **(meta or {}),
            "ended": ending(info, terminated=terminated, stopped=False),
            "finished_lap": bool(info.get("finished_lap", False)),
            "tiles_visited": float(info.get("tiles_visited", 0.0)),
            "frames_per_decision": hold,
        },
    )


def decided(action: Action) -> Action:
    """``action``, or an error where it is none of the world's few."""
    if action.choice is None:
        raise TypeError("this world takes one of a few actions, and the expert gave none")
    return action


def stacked(logits: list[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    """[frames, choices], or None where the expert has no scores."""
    known = [row for row in logits if row is not None]
    return np.stack(known).astype(np.float32) if len(known) == len(logits) else None
