"""One browser's connection to an arena: messages as those of a drive, with the news of all contestants in one.

A message's JSON holds ``attempt`` (with another one all before is void), ``rows`` (of each contestant), ``about`` where
it has changed, and ``parts``: the newest frames, each with the ``car`` it is of and the ``number`` of its row.
"""

from __future__ import annotations

import json
import time
from threading import Lock
from typing import Any

from simple_websocket import ConnectionClosed, Server

from nacdrive.web.arena_state import ARENA_COLUMNS, ArenaSnapshot, ArenaState, ShownFrame
from nacdrive.web.protocol import Packed, encode_frame, message
from nacdrive.web.stream_socket import IN_FLIGHT, RECEIVE_TIMEOUT_S, accept, answers

GATHER_S = 0.015
"""So long a message waits for the news of the others, which come at almost the same time."""


class FrameEncoder:
    """Encodes each contestant's newest frame once, however many viewers want it, and not at all when nobody looks."""

    def __init__(self, count: int) -> None:
        self._lock = Lock()
        self._kept: list[tuple[ShownFrame, dict[str, Any], bytes] | None] = [None] * count

    def packed(self, seen: ArenaSnapshot) -> Packed | None:
        """The frames of ``seen`` as parts of a message; None where there are none."""
        parts: list[dict[str, Any]] = []
        blobs: list[bytes] = []
        for car, shown in enumerate(seen.frames):
            if shown is None:
                continue
            with self._lock:
                kept = self._kept[car]
                if kept is None or kept[0] is not shown:
                    kind, blob, size = encode_frame(shown.tick.frame)
                    part = {"name": f"{car}", "kind": kind, "bytes": len(blob), "shape": list(size)}
                    part |= {"car": car, "number": shown.number}
                    kept = self._kept[car] = (shown, part, blob + bytes(-len(blob) % 4))
            parts.append(kept[1])
            blobs.append(kept[2])
        return Packed(0, None, tuple(parts), b"".join(blobs)) if parts else None


def serve_arena_viewer(
    environ: dict[str, Any], state: ArenaState, encoder: FrameEncoder, hello: dict[str, Any]
) -> None:
    """Serve one viewer until it leaves or the run ends; runs in the viewer's own thread."""
    socket = accept(environ)
    try:
        socket.send(json.dumps({"kind": "hello", "columns": ARENA_COLUMNS, **hello}, allow_nan=False))
        stream(socket, state, encoder, len(hello["names"]))
        socket.send(json.dumps({"kind": "bye"}))
        socket.close()
    except (ConnectionClosed, OSError):
        # The viewer has gone: nobody else is concerned.
        return


def stream(socket: Server, state: ArenaState, encoder: FrameEncoder, count: int) -> None:
    """Send what is new whenever the viewer is ready for it; a slow one skips frames, never numbers."""
    attempt, counts, version, in_flight = -1, [0] * count, -1, 0
    while True:
        in_flight -= answers(socket, block=in_flight >= IN_FLIGHT)
        if in_flight >= IN_FLIGHT:
            if state.closed:
                return
            continue
        if state.wait_for_new(attempt, counts, version, RECEIVE_TIMEOUT_S) is not None:
            time.sleep(GATHER_S)
        seen = state.wait_for_new(attempt, counts, version, 0)
        if seen is None:
            if state.closed:
                return
            continue
        header: dict[str, Any] = {"attempt": seen.attempt, "rows": seen.rows}
        if seen.version != version:
            header["about"] = seen.about
        socket.send(message(header, encoder.packed(seen)))
        in_flight += 1
        attempt, counts, version = seen.attempt, seen.counts, seen.version
