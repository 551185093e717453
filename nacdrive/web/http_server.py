"""The page's files on a port, in the background: shared by the live page and the replay."""

from __future__ import annotations

import gzip
import re
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from socketserver import BaseServer
from threading import BoundedSemaphore, Event, Thread
from typing import Any, Self

from flask import Flask, Response, abort, request, send_from_directory
from werkzeug.serving import ThreadedWSGIServer

from nacdrive.common.errors import UserError
from nacdrive.common.lasting_thread import lasting_thread
from nacdrive.common.net import ImpatientHandler, listen
from nacdrive.common.paths import shipped
from nacdrive.web.auth import HEADERS, AccessControl
from nacdrive.web.bundle import bundle
from nacdrive.web.card import Card

MOST_CONNECTIONS = 128
"""Each takes a thread or two; a page opens up to nine."""
SHEETS = ("tokens", "layout", "widgets", "why", "player", "control_bar", "lanes", "presentation")
"""Of the page, in the order in which one may say otherwise than those before it."""
TEXTS = ("text/html", "text/css", "text/javascript", "application/json", "image/svg+xml")
WILDCARDS = ("0.0.0.0", "::", "")
ELSEWHERE = ("192.0.2.1", 9)
"""An address that nobody has (RFC 5737): asked only which of this machine's addresses would lead there."""


def base_app(access: AccessControl, mode: str, cards: Sequence[Card]) -> Flask:
    """An application that serves the page's files, and those of ``cards``, to whom ``access`` lets in.

    ``mode`` is what the page shows, and its module: live, several or replay.
    """
    app, www = Flask("nacdrive.web", static_folder=None), shipped("www")
    folders = {card.name: card.files for card in cards}

    @app.before_request
    def check() -> Response | None:
        return access.check(request)

    @app.after_request
    def protect(answer: Response) -> Response:
        answer.headers.update(HEADERS)
        return compress(answer)

    @app.errorhandler(403)
    def refused(error: Any) -> tuple[str, int, dict[str, str]]:
        return f"{error.description}\n", 403, {"Content-Type": "text/plain; charset=utf-8"}

    app.register_error_handler(UserError, lambda error: Response(str(error), 409, mimetype="text/plain"))

    # What the first picture waits for comes in three answers, and the stream at once: on a slow line each turn counts.
    @app.get("/")
    def front() -> Response:
        page = (www / "index.html").read_text(encoding="utf-8")
        other = "one" if mode == "several" else "several"
        page = re.sub(f'<template id="{other}">.*?</template>\n', "", page, flags=re.DOTALL)
        early = "" if mode == "replay" else '<script src="js/first_stream.js"></script>\n  '
        return Response(page.replace("<script ", f"{early}<script ", 1), mimetype="text/html")

    @app.get("/page.css")
    def style() -> Response:
        return text("\n".join((www / "css" / f"{name}.css").read_text(encoding="utf-8") for name in SHEETS), "text/css")

    @app.get("/page.js")
    def script() -> Response:
        return text(bundle(www / "js" / f"{mode}.js"), "text/javascript")

    @app.get("/cards/<name>/card.js")
    def card_script(name: str) -> Response:
        core: set[Path] = set()
        bundle(www / "js" / f"{mode}.js", core)
        card = folders.get(name, www) / "card.js"
        return text(bundle(card, core, "../../page.js"), "text/javascript") if card.is_file() else abort(404)

    @app.get("/<path:name>")
    def file(name: str) -> Response:
        return send_from_directory(www, name)

    @app.get("/cards/<name>/<path:file>")
    def card_file(name: str, file: str) -> Response:
        return send_from_directory(folders[name], file) if name in folders else abort(404)

    for card in cards:
        card.add_routes(app)
    return app


def text(content: str, kind: str) -> Response:
    """An answer that a browser may keep for as long as the text is the same."""
    answer = Response(content, mimetype=kind)
    answer.add_etag()
    answer.make_conditional(request)
    return answer


def compress(answer: Response) -> Response:
    """Texts as gzip, to browsers that take it: a quarter of the bytes."""
    if answer.status_code == 200 and answer.mimetype in TEXTS and "gzip" in request.headers.get("Accept-Encoding", ""):
        answer.direct_passthrough = False
        answer.set_data(gzip.compress(answer.get_data(), 6))
        answer.headers["Content-Encoding"] = "gzip"
        answer.vary.add("Accept-Encoding")
    return answer


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


class PageServer(ThreadedWSGIServer):
    """Werkzeug's server with a thread for each connection, of which there is a bounded number."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._places = BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(*arguments, **options)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own; refuse where there are too many."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()


class HttpServer:
    """Starts and stops the application of a page with its cards on a port; a context manager."""

    def __init__(self, host: str, port: int, mode: str, announce: Callable[[str], None], cards: Sequence[Card]) -> None:
        self.host, self.port, self._cards = host, port, list(cards)
        self._access = AccessControl(host, announce)
        self._app = base_app(self._access, mode, cards)
        self._server: PageServer | None = None
        self._thread = Thread()

    def start(self) -> str:
        """Begin to serve in the background and return the address to open.

        Raises:
            UserError: if the port is in use or the address is not this machine's.
        """
        listener = listen(self.host, self.port)
        self.port = listener.getsockname()[1]
        self._server = server = PageServer(self.host, self.port, self._app, ImpatientHandler, fd=listener.fileno())
        listener.close()
        name = machine_address() if self.host in WILDCARDS else self.host
        self._access.address = f"http://{f'[{name}]' if ':' in name else name}:{self.port}/"
        # Not werkzeug's own loop: it closes the port, however it ends, and then it could not begin again.
        self._thread = lasting_thread("nacdrive-page", lambda: BaseServer.serve_forever(server, 0.1), self.note)
        return self._access.url()

    @staticmethod
    def stays_up(hold: str) -> bool:
        """Whether ``--hold`` keeps the page up after the drive: yes, no, or auto: where a person is at the terminal."""
        return hold == "yes" or (hold == "auto" and sys.stdin is not None and sys.stdin.isatty())

    def stay(self, sentence: str = "the page stays up; Ctrl-C ends it.") -> None:
        """Say so, and serve until Ctrl-C."""
        print(sentence, flush=True)
        try:
            Event().wait()
        except KeyboardInterrupt:
            print()

    def note(self, text: str) -> None:
        """Say what has happened to the page itself."""
        print(text, flush=True)

    def stop(self) -> None:
        for card in self._cards:
            card.close()
        if self._server is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return self._access.url()
