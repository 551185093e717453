"""``LiveServer``: one object that a loop publishes its Ticks to, and browsers watch."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from types import TracebackType
from typing import Any

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from nacdrive.base.errors import UserError
from nacdrive.driving.tick import Tick
from nacdrive.live.app import build_app
from nacdrive.live.guard import Guard
from nacdrive.live.stage import Stage

WILDCARDS = ("0.0.0.0", "::", "")


class LiveServer:
    """Shows a stream of Ticks on a page.

    Closing the browser, opening five of them or freezing one changes nothing for the loop: ``publish`` only keeps the
    newest Tick. Bound to this machine unless ``host`` says otherwise; then a one-time token is needed to look.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8090,
        title: str = "nacdrive",
        circuit: Mapping[str, Any] | None = None,
        allow_control: bool = False,
        choices: Sequence[str] = (),
        announce: Callable[[str], None] = print,
    ) -> None:
        self.host, self.port = host, port
        self._stage = Stage()
        self._guard = Guard(host, announce)
        hello = {
            "title": title,
            "circuit": dict(circuit) if circuit is not None else None,
            "allow_control": allow_control,
            "choices": list(choices),
        }
        self._app = build_app(self._stage, self._guard, lambda: hello)
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

    def publish(self, tick: Tick) -> None:
        """Show ``tick``; returns at once, and the newest Tick wins."""
        self._stage.publish(tick)

    def status(self, text: str) -> None:
        """Show a sentence in place of the stream's state ('Waiting for the simulator ...'); '' takes it back."""
        self._stage.say(text)

    def stop(self) -> None:
        """Say goodbye to the viewers and free the port."""
        self._stage.close()
        if self._server is not None:
            self._server.shutdown()
            # The thread closes the listening socket as its last deed; only then is the port free.
            self._thread.join()
            self._server = None

    def __enter__(self) -> LiveServer:
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


class QuietHandler(WSGIRequestHandler):
    """Answers without a line per request on the terminal, where the drive's own output is."""

    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Say nothing."""


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, or one sentence about why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(64)
    except (OSError, OverflowError) as error:
        listener.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is in use: stop what uses it, or give another one with --port.") from error
        if isinstance(error, OSError) and error.errno == errno.EACCES:
            raise UserError(f"port {port} needs administrator rights: give one above 1023 with --port.") from error
        raise UserError(f"cannot serve the page on {host}:{port} ({error}): check --host and --port.") from error
    return listener
