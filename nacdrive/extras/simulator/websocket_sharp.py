"""The client's end of a websocket, byte for byte as the Udacity simulator's websocket-sharp 1.0 writes it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import socket
import struct
from threading import Lock

from nacdrive.envs.udacity.engines import apply_mask

FRAGMENT = 1016
"""Payload bytes of one fragment; 1024 with its header."""
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA


class WebSocketSharp:
    """A connected websocket. ``send`` and ``receive`` may be called from two threads."""

    def __init__(self, host: str, port: int, path: str, timeout_s: float = 10.0) -> None:
        """Connect and shake hands; ``OSError`` if nothing listens there, or no websocket at ``path``."""
        # Nagle's algorithm stays on, as in the simulator: a server has to cope with that.
        self._socket = socket.create_connection((host, port), timeout_s)
        self._stream = self._socket.makefile("rb")
        self._sending = Lock()
        try:
            self._shake_hands(f"{host}:{port}", path)
        except OSError:
            self.abort()
            raise
        self._socket.settimeout(None)

    def _shake_hands(self, host: str, path: str) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        request = (
            f"GET {path} HTTP/1.1\r\nUser-Agent: websocket-sharp/1.0\r\nHost: {host}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self._socket.sendall(request.encode())
        status = self._stream.readline().decode("latin-1")
        headers = {}
        while line := self._stream.readline().decode("latin-1").strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        accepted = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
        if " 101" not in status or headers.get("sec-websocket-accept") != accepted:
            raise ConnectionError(f"no websocket at {path}: {status.strip() or 'connection closed'}")

    def send(self, text: str) -> None:
        """Send one text message, each fragment with a write of its own; ``OSError`` if the connection is gone."""
        data = text.encode()
        starts = range(0, max(len(data), 1), FRAGMENT)
        with self._sending:
            for start in starts:
                opcode = TEXT if start == 0 else CONTINUATION
                self._write(opcode, data[start : start + FRAGMENT], last=start == starts[-1])

    def _write(self, opcode: int, payload: bytes, *, last: bool = True) -> None:
        first, size = opcode | (0x80 if last else 0), len(payload)
        head = struct.pack("!BB", first, 0x80 | size) if size < 126 else struct.pack("!BBH", first, 0x80 | 126, size)
        mask = os.urandom(4)
        self._socket.sendall(head + mask + apply_mask(payload, mask))

    def receive(self) -> tuple[int, bytes] | None:
        """The next message: (TEXT or BINARY, payload); None once the server has closed; ``OSError`` if it breaks."""
        kind, parts = TEXT, []
        while True:
            opcode, last, payload = self._frame()
            if opcode == CLOSE:
                return None
            if opcode == PING:
                with self._sending:
                    self._write(PONG, payload[:125])
            elif opcode in (CONTINUATION, TEXT, BINARY):
                kind = opcode or kind
                parts.append(payload)
                if last:
                    return kind, b"".join(parts)

    def _frame(self) -> tuple[int, bool, bytes]:
        first, size = struct.unpack("!BB", self._read(2))
        if size > 125:
            (size,) = struct.unpack("!H", self._read(2)) if size == 126 else struct.unpack("!Q", self._read(8))
        return first & 0x0F, bool(first & 0x80), self._read(size)

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ConnectionError("the server has gone")
        return data

    def close(self) -> None:
        """Say goodbye with a CLOSE frame and let go of the connection."""
        with contextlib.suppress(OSError), self._sending:
            self._write(CLOSE, struct.pack("!H", 1000))
        self.abort()

    def abort(self) -> None:
        """Let go of the connection without a word; wakes up a ``receive`` that waits."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
