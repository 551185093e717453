"""What keeps a connection to the simulator quick: without it every picture waits 40 ms for an acknowledgement."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

MOST_SEGMENT = 1460
QUICK_ACK = getattr(socket, "TCP_QUICKACK", None)
"""Linux only."""


def tune(listener: socket.socket) -> None:
    """Keep the loopback's two waits of 40 ms away; the accepted connections inherit the options."""
    # The simulator writes a picture in small pieces with Nagle's algorithm on. Loopback's segments are so large that
    # every piece but the first would wait for a delayed acknowledgement; at this size they are full and go at once.
    with suppress(OSError, AttributeError):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, MOST_SEGMENT)
    # The same wait for our own small answers.
    with suppress(OSError, AttributeError):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class QuickAckSocket:
    """A connected socket that acknowledges what it receives at once.

    The last piece of a picture waits until the pieces before it are acknowledged (Nagle's algorithm in the simulator),
    and after an odd number of segments the operating system delays that by 40 ms.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive, and acknowledge; the option lasts for one acknowledgement only."""
        data: bytes = self._connection.recv(size, flags)
        if QUICK_ACK is not None:
            with suppress(OSError):
                self._connection.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
        return data

    def send(self, data: bytes, flags: int = 0) -> int:
        """Send; a connection that has gone is a broken pipe, whichever way it went: simple-websocket knows no other."""
        try:
            sent: int = self._connection.send(data, flags)
        except OSError as error:
            raise BrokenPipeError(error.errno, str(error)) from error
        return sent


def unmask(data: bytes, mask: tuple[int, ...], length: int | None = None, offset: int = 0) -> bytes:
    """Websocket payload XOR its mask, from ``offset`` on; eventlet's own does it byte by byte, 50 times slower."""
    length = len(data) if length is None else length
    shift = offset % 4
    key = bytes(mask[shift:] + mask[:shift]) * (length // 4 + 1)
    value = int.from_bytes(data[:length], "big") ^ int.from_bytes(key[:length], "big")
    return value.to_bytes(length, "big")
