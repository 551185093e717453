"""One browser's connection: it gets the newest Tick when it has taken in the last ones, and never a queue of old ones.

A plain WebSocket carries the stream, not Server-Sent Events: frames and neurons travel as bytes (no base64), a
browser's limit of six HTTP connections to one server does not lock out the seventh tab, and the viewer's answers tell
when it is ready, so that a slow or frozen one costs the loop nothing and shows no stale frames when it wakes up.
"""

from __future__ import annotations

import json
import socket as sockets
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any

from simple_websocket import ConnectionClosed, Server

from nacdrive.web.protocol import Packed, message, pack
from nacdrive.web.stream import COLUMNS, Snapshot, StreamState

IN_FLIGHT = 2
"""Ticks sent and not yet acknowledged: one on its way, one being drawn."""
RECEIVE_TIMEOUT_S = 1.0
PING_S = 20
SEND_BUFFER = 1 << 20
LARGEST_ANSWER = 256
"""Bytes; a viewer says nothing longer than an acknowledgement, a person nothing longer than the keys held down."""


class Encoder:
    """Encodes a Tick once, however many viewers want it, and not at all when nobody looks.

    It runs in the thread of the first viewer that asks; the others take what it made.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._packed: Packed | None = None

    def packed(self, seen: Snapshot) -> Packed | None:
        """The shared parts of the Tick in ``seen``; None where it holds no new Tick."""
        if seen.shown is None:
            return None
        with self._lock:
            if self._packed is None or seen.shown.seq > self._packed.seq:
                self._packed = pack(seen.shown.tick, seen.shown.seq, seen.shown.row)
            # A viewer that looked before a newer Tick was encoded gets the newer one: it is the one to show.
            return self._packed


def serve_viewer(environ: dict[str, Any], state: StreamState, encoder: Encoder, hello: dict[str, Any]) -> None:
    """Serve one viewer until it leaves or the run ends; runs in the viewer's own thread."""
    socket = accept(environ)
    try:
        socket.send(json.dumps({"kind": "hello", "columns": COLUMNS, **hello}, allow_nan=False))
        stream(socket, state, encoder)
        socket.send(json.dumps({"kind": "bye"}))
        socket.close()
    except (ConnectionClosed, OSError):
        # The viewer has gone: nobody else is concerned.
        return


def accept(environ: dict[str, Any], largest: int = LARGEST_ANSWER) -> Server:
    """Answer a browser's wish for a WebSocket; no message of it may be ``largest`` bytes long or longer."""
    # Without the browser's offer to compress: JPEG does not shrink, and deflate would cost the driver's core.
    environ = {key: value for key, value in environ.items() if key != "HTTP_SEC_WEBSOCKET_EXTENSIONS"}
    # Room for all that is ever in flight, so that a send never stops half-way and a ping never lands inside it.
    environ["werkzeug.socket"].setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, SEND_BUFFER)
    return Server.accept(environ, ping_interval=PING_S, max_message_size=largest, thread_class=background_thread)


def stream(socket: Server, state: StreamState, encoder: Encoder) -> None:
    """Send what is new whenever the viewer is ready for it."""
    seq = event = in_flight = 0
    version = -1
    while True:
        in_flight -= answers(socket, block=in_flight >= IN_FLIGHT)
        if in_flight >= IN_FLIGHT:
            if state.closed:
                return
            continue
        seen = state.wait_for_new(seq, event, version, RECEIVE_TIMEOUT_S)
        if seen is None:
            if state.closed:
                return
            continue
        packed = encoder.packed(seen)
        socket.send(message(header(seen, changed=seen.status_version != version), packed))
        in_flight += 1
        seq, version = seen.seq, seen.status_version
        event = seen.events[-1]["n"] if seen.events else event


def header(seen: Snapshot, *, changed: bool) -> dict[str, Any]:
    """What this viewer has not seen: rows, events, and where they changed status line, control and end card."""
    status = {"status": seen.status, "control": seen.control, "result": seen.result} if changed else {}
    return {"rows": seen.rows, "events": seen.events, **status}


def answers(socket: Server, *, block: bool) -> int:
    """Number of acknowledgements that have come in; waits for one if ``block``."""
    count = 0
    while socket.receive(timeout=RECEIVE_TIMEOUT_S if block and not count else 0) is not None:
        count += 1
    return count


def background_thread(target: Callable[[], None]) -> Thread:
    """A thread that does not keep the process alive when a viewer stays connected."""
    return Thread(target=target, daemon=True)
