"""DAgger (Ross, Gordon & Bagnell, 2011): the pupil drives, the expert says of every frame what it would have done."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.images import encode_png
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.drivers import load_expert
from nacdrive.drivers.commands import command
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.envs.carracing.lazy import FPS
from nacdrive.envs.seeds import POLICY_RECORDING
from nacdrive.models import Policy, load_policy
from nacdrive.rollout.lake_drive import REPEAT, drive_lake
from nacdrive.rollout.notes import stacked
from nacdrive.rollout.old_loop import Driver, Observer, World, ending
from nacdrive.rollout.record_config import FRAMES_PER_SECOND, LakeDrive
from nacdrive.rollout.workers import exit_with_parent

FIRST_SEED = (POLICY_RECORDING.start + POLICY_RECORDING.stop) // 2
"""Tracks of DAgger come from the second half of those for recording."""
SEEDS_PER_ROUND = 1000
TURN = 10
"""Decisions, on average, until the wheel may change hands."""
LAKE_TEACHER = ("geometric", FRAMES_PER_SECOND / REPEAT)
"""Name of the teacher on the built-in tracks, and recorded frames per second."""
LOST_AFTER = 30
"""Decisions without a new tile after which an episode ends: the expert's advice out there teaches nothing."""


@dataclass(frozen=True)
class Practice:
    """One round of practice."""

    policy: Path
    """The pupil's file."""
    expert: str
    """Name or file of the teacher."""
    round: int
    """Number of the round, from 1."""
    episodes: int
    """Tracks to drive."""
    beta: float
    """Share of decisions that the expert drives."""
    seed: int
    """Seeds who drives when, and which tracks are driven."""
    max_frames: int = 1000
    """Simulated frames after which an episode ends."""

    @property
    def tracks(self) -> range:
        """Seeds of the tracks."""
        slot = self.seed % 20 * 25 + (self.round - 1) % 25
        first = FIRST_SEED + slot * SEEDS_PER_ROUND
        return range(first, first + self.episodes)


def practise(
    practice: Practice, out: Path, workers: int, on_episode: Callable[[Episode], None] = lambda episode: None
) -> None:
    """Drive the round's tracks and keep them as a recording in ``out``; tracks that are there already are not driven.

    Raises:
        UserError: if teacher and pupil decide at different rates, or a driving process dies.
    """
    policy = load_policy(practice.policy)
    name, fps = LAKE_TEACHER if policy.task == "udacity" else carracing_teacher(practice, policy)
    writer = RecordingWriter(
        out,
        source=policy.task,
        fps=fps,
        expert=name,
        recipe={"dagger_round": practice.round, "beta": practice.beta, "seed": practice.seed},
        resume=True,
    )
    there = {info.seed for info in writer.episodes}
    missing = [track for track in practice.tracks if track not in there]
    if not missing:
        return
    for episode in drive_tracks(practice, missing, workers):
        writer.add(episode)
        on_episode(episode)


def carracing_teacher(practice: Practice, policy: Policy) -> tuple[str, float]:
    """Name of the teacher, and the frames per second at which it and the pupil decide.

    Raises:
        UserError: if they decide at different rates.
    """
    expert = load_expert(practice.expert)
    if expert.repeat != policy.repeat:
        raise UserError(
            f"the expert decides every {expert.repeat} frames and the policy every {policy.repeat}: "
            "record with this expert, without --every-frame, and train on that."
        )
    return expert.name, FPS / policy.repeat


