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
"""A policy's file, and what makes of the number of an episode the episode that it drove or looks at."""
MOST_BYTES = 64 << 20
"""Of the pictures of the lap that is driven now; the oldest go first."""


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
            self._memory.add(tick)

    def add_routes(self, app: Flask) -> None:

        @app.route("/lap.html")
        def lap() -> Response:
            run = request.args.get("run", 0, type=int)
            if run not in self._runs:
                abort(404)
            model, episode_of = self._runs[run]
            try:
                episode = episode_of(request.args.get("episode", 0, type=int))
                page = lap_page(model, episode, math.inf, self._playground_of(episode.source))
            except IndexError:
                abort(404)
            headers = {"Content-Disposition": "attachment; filename=lap.html"}
            return Response(page, mimetype="text/html", headers=headers)


class LapMemory:
    """The decisions of the lap that is driven now, and how to make an episode of them; the frames are no copies.

    ``image`` is how they are encoded, ``png`` or ``jpeg``; ``meta`` that of the episode of a seed.
    """

    def __init__(
        self, source: str, driver: str, image: str, meta: Callable[[int], dict[str, Any]] = lambda seed: {}
    ) -> None:
        self._source, self._driver, self._image, self._meta = source, driver, image, meta
        self._lock = Lock()
        self._ticks: deque[Tick] = deque()
        self._bytes = 0

    def add(self, tick: Tick) -> None:
        with self._lock:
            if self._ticks and (tick.step == 0 or tick.episode != self._ticks[0].episode):
                self._ticks.clear()
                self._bytes = 0
            if tick.held:
                return
            self._ticks.append(replace(tick, neurons={}, saliency=None, why=None))
            self._bytes += tick.frame.nbytes
            while self._bytes > MOST_BYTES:
                self._bytes -= self._ticks.popleft().frame.nbytes

    def episode(self, _: int = 0) -> Episode:
        with self._lock:
            ticks = list(self._ticks)
        if len(ticks) < 2:
            raise UserError("the lap has only begun: send it a moment later.")
        buffer = EpisodeBuffer(executed_action, self._image)
        for tick in ticks:
            buffer(tick)
        return buffer.episode(source=self._source, driver=self._driver, meta=self._meta(ticks[0].seed))
