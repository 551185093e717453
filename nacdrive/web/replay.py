"""``ReplayServer``: recorded runs on the same page as a live drive, with a player under it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any

from flask import Flask, Response, abort, request, send_file

from nacdrive.drivers.tick import Tick
from nacdrive.viz.video import video
from nacdrive.web.card import Card
from nacdrive.web.episode_cache import EpisodeCache
from nacdrive.web.http_server import HttpServer
from nacdrive.web.protocol import message, pack
from nacdrive.web.stream import COLUMNS, Lane, finite

LARGEST_CHUNK = 100


class ReplayServer(HttpServer):
    """Serves recorded runs; every viewer has its own playhead, for the clock ticks in the browser."""

    def __init__(
        self,
        cache: EpisodeCache,
        host: str = "127.0.0.1",
        port: int = 8090,
        announce: Callable[[str], None] = print,
        cards: Sequence[Card] = (),
    ) -> None:
        super().__init__(host, port, "replay", announce, cards)
        add_replay(self._app, cache, cards)


def add_replay(app: Flask, cache: EpisodeCache, cards: Sequence[Card]) -> None:
    """What is asked of a replay."""
    # Each takes a core and a process of its own: whoever asks meanwhile waits.
    filming = Lock()

    def ticks(run: int, episode: int) -> Sequence[Tick]:
        if not cache.has(run, episode):
            abort(404)
        return cache.ticks(run, episode)

    @app.get("/replay/runs")
    def runs() -> dict[str, Any]:
        about = [{**one, "cards": {c.name: c.describe(run) for c in cards}} for run, one in enumerate(cache.listing())]
        return {"columns": COLUMNS, "runs": about}

    @app.get("/replay/<int:run>/<int:episode>/rows")
    def rows(run: int, episode: int) -> dict[str, Any]:
        lane = Lane(most_events=None)
        for tick in ticks(run, episode):
            lane.add(tick)
        driven = cache.driven(run, episode) if cache.runs[run].driven is not None else None
        return {**lane.kept(), "driven": driven and [(finite(a.steering), a.choice) for a in driven]}

    @app.get("/replay/<int:run>/<int:episode>/ticks")
    def chunk(run: int, episode: int) -> Response:
        first, count = request.args.get("from", 0, int), min(request.args.get("count", 1, int), LARGEST_CHUNK)
        seen, frame, body = ticks(run, episode), None, b""
        is_as_driven = cache.runs[run].policy is None
        for i, tick in enumerate(seen[: max(0, first) + max(0, count)]):
            # Nothing is seen between frames: the one before is shown, unless it is asked what a policy sees there.
            frame = frame if is_as_driven and frame is not None and tick.between_frames else tick.frame
            if i >= first:
                body += message({"step": i}, [pack(replace(tick, frame=frame), i + 1)])
        return Response(body, content_type="application/octet-stream")

    @app.get("/replay/<int:run>/<int:episode>/why/<int:step>")
    def why(run: int, episode: int, step: int) -> dict[str, Any]:
        ticks(run, episode)
        return {"why": cache.why(run, episode, step)}

    @app.get("/replay/<int:run>/<int:episode>/video.mp4")
    def mp4(run: int, episode: int) -> Response:
        seen, source = ticks(run, episode), cache.runs[run]
        name = f"{source.name}-track{source.labels[episode].seed}.mp4".replace("/", "-")
        with filming, tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "drive.mp4"
            film(seen, target, source.name, source.caption(episode), source.choices)
            # No open file: Windows would not let its folder go.
            return send_file(BytesIO(target.read_bytes()), "video/mp4", as_attachment=True, download_name=name)


def film(ticks: Sequence[Tick], target: Path, title: str, caption: str = "", actions: Sequence[str] = ()) -> None:
    """Write Ticks as an mp4 that runs in real time; ``caption`` says who drove, where that is not who decides."""
    span = ticks[-1].t_s - ticks[0].t_s
    with video(target, title, (len(ticks) - 1) / span if span > 0 else 12.5, caption, actions) as listener:
        for tick in ticks:
            listener(tick)
