"""The rollout as sequences: decisions in their order, each with all that a memory of some decisions saw before it.

What a decision depends on are the observations of its window, and these are stored: so training computes exactly what
acted (under the same weights), and its gradient reaches back over the whole window. States that were recorded with
weights of an earlier update, as a recurrent buffer without a window must keep them, do not occur.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.type_aliases import RolloutBufferSamples
from torch import Tensor


class Sequences(NamedTuple):
    """Observations of a minibatch; a sequence begins with what its first decision remembers."""

    observations: Tensor
    """[sequences, steps, *observation]."""
    t: Tensor
    """Seconds since the episode began, [sequences, steps], float64."""
    padding: Tensor
    """True behind the end of a sequence, [sequences, steps]."""
    trained: Tensor
    """True at the decisions learnt from, [sequences, steps]; all else has an entry for each, sequence by sequence."""


class History(NamedTuple):
    """What the next rollout remembers of this one: the last ``window - 1`` decisions of each environment."""

    observations: NDArray[Any]
    """[window - 1, environments, *observation]; the newest is last."""
    t: NDArray[np.float64]
    """[window - 1, environments]."""
    seen: NDArray[np.int64]
    """How many of them are of the episode that goes on, [environments]."""


class RecurrentRolloutBuffer(RolloutBuffer):
    """A ``RolloutBuffer`` whose minibatches are whole sequences (``Sequences``) of one episode each.

    Sequences are cut where an episode begins and every ``sequence_length`` decisions; how they are cut changes neither
    values nor gradients (tested), for every sequence brings its past along.

    Beside the arguments of ``RolloutBuffer`` it takes ``window``, the decisions that a decision depends on, the present
    one included, and ``sequence_length``, the most decisions of a sequence that are learnt from.
    """

    t: NDArray[np.float64]
    history: History
    """What the decisions of this rollout remember from before it."""
    upcoming: History
    """What the next rollout will remember of this one; becomes ``history`` with ``reset``."""

    def __init__(self, *args: Any, window: int = 1, sequence_length: int = 32, **options: Any) -> None:
        self.window, self.sequence_length = window, sequence_length
        super().__init__(*args, **options)
        self.forget()

    def forget(self) -> None:
        """The next rollout begins with an episode everywhere."""
        past = self.window - 1
        self.upcoming = History(
            np.zeros((past, *self.observations.shape[1:]), dtype=self.observations.dtype),
            np.zeros((past, self.n_envs)),
            np.zeros(self.n_envs, dtype=np.int64),
        )

    def reset(self) -> None:
        """Begin a rollout: forget the decisions of the last but for what is remembered of it."""
        super().reset()
        if hasattr(self, "upcoming"):  # not yet while the parent makes itself
            self.history = self.upcoming
        self.t = np.zeros((self.buffer_size, self.n_envs))

    def add(self, *args: Any, t: NDArray[np.float64] | None = None, **options: Any) -> None:
        """One decision of all environments, at ``t`` [environments] seconds."""
        assert t is not None
        self.t[self.pos] = t
        super().add(*args, **options)

    def remember(self, dones: NDArray[np.bool_]) -> None:
        """Keep the end of the full buffer for the next rollout; ``dones``: where an episode has just ended."""
        assert self.full
        past = self.window - 1
        age = past + self.buffer_size - self._begins()[-1]
        self.upcoming = History(
            np.concatenate([self.history.observations, self.observations])[self.buffer_size :].copy(),
            np.concatenate([self.history.t, self.t])[self.buffer_size :].copy(),
            np.where(dones, 0, np.minimum(age, past)).astype(np.int64),
        )

    def _begins(self) -> NDArray[np.int64]:
        """Where each decision's episode, or the history of it, begins, [steps, environments]; from its first on."""
        past = self.window - 1
        position = np.arange(past, past + self.buffer_size)[:, None]
        begins = np.where(self.episode_starts > 0, position, (past - self.history.seen)[None])
        return np.maximum.accumulate(begins, axis=0)

    def segments(self) -> list[tuple[int, int, int]]:
        """(environment, first decision, one behind the last) of every sequence, in order."""
        pieces = []
        for env in range(self.n_envs):
            edges = [0, *(np.flatnonzero(self.episode_starts[1:, env]) + 1).tolist(), self.buffer_size]
            for start, stop in pairwise(edges):
                pieces += [
                    (env, first, min(first + self.sequence_length, stop))
                    for first in range(start, stop, self.sequence_length)
                ]
        return pieces

    def get(self, batch_size: int | None = None) -> Generator[RolloutBufferSamples, None, None]:
        """All decisions once, in minibatches of about ``batch_size``; ``observations`` of each are ``Sequences``."""
        assert self.full
        segments = self.segments()
        total = self.buffer_size * self.n_envs
        order = np.random.permutation(len(segments))
        lengths = np.array([segments[i][2] - segments[i][1] for i in order])
        count = 1 if batch_size is None else max(1, round(total / batch_size))
        # Of about equal size: normalised over a handful of decisions, advantages would be noise.
        share = ((np.cumsum(lengths) - lengths / 2) * count / total).astype(int)
        observations = np.concatenate([self.history.observations, self.observations])
        t = np.concatenate([self.history.t, self.t])
        begins = self._begins()
        for number in range(count):
            if chosen := [segments[i] for i in order[share == number]]:
                yield self._samples(chosen, observations, t, begins)

    def _samples(
        self,
        chosen: list[tuple[int, int, int]],
        observations: NDArray[Any],
        times: NDArray[np.float64],
        begins: NDArray[np.int64],
    ) -> RolloutBufferSamples:
        past = self.window - 1
        env, start, stop = (np.array(column) for column in zip(*chosen, strict=True))
        # Positions count from the history's first.
        first = np.maximum(begins[start, env], start)
        length = stop + past - first
        offset = np.arange(length.max())
        padding = offset[None] >= length[:, None]
        position = np.minimum(first[:, None] + offset[None], (stop + past - 1)[:, None])
        trained = (position >= (start + past)[:, None]) & ~padding
        decision, of_env = (position - past)[trained], np.broadcast_to(env[:, None], position.shape)[trained]

        def flat(values: NDArray[Any]) -> Tensor:
            return self.to_torch(values[decision, of_env])

        sequences = Sequences(
            self.to_torch(observations[position, env[:, None]]),
            torch.as_tensor(times[position, env[:, None]], device=self.device),
            torch.as_tensor(padding, device=self.device),
            torch.as_tensor(trained, device=self.device),
        )
        return RolloutBufferSamples(
            sequences,  # type: ignore[arg-type]
            flat(self.actions.astype(np.float32, copy=False)),
            flat(self.values),
            flat(self.log_probs),
            flat(self.advantages),
            flat(self.returns),
        )
