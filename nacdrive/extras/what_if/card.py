"""What if, as a card of the page: browsers ask at ``/what-if`` about moments of a drive, live or recorded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from threading import BoundedSemaphore
from typing import Any, Self

from flask import Flask, Response, abort, request

from nacdrive.drivers.tick import Tick
from nacdrive.extras.what_if.moments import FindMoment, MomentMemory, moment_of
from nacdrive.extras.what_if.process import WhatIfProcess, WhatIfSource
from nacdrive.extras.what_if.socket import serve_questions
from nacdrive.extras.what_if.what_if import Moment
from nacdrive.web.card import Card
from nacdrive.web.episode_cache import EpisodeCache
from nacdrive.web.http_server import UpgradedResponse, require_origin

MOST_VIEWERS = 32


class WhatIfCard(Card):
    """Asks for every run of a page its source, about the moments that its function finds."""

    name = "what_if"

    def __init__(self, runs: Mapping[int, tuple[FindMoment, WhatIfSource]], memory: MomentMemory | None = None) -> None:
        self._runs = {run: (find, WhatIfProcess(source)) for run, (find, source) in runs.items()}
        self._memory = memory
        self._places = BoundedSemaphore(MOST_VIEWERS)
        self._closed = False

    @classmethod
    def of_drive(cls, source: WhatIfSource, kept_mb: int) -> Self:
        """Of a drive that goes on: of its last ``kept_mb`` megabytes of pictures."""
        memory = MomentMemory(source.window, kept_mb << 20)
        return cls({0: (memory.find, source)}, memory)

    @classmethod
    def of_recordings(cls, cache: EpisodeCache, sources: Mapping[int, WhatIfSource]) -> Self:
        """Of recorded runs, by number."""
        find = partial(find_recorded, cache)
        return cls({run: (partial(find, run, source.window), source) for run, source in sources.items()})

    def describe(self, run: int = 0) -> Any:
        """What can be asked of a run; None where nobody can be."""
        return self._runs[run][1].source.describe() if run in self._runs else None

    def publish(self, tick: Tick, seq: int) -> None:
        if self._memory is not None:
            self._memory.add(tick, seq)

    def add_routes(self, app: Flask) -> None:

        @app.route("/what-if", websocket=True)
        def what_if() -> Response:
            require_origin()
            if not self._places.acquire(blocking=False):
                abort(503, "too many viewers ask.")
            try:
                serve_questions(request.environ, self._runs, lambda: self._closed)
            finally:
                self._places.release()
            return UpgradedResponse()

    def close(self) -> None:
        self._closed = True
        for _, process in self._runs.values():
            process.close()


def find_recorded(cache: EpisodeCache, run: int, window: int, name: dict[str, int]) -> Moment | None:
    """The moment ``{"run", "episode", "seq"}`` of a run."""
    episode = name.get("episode", 0)
    if not cache.has(run, episode):
        return None
    return moment_of(cache.ticks(run, episode), cache.driven(run, episode), name["seq"], window)
