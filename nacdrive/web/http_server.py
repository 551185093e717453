"""An application on a port, in the background: shared by the live page and the replay."""

from __future__ import annotations

import socket
from threading import Thread
from types import TracebackType
from typing import Self

from flask import Flask
from werkzeug.serving import BaseWSGIServer, make_server

from nacdrive.common.net import QuietHandler, listen
from nacdrive.web.auth import Guard

WILDCARDS = ("0.0.0.0", "::", "")


class Serving:
    """Starts and stops; a context manager."""

    def __init__(self, host: str, port: int, app: Flask, guard: Guard) -> None:
        self.host, self.port = host, port
        self._app, self._guard = app, guard
        self._server: BaseWSGIServer | None = None
        self._thread = Thread()

    def start(self) -> str:
        """Begin to serve in the background and return the address to open.

        Raises:
            UserError: if the port is in use or the address is not this machine's.
        """
        listener = listen(self.host, self.port)
        self.port = listener.getsockname()[1]
        self._server = make_server(
            self.host, self.port, self._app, threaded=True, request_handler=QuietHandler, fd=listener.fileno()
        )
        listener.close()
        name = socket.gethostname() if self.host in WILDCARDS else self.host
        self._guard.address = f"http://{f'[{name}]' if ':' in name else name}:{self.port}/"
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="nacdrive-live", daemon=True)
        self._thread.start()
        return self._guard.url()

    def stop(self) -> None:
        """Free the port."""
        if self._server is not None:
            self._server.shutdown()
            # The thread closes the listening socket as its last deed; only then is the port free.
            self._thread.join()
            self._server = None

    def __enter__(self) -> Self:
        """Start serving."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        self.stop()

    @property
    def url(self) -> str:
        """The address to open."""
        return self._guard.url()
