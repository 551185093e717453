"""The page's files on a port, in the background: shared by the live page and the replay."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from flask import Flask, Response, abort, request, send_from_directory
from werkzeug.serving import BaseWSGIServer, make_server

from nacdrive.common.net import QuietHandler, listen
from nacdrive.common.paths import shipped
from nacdrive.web.auth import HEADERS, AccessControl
from nacdrive.web.card import Card

WILDCARDS = ("0.0.0.0", "::", "")
ELSEWHERE = ("192.0.2.1", 9)
"""An address that nobody has (RFC 5737): asked only which of this machine's addresses would lead there."""


def base_app(access: AccessControl, mode: str, cards: Sequence[Card]) -> Flask:
    """An application that serves the page's files, and those of ``cards``, to whom ``access`` lets in.

    ``mode`` tells the page what it shows.
    """
    app = Flask("nacdrive.web", static_folder=None)
    www = shipped("www")
    folders = {card.name: card.files for card in cards}

    @app.before_request
    def check() -> Response | None:
        return access.check(request)

    @app.after_request
    def protect(answer: Response) -> Response:
        answer.headers.update(HEADERS)
        return answer

    @app.errorhandler(403)
    def refused(error: Any) -> tuple[str, int, dict[str, str]]:
        return f"{error.description}\n", 403, {"Content-Type": "text/plain; charset=utf-8"}

    @app.get("/")
    def front() -> Response:
        return send_from_directory(www, "index.html")

    @app.get("/<path:name>")
    def file(name: str) -> Response:
        return send_from_directory(www, name)

    @app.get("/what")
    def what() -> dict[str, str]:
        return {"mode": mode}

    @app.get("/cards/<name>/<path:file>")
    def card_file(name: str, file: str) -> Response:
        return send_from_directory(folders[name], file) if name in folders else abort(404)

    for card in cards:
        card.add_routes(app)
    return app


def require_origin() -> None:
    """Refuse a socket that no browser's page opens: an origin that is there has been compared already."""
    if request.headers.get("Origin") is None:
        abort(403, "This connection is for the page only.")


class UpgradedResponse(Response):
    """The answer to a request whose connection has become a WebSocket."""

    def __call__(self, *_: Any) -> Any:
        """Tell werkzeug that there is nothing left to answer on."""
        raise ConnectionError


def machine_address() -> str:
    """The address under which other machines of the network most likely reach this one, else its name."""
    try:
        # A datagram socket that is connected sends nothing; it only picks the way.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(ELSEWHERE)
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()


class HttpServer:
    """Starts and stops an application on a port; a context manager."""

    def __init__(self, host: str, port: int, app: Flask, access: AccessControl) -> None:
        self.host, self.port = host, port
        self._app, self._access = app, access
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
        name = machine_address() if self.host in WILDCARDS else self.host
        self._access.address = f"http://{f'[{name}]' if ':' in name else name}:{self.port}/"
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="nacdrive-page", daemon=True)
        self._thread.start()
        return self._access.url()

    @staticmethod
    def stays_up(hold: str) -> bool:
        """Whether ``--hold`` keeps the page up after the drive: yes, no, or auto: where a person is at the terminal."""
        return hold == "yes" or (hold == "auto" and sys.stdin is not None and sys.stdin.isatty())

    def stay(self) -> None:
        """Keep the page up until Ctrl-C."""
        print("the page stays up; Ctrl-C ends it.", flush=True)
        try:
            Event().wait()
        except KeyboardInterrupt:
            print()

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
        return self._access.url()
