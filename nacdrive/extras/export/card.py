"""*Send this lap*, as a card of the page: the page of ``nacdrive share``, written of the lap that is on the screen."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from flask import Flask, Response, abort, request

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.drivers.tick import Tick
from nacdrive.extras.export.html import lap_page
from nacdrive.rollout.recorder import EpisodeBuffer, executed_action
from nacdrive.web.card import Card

Lap = tuple[Path, Callable[[int], Episode]]
"""A policy's file, and what makes of the number of an episode, or of a decision, what it drove or looks at."""
MOST_BYTES = 64 << 20
"""Of the pictures of the newest laps; the oldest go first."""


class LapCard(Card):
    """A button of the page that saves it, of every one of ``runs``, by number; ``memory`` keeps a drive that goes on.

    ``playground_of`` gives for the name of what was driven the ``playground`` of ``export_html``.
    """

    def __init__(
        self,
        runs: Mapping[int, Lap],
        playground_of: Callable[[str], Callable[[Path], str] | None] = lambda source: None,
        memory: LapMemory | None = None,
    ) -> None:
        super().__init__("export")
        self._runs, self._playground_of, self._memory = runs, playground_of, memory

    def describe(self, run: int = 0) -> Any:
        return {} if run in self._runs else None

    def publish(self, tick: Tick, seq: int) -> None:
        if self._memory is not None:
            self._memory.add(tick, seq)

    def add_routes(self, app: Flask) -> None:
        # One at a time: it is written in the process that drives.
        writing = Lock()

        @app.route("/lap.html")
        def lap() -> Response:
            run = request.args.get("run", 0, type=int)
            if run not in self._runs:
                abort(404)
            model, episode_of = self._runs[run]
            if not writing.acquire(blocking=False):
                raise UserError("another lap is being written: ask again in a moment.")
            try:
                episode = episode_of(request.args.get("seq" if self._memory else "episode", 0, type=int))
                page = lap_page(model, episode, math.inf, self._playground_of(episode.source))
            except IndexError:
                abort(404)
            finally:
                writing.release()
            headers = {"Content-Disposition": "attachment; filename=lap.html"}
            return Response(page, mimetype="text/html", headers=headers)


class LapMemory:
    """The decisions of the newest laps, and how to make an episode of one; the frames are no copies.

    ``image`` is how they are encoded, ``png`` or ``jpeg``; ``meta`` that of the episode of a seed.
    """

    def __init__(
        self, source: str, driver: str, image: str, meta: Callable[[int], dict[str, Any]] = lambda seed: {}
    ) -> None:
        self._source, self._driver, self._image, self._meta = source, driver, image, meta
        self._lock = Lock()
        self._ticks: deque[tuple[int, int, Tick]] = deque()
        self._bytes = self._lap = 0

    def add(self, tick: Tick, seq: int) -> None:
        """``seq`` is the number that the page knows the decision by."""
        with self._lock:
            before = self._ticks[-1][2] if self._ticks else tick
            self._lap += tick.step == 0 or tick.episode != before.episode
            if tick.held:
                return
            self._ticks.append((self._lap, seq, replace(tick, neurons={}, saliency=None, why=None)))
            self._bytes += tick.frame.nbytes
            while self._bytes > MOST_BYTES:
                self._bytes -= self._ticks.popleft()[2].frame.nbytes

    def episode(self, seq: int = 0) -> Episode:
        """The lap of the decision ``seq``; 0: the newest one."""
        with self._lock:
            kept = list(self._ticks)
        lap = next((lap for lap, number, _ in reversed(kept) if number <= seq or not seq), None)
        ticks = [tick for number, _, tick in kept if number == lap]
        if kept and lap is None:
            raise UserError("the lap on the screen is not kept any more: send a newer one.")
        if len(ticks) < 2:
            raise UserError("the lap has only begun: send it a moment later.")
        buffer = EpisodeBuffer(executed_action, self._image)
        for tick in ticks:
            buffer(tick)
        driver = f"a person and {self._driver}" if any(tick.human for tick in ticks) else self._driver
        return buffer.episode(source=self._source, driver=driver, meta=self._meta(ticks[0].seed))
