"""Shows a training on the live page: its stage, the curve of the loss, recorded laps played quicker than driven."""

from __future__ import annotations

import math
import time
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any

from nacdrive.datasets.episode import Episode
from nacdrive.training.fit import FitUpdate
from nacdrive.viz.recorded import recorded_ticks
from nacdrive.web.card import Card, LivePage

SPEED = 3.0
"""Times as fast as it was driven, a recorded lap is played."""
SHOW_EVERY_S = 0.25


class LearningCard(Card):
    """Its methods may be called from the training's loop, and return at once; without a page they show nothing."""

    name = "learning"

    def __init__(self) -> None:
        self.page: LivePage | None = None
        self._losses: dict[tuple[int, int], float] = {}
        """By round and epoch."""
        self._stage, self._shown_s = "", 0.0
        self._laps: SimpleQueue[tuple[Episode, str | None]] = SimpleQueue()
        self._ended = Event()
        self._count = 0

    def attach(self, page: LivePage) -> None:
        self.page = page
        self._player = Thread(target=self._play, name="nacdrive-laps", daemon=True)
        self._player.start()

    def stage(self, text: str) -> None:
        self._stage = text
        self._show()

    def step(self, update: FitUpdate) -> None:
        if math.isfinite(update.train_loss):
            self._losses[update.progress.round, update.progress.epoch] = round(update.train_loss, 4)
        if time.monotonic() - self._shown_s > SHOW_EVERY_S:
            self._show()

    def lap(self, episode: Episode, teacher: str | None = None) -> None:
        """Play a recorded lap when this one is over, of those that wait the newest; ``teacher`` gave its labels."""
        if self.page is not None:
            self._laps.put((episode, teacher))

    def close(self) -> None:
        self._ended.set()
        self._player.join()

    def _show(self) -> None:
        self._shown_s = time.monotonic()
        if self.page is not None:
            losses = [[round_, loss] for (round_, _), loss in self._losses.items()]
            self.page.set(status=self._stage, learning={"stage": self._stage, "losses": losses})

    def _play(self) -> None:
        assert self.page is not None
        while not self._ended.is_set():
            lap: Any = None
            try:
                lap = self._laps.get(timeout=SHOW_EVERY_S)
                while True:
                    lap = self._laps.get_nowait()
            except Empty:
                if lap is None:
                    continue
            episode, teacher = lap
            self._count += 1
            for tick in recorded_ticks(episode, self._count, teacher):
                self.page.publish(tick)
                if self._ended.wait((tick.budget_ms or 80.0) / 1e3 / SPEED):
                    return
