"""Labelled drives of an imitation, and the minibatches that are drawn from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from nacdrive.models.agents.view import View
from nacdrive.rl.recurrent_buffer import Sequences


@dataclass(frozen=True)
class Drive:
    """One labelled drive."""

    frames: NDArray[np.uint8]
    """[N, height, width], small."""
    labels: NDArray[np.float32]
    """[N, 2] steering and pedal."""
    t: NDArray[np.float64]
    """[N] seconds at which the frames were taken."""
    episode_return: float
    finished: bool


class Drives:
    """All that was labelled so far, in memory: each frame once, whatever number of them the agent sees at once.

    Args:
        capacity: Most decisions; memory is taken only as they come.
        view: What the agent sees.
    """

    def __init__(self, capacity: int, view: View) -> None:
        self.frames = np.empty((capacity, *view.shape[1:]), dtype=np.uint8)
        self.labels = np.empty((capacity, 2), dtype=np.float32)
        self.t = np.empty(capacity, dtype=np.float64)
        self.starts = np.empty(capacity, dtype=np.int64)
        self._back = np.arange(view.frames - 1, -1, -1)
        self.edges = [0]
        """Where each drive begins, and the last one ends."""

    @property
    def count(self) -> int:
        """Decisions."""
        return self.edges[-1]

    def add(self, drive: Drive) -> None:
        """One drive more."""
        begin, end = self.count, self.count + len(drive.labels)
        self.frames[begin:end], self.labels[begin:end], self.t[begin:end] = drive.frames, drive.labels, drive.t
        self.starts[begin:end] = begin
        self.edges.append(end)

    def stacks(self, which: NDArray[np.int64]) -> torch.Tensor:
        """uint8 [*which.shape, *view.shape], as ``FrameStack`` stacks them."""
        index = np.maximum(which[..., None] - self._back, self.starts[which][..., None])
        return torch.from_numpy(self.frames[index])

    def batch(self, which: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """uint8 [B, *view.shape] and float32 [B, 2]."""
        return self.stacks(which), torch.from_numpy(self.labels[which])

    def sequences(
        self, rng: np.random.Generator, count: int, length: int, window: int
    ) -> tuple[Sequences, torch.Tensor]:
        """``count`` pieces of drives of at most ``length`` trained decisions, each with what a memory of ``window``
        decisions saw before its first one; and the labels float32 [N, 2] of the trained decisions.

        Every decision is as likely to be trained as any other.
        """
        edges = np.array(self.edges)
        # A piece may begin before its drive and end behind it, so that the ends of drives come as often as the rest.
        each = np.diff(edges) + length - 1
        drawn = rng.integers(each.sum(), size=count)
        drive = np.searchsorted(each.cumsum(), drawn, side="right")
        begin, end = edges[drive], edges[drive + 1]
        at = begin + drawn - (each.cumsum() - each)[drive] - (length - 1)
        start, stop = np.maximum(at, begin), np.minimum(at + length, end)
        first = np.maximum(start - (window - 1), begin)
        position = first[:, None] + np.arange((stop - first).max())
        padding = position >= stop[:, None]
        position = np.minimum(position, stop[:, None] - 1)
        trained = (position >= start[:, None]) & ~padding
        found = Sequences(
            self.stacks(position),
            torch.from_numpy(self.t[position]),
            torch.from_numpy(padding),
            torch.from_numpy(trained),
        )
        return found, torch.from_numpy(self.labels[position[trained]])
