"""What learns beside the drive, in a process of its own: a round is ``train_policy`` with one lesson more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nacdrive.common.errors import UserError
from nacdrive.common.files import os_error_sentence
from nacdrive.common.parallel import lower_priority
from nacdrive.common.statistics import paired_difference
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.recording import Recording, load_episode
from nacdrive.datasets.writer import RecordingWriter
from nacdrive.extras.teach.rounds import Job
from nacdrive.models import load_policy
from nacdrive.models.policy import Policy
from nacdrive.rollout.train_config import TrainConfig
from nacdrive.rollout.train_policy import TrainCallbacks, learning_task, read_data, round_path, train_policy
from nacdrive.tasks import Sample
from nacdrive.tasks.driving import truncate
from nacdrive.training.fit import FitUpdate
from nacdrive.training.predict import outputs

JUDGED = 600
"""Frames of the old laps, and of the corrections, on which the policies before and after are compared."""
PIECES = 24
"""Of those, for the interval of the difference."""
ALIKE = 0.1
"""A steering that differs by at most so much, of 1 to full lock, is the same decision."""
TAP_S = 0.4
"""Keys are held or not: what a person means is the mean of so many seconds before and after."""
BEGINS_S = 0.3
"""So long the wheel is still on its way when a person has taken it: what is meant is what comes then."""


@dataclass(frozen=True)
class Outcome:
    """What a round has changed: shares of the decisions that are those of the person, and of the old laps."""

    agreement: tuple[float, float]
    """With the person, in all corrections so far: of the first policy, and after the round."""
    old: tuple[float, float]
    """With what is recorded in old laps that nothing is learnt from: of the first policy, and after the round."""
    gains: tuple[float, float]
    """Of the change of each, the upper end of the 95 % interval: below 0 it has fallen."""


class Pupil:
    """Learns rounds; made in the process that learns. ``training`` says how."""

    def __init__(self, training: TrainConfig) -> None:
        self.training, self.task = training, learning_task(training)
        self.load = cache(lambda folders: self.task.load(folders))
        first, _, _, kept = read_data(training, self.load)
        assert first is not None
        self.first = first
        self.kept = truncate(kept, JUDGED)
        self.untaught = self.alike(self.first, self.kept)
        """Whether the first policy decides in the old laps as was recorded."""

    def learn(self, job: Job, on_share: Callable[[float], None]) -> Outcome | None:
        """Learn a round into its policy's file, tell ``on_share`` what share is done; None where there is nothing."""
        if not job.corrections:
            return None
        # A recording of the round's corrections, labelled with what the person meant.
        recording = Recording.open(job.corrections[0].parent)
        same_as = {name: recording.meta[name] for name in ("source", "fps", "expert")}
        writer = RecordingWriter(job.lesson, **same_as, overwrite=True)
        for episode in [load_episode(info) for info in recording.episodes if info.path in job.corrections]:
            writer.add(replace(episode, expert_steering=meant(episode)))
        lessons = (*job.lessons, job.lesson)
        config = replace(self.training, lessons=lessons, resume=True)

        def on_step(update: FitUpdate) -> None:
            on_share(round((update.progress.epoch + update.progress.step / update.steps) / update.epochs, 2))

        train_policy(config, TrainCallbacks(on_step), load=self.load)
        policy = load_policy(round_path(config.folder, job.round))
        shown = truncate([sample for lesson in lessons for sample in self.load((lesson,))], JUDGED)
        agreement, learnt = compare(self.alike(self.first, shown), self.alike(policy, shown))
        old, kept = compare(self.untaught, self.alike(policy, self.kept))
        return Outcome(agreement, old, (learnt, kept))

    def alike(self, policy: Policy, samples: Sequence[Sample]) -> NDArray[np.bool_]:
        """[decisions] whether they are the recorded ones."""
        answers = outputs(policy.network, self.task, samples, batch=1)
        alike = [same(answer, sample.fields["target"]) for answer, sample in zip(answers, samples, strict=True)]
        return np.concatenate(alike)


def compare(before: NDArray[np.bool_], after: NDArray[np.bool_]) -> tuple[tuple[float, float], float]:
    """The shares of two policies on the same decisions, and the upper end of the 95 % interval of the difference."""
    # Neighbouring decisions are alike: pieces of the drives are compared.
    shares = [[piece.mean() for piece in np.array_split(one, min(PIECES, len(one)))] for one in (after, before)]
    return (float(before.mean()), float(after.mean())), (paired_difference(*shares)["interval95"] or (-1.0, 1.0))[1]


def learn_rounds(pipe: Connection, training: TrainConfig) -> None:
    """The other process: of a ``Job`` it sends the shares done, 0 .. 1, then its ``Outcome`` or what is wrong."""
    lower_priority()
    pupil: Pupil | None = None
    while True:
        job = pipe.recv()
        try:
            pupil = pupil or Pupil(training)
            pipe.send(pupil.learn(job, pipe.send))
        except (UserError, OSError) as error:
            pipe.send(UserError(os_error_sentence(error) or str(error)))


def same(answers: Tensor, target: Tensor) -> NDArray[np.bool_]:
    """[N] whether choices, or steering (and pedal) [N, 1 or 2], are those of ``target``."""
    if not target.is_floating_point():
        return (answers.argmax(dim=-1) == target)[target >= 0].numpy()
    return ((answers[:, 0].clamp(-1, 1) - (target if target.ndim == 1 else target[:, 0])).abs() <= ALIKE).numpy()


def meant(episode: Episode) -> NDArray[np.float32] | None:
    """[N] the steering that a person means who taps keys, or turns a stick; None of one who chooses."""
    if (episode.choice >= 0).all():
        return None
    begun = episode.t_s[episode.t_s >= min(episode.t_s[0] + BEGINS_S, episode.t_s[-1])][0]
    near = np.abs(np.maximum(episode.t_s, begun)[:, None] - episode.t_s) <= TAP_S
    near &= episode.t_s >= begun
    return np.asarray(near @ episode.steering / near.sum(axis=1), np.float32)
