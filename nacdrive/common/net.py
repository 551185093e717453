"""A listening port, or one sentence about why there is none; a quiet way to answer on it."""

from __future__ import annotations

import errno
import io
import ipaddress
import socket
import sys
import time
from typing import Any

from werkzeug.serving import WSGIRequestHandler

from nacdrive.common.errors import UserError

REQUEST_S = 15.0
"""So long a connection may take for its request, or be silent before it."""


def listen(host: str, port: int, *, what: str = "the page") -> socket.socket:
    """A socket that listens on ``host`` and ``port``, 0 for a free one; ``what`` is to be served, for the ``UserError``
    if the port is in use or not allowed, or the address is not this machine's.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    # Elsewhere it frees a port whose last user has just gone; on Windows it would share one that is in use.
    if sys.platform != "win32":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(64)
    except (OSError, OverflowError, TypeError, UnicodeError) as error:
        listener.close()
        flag = "--port" if what == "the simulator" else "--page-port"
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is in use: stop what uses it, or give another one with {flag}.") from error
        if isinstance(error, OSError) and error.errno == errno.EACCES:
            raise UserError(f"port {port} needs administrator rights: give one above 1023 with {flag}.") from error
        raise UserError(f"cannot serve {what} on {host}:{port} ({error}): check --host and {flag}.") from error
    return listener


def is_loopback(host: str) -> bool:
    """True for names and addresses that only this machine reaches."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def is_address(host: str) -> bool:
    """True for an address in numbers, which no name service can make another machine's."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class QuietHandler(WSGIRequestHandler):
    """Answers without a line per request on the terminal, where the drive's own output is."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Say nothing."""

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        """What still comes after a WebSocket has ended, such as a farewell, is no request to be answered."""
        self.close_connection = True


class ImpatientHandler(QuietHandler):
    """Waits no longer than ``timeout`` for all of a request, though it comes byte by byte, and for an answer's way."""

    timeout = REQUEST_S

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._reader = DeadlineReader(self.connection)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        self._reader.until_s = time.monotonic() + self.timeout
        super().handle_one_request()

    def run_wsgi(self) -> None:
        # What its request has left of the time is not the answer's.
        self.connection.settimeout(self.timeout)
        super().run_wsgi()


class DeadlineReader(io.RawIOBase):
    """Reads from a connected socket until ``until_s``, in ``time.monotonic()`` seconds."""

    until_s = 0.0

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(1e-3, self.until_s - time.monotonic()))
        return self._connection.recv_into(buffer)