def drive_tracks(practice: Practice, tracks: list[int], workers: int) -> Iterator[Episode]:
    """Drive ``tracks`` in processes of their own, or here if there is but one, and yield each when it is done."""
    if workers <= 1:
        pair = pair_of(practice)
        yield from map(pair.drive, tracks)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(tracks)), context, start_worker, (practice,))
    try:
        for future in as_completed([pool.submit(drive_track, track) for track in tracks]):
            yield future.result()
    except BrokenProcessPool as error:
        raise UserError(
            "a driving process died, probably for lack of memory: what is complete is kept, "
            "run the same command with --resume and fewer --workers."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


class Pair:
    """A pupil and its teacher in one process, in CarRacing."""

    def __init__(self, practice: Practice) -> None:
        self.practice, self.expert = practice, load_expert(practice.expert)
        self.policy = load_policy(practice.policy)

    def drive(self, track: int) -> Episode:
        """One episode on ``track``; it depends on the practice and the track alone."""
        practice, policy = self.practice, self.policy
        world = make_carracing(repeat=policy.repeat, max_frames=practice.max_frames)
        try:
            rng = np.random.default_rng([practice.seed, practice.round, track])
            begin = self.expert.new_episode
            return drive_together(world, policy, begin, track, practice.beta, rng, source=policy.task, name=policy.name)
        finally:
            world.close()


class LakePair:
    """A pupil and the geometric driver in one process, on the built-in tracks of the Udacity simulator in turn."""

    NOISE = 0.3
    """The pupil's own errors are what there is to learn from; a little more shows it their neighbours."""

    def __init__(self, practice: Practice) -> None:
        self.policy = load_policy(practice.policy)
        seconds = practice.max_frames / FRAMES_PER_SECOND
        self.drives = LakeDrive("both", seconds, self.NOISE, sides=False, beta=practice.beta)

    def drive(self, track: int) -> Episode:
        """One episode under the sky ``track``; it depends on the practice and that alone."""
        return drive_lake(self.drives, track, pupil=self.policy, source=self.policy.task, driver=self.policy.name)


def pair_of(practice: Practice) -> Pair | LakePair:
    """Pupil and teacher for the pupil's task."""
    return LakePair(practice) if load_policy(practice.policy).task == "udacity" else Pair(practice)


_pair: Pair | LakePair


def start_worker(practice: Practice) -> None:
    """Make this process ready to drive."""
    global _pair
    import torch

    torch.set_num_threads(1)
    # Ctrl-C reaches every process of the terminal: the main one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=exit_with_parent, daemon=True).start()
    _pair = pair_of(practice)


def drive_track(track: int) -> Episode:
    """Drive one track in a worker."""
    return _pair.drive(track)


def drive_together(
    world: World,
    pupil: Driver,
    begin: Callable[[Any], Observer],
    track: int,
    beta: float,
    rng: np.random.Generator,
    *,
    source: str,
    name: str,
) -> Episode:
    """One episode: the pupil drives, the expert takes the wheel for a share ``beta`` of the time and labels all of it.

    ``choice`` of the episode is what was driven, ``expert_choice`` and ``expert_logits`` are the labels.
    """
    frame, info = world.reset(seed=track)
    pupil.reset()
    teacher = begin(world)
    frames: list[bytes] = []
    driven: list[Action] = []
    labels: list[Action] = []
    times, speeds, rewards, by_expert = [], [], [], 0
    expert_at_wheel, most_tiles, last_gain = bool(rng.random() < beta), 0.0, 0
    done = terminated = False
    while not done:
        t_s, speed = float(info["t_s"]), float(info["speed_mps"])
        label, own = teacher.observe(frame), pupil.step(frame, t_s, speed)
        if rng.random() < 1 / TURN:
            expert_at_wheel = bool(rng.random() < beta)
        action = label if expert_at_wheel else own
        by_expert += expert_at_wheel
        frames.append(encode_png(frame))
        driven.append(action)
        labels.append(label)
        times.append(t_s)
        speeds.append(speed)
        frame, reward, terminated, truncated, info = world.step(command(world.action_space, action))
        rewards.append(float(reward))
        if info["tiles_visited"] > most_tiles:
            most_tiles, last_gain = float(info["tiles_visited"]), len(frames)
        done = terminated or truncated or len(frames) - last_gain >= LOST_AFTER
    return Episode(
        frames=frames,
        t_s=np.array(times),
        choice=np.array([action.choice for action in driven]),
        steering=np.array([action.steering for action in driven], dtype=np.float32),
        throttle=np.array([action.throttle for action in driven], dtype=np.float32),
        brake=np.array([action.brake for action in driven], dtype=np.float32),
        reward=np.array(rewards, dtype=np.float32),
        speed_mps=np.array(speeds, dtype=np.float32),
        expert_choice=np.array([label.choice for label in labels]),
        expert_logits=stacked([label.logits for label in labels]),
        seed=track,
        source=source,
        driver=name,
        episode_return=float(sum(rewards)),
        meta={
            "ended": ending(info, terminated=terminated, stopped=False),
            "tiles_visited": most_tiles,
            "expert_share": by_expert / len(frames),
        },
    )
