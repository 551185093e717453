"""One browser's connection: it gets the newest Tick when it has taken in the last ones, and never a queue of old ones.

A plain WebSocket carries the stream, not Server-Sent Events: frames and neurons travel as bytes (no base64), a
browser's limit of six HTTP connections to one server does not lock out the seventh tab, and the viewer's answers tell
when it is ready, so that a slow or frozen one costs the loop nothing and shows no stale frames when it wakes up.
"""

from __future__ import annotations

import json
import socket as sockets
import time
from contextlib import suppress
from functools import partial
from threading import Lock, Thread
from typing import Any

from simple_websocket import ConnectionClosed, Server

from nacdrive.web.protocol import Packed, message, pack
from nacdrive.web.stream import COLUMNS, Seen, ShownTick, Snapshot, StreamState

IN_FLIGHT = 2
"""Ticks sent and not yet acknowledged: one on its way, one being drawn."""
GATHER_S = 0.015
"""So long a message waits for the news of other lanes, which come at almost the same time."""
RECEIVE_TIMEOUT_S = 1.0
PING_S = 20
SEND_BUFFER = 1 << 20
LARGEST_ANSWER = 256
"""Bytes; a viewer says nothing longer than an acknowledgement, a person nothing longer than the keys held down."""
RATE = 20.0
"""Messages a second that one viewer may send on average; ghosts, laps and occlusion maps count fourfold."""
BURST = 40.0


class Allowance:
    """A token bucket: so many questions a second on average, a few more at once."""

    def __init__(self) -> None:
        self._left, self._filled = BURST, time.monotonic()

    def take(self, cost: float) -> bool:
        """Whether a question of that cost may be asked now."""
        now = time.monotonic()
        self._left, self._filled = min(BURST, self._left + (now - self._filled) * RATE), now
        if self._left < cost:
            return False
        self._left -= cost
        return True


class Encoder:
    """Encodes a Tick and its message once, however many viewers want them, and not at all when nobody looks.

    It runs in the thread of the first viewer that asks; the others take what it made.
    """

    def __init__(self, lanes: int = 1) -> None:
        self._lock = Lock()
        self._kept: list[tuple[int, Packed] | None] = [None] * lanes
        self._message: tuple[Seen, Seen] | None = None
        self._bytes = b""

    def message(self, seen: Seen, news: Snapshot) -> bytes:
        """What a viewer that has seen ``seen`` is sent of ``news``: the same to all that have kept up alike."""
        with self._lock:
            if self._message != (seen, news.seen):
                attempt, lanes = news.seen.attempt, enumerate(news.lanes)
                packed = [self._pack(attempt, k, lane.shown) for k, lane in lanes if lane.shown is not None]
                self._message, self._bytes = (seen, news.seen), message(header(news), packed)
            return self._bytes

    def _pack(self, attempt: int, lane: int, shown: ShownTick) -> Packed:
        kept = self._kept[lane]
        if kept is None or (attempt, shown.seq) > (kept[0], kept[1].seq):
            kept = self._kept[lane] = (attempt, pack(shown.tick, shown.seq, shown.row, lane))
        # A viewer that looked before a newer Tick was encoded gets the newer one: it is the one to show.
        return kept[1]


def serve_viewer(environ: dict[str, Any], state: StreamState, encoder: Encoder, hello: dict[str, Any]) -> None:
    """Serve one viewer until it leaves or the run ends; runs in the viewer's own thread."""
    socket = accept(environ)
    # A viewer that has gone concerns nobody else.
    with suppress(ConnectionClosed, OSError):
        socket.send(json.dumps({"kind": "hello", "columns": COLUMNS, **hello}, allow_nan=False))
        stream(socket, state, encoder)
        socket.send(json.dumps({"kind": "bye"}))
        socket.close()


def accept(environ: dict[str, Any], largest: int = LARGEST_ANSWER) -> Server:
    """Answer a browser's wish for a WebSocket; no message of it may be ``largest`` bytes long or longer."""
    # Without the browser's offer to compress: JPEG does not shrink, and deflate would cost the driver's core.
    environ = {key: value for key, value in environ.items() if key != "HTTP_SEC_WEBSOCKET_EXTENSIONS"}
    # Room for all that is ever in flight, so that a send never stops half-way and a ping never lands inside it.
    environ["werkzeug.socket"].setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, SEND_BUFFER)
    # No thread that keeps the process alive when a viewer stays connected.
    daemon = partial(Thread, daemon=True)
    return Server.accept(environ, ping_interval=PING_S, max_message_size=largest, thread_class=daemon)


def stream(socket: Server, state: StreamState, encoder: Encoder) -> None:
    """Send what is new whenever the viewer is ready for it; a slow one skips frames, never numbers."""
    seen, in_flight = state.first_seen(), 0
    while True:
        in_flight -= answers(socket, block=in_flight >= IN_FLIGHT)
        news = state.wait_for_new(seen, RECEIVE_TIMEOUT_S) if in_flight < IN_FLIGHT else None
        if news is not None and len(news.lanes) > 1:
            time.sleep(GATHER_S)
            news = state.wait_for_new(seen, 0)
        if news is not None:
            socket.send(encoder.message(seen, news))
            in_flight += 1
            seen = news.seen
        elif state.closed:
            return


def header(news: Snapshot) -> dict[str, Any]:
    """What this viewer has not seen: rows and events by lane, and what is known of all where it has changed."""
    lanes = [{"rows": lane.rows, "events": lane.events} for lane in news.lanes]
    return {"attempt": news.seen.attempt, "lanes": lanes, **({} if news.about is None else {"about": news.about})}


def answers(socket: Server, *, block: bool) -> int:
    """Number of acknowledgements that have come in; waits for one if ``block``."""
    count = 0
    while socket.receive(timeout=RECEIVE_TIMEOUT_S if block and not count else 0) is not None:
        count += 1
    return count
