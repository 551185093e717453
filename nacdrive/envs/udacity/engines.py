"""What serves the connections: threads (werkzeug and simple-websocket), or eventlet's green threads."""

from __future__ import annotations

import os
import socket
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from socketserver import BaseServer
from typing import Any

from werkzeug.serving import make_server

from nacdrive.common.lasting_thread import lasting_thread
from nacdrive.common.net import REQUEST_S, ImpatientHandler

MOST_SEGMENT = 1460
NOWHERE = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
"""What eventlet writes of its connections, in full."""
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


def apply_mask(data: bytes, mask: Iterable[int], length: int | None = None, offset: int = 0) -> bytes:
    """Websocket payload XOR its mask, from ``offset`` on; eventlet's own does it byte by byte, 50 times slower."""
    length = len(data) if length is None else length
    key = (bytes(mask) * (length // 4 + 2))[offset % 4 :]
    return (int.from_bytes(data[:length], "big") ^ int.from_bytes(key[:length], "big")).to_bytes(length, "big")


LOOK_S = 0.05
IDLE_S = 60.0
"""A websocket that says nothing for so long, though it is asked every 25 s, has gone."""

Call = Callable[[], None]


class Threads:
    """Operating-system threads for every connection."""

    async_mode = "threading"
    """Name for python-socketio."""

    def __init__(self) -> None:
        self._stopping = threading.Event()

    def start(self, listener: socket.socket, app: Any, watch: Call, goodbye: Call, say: Callable[[str], Any]) -> None:
        """Serve; call ``watch`` all the time, ``goodbye`` before the end, ``say`` of a thread that is started again."""
        host, port = listener.getsockname()[:2]
        self._goodbye = goodbye
        self._server = make_server(
            host, port, quick(app), threaded=True, request_handler=ImpatientHandler, fd=listener.fileno()
        )
        listener.close()
        tune(self._server.socket)
        # werkzeug's own loop would close the port, however it ends.
        self._serving = lasting_thread("nacdrive-udacity", lambda: BaseServer.serve_forever(self._server, 0.1), say)
        lasting_thread("nacdrive-udacity-watch", lambda: self._watch(watch), say)

    def _watch(self, watch: Call) -> None:
        while not self._stopping.wait(LOOK_S):
            watch()

    def call(self, function: Call) -> None:
        """Run ``function``, which sends something, from whichever thread: it goes into the connection's queue."""
        function()

    def stop(self) -> None:
        """Stop serving; returns when the port is free."""
        self._stopping.set()
        # The port first: the simulator comes back within milliseconds of a goodbye.
        self._server.shutdown()
        self._serving.join()
        self._server.server_close()
        self._goodbye()


class Eventlet:
    """Eventlet's green threads, all in one operating-system thread of their own; nothing is monkey-patched."""

    async_mode = "eventlet"

    def __init__(self) -> None:
        with warnings.catch_warnings():
            # Its maintainers discourage new uses; that is no news for whoever asked for it by name.
            warnings.simplefilter("ignore")
            import eventlet
            import eventlet.websocket
            import eventlet.wsgi
        self._eventlet = eventlet
        eventlet.websocket.RFC6455WebSocket._apply_mask = staticmethod(apply_mask)
        self._stopping = threading.Event()
        self._green: Any = None
        # Green threads belong to their own operating-system thread: what others want done there is put into a list,
        # and a byte through a pair of sockets wakes it up.
        self._wanted: deque[Call] = deque()
        self._bell, self._bell_pull = socket.socketpair()
        self._bell_pull.setblocking(False)

    def start(self, listener: socket.socket, app: Any, watch: Call, goodbye: Call, say: Callable[[str], Any]) -> None:
        tune(listener)
        self._listener, self._app = listener, app
        self._serving = lasting_thread("nacdrive-udacity", lambda: self._serve(watch, goodbye), say)

    def _serve(self, watch: Call, goodbye: Call) -> None:
        eventlet = self._eventlet
        if self._green is None:
            self._green = self._spawn()
        while not self._stopping.is_set():
            eventlet.sleep(LOOK_S)
            watch()
        # The port first: the simulator comes back within milliseconds of a goodbye.
        self._green.close()
        self._run_wanted()
        goodbye()
        eventlet.sleep(LOOK_S)

    def _spawn(self) -> Any:
        """Begin to accept, in green threads of this thread; the listening socket."""
        eventlet = self._eventlet
        self._listener.setblocking(False)
        green = eventlet.greenio.GreenSocket(self._listener)

        class ImpatientProtocol(eventlet.wsgi.HttpProtocol):  # type: ignore[misc, name-defined]
            def log_message(self, *_: Any) -> None:
                """Requests that are none would be printed as they came, in full."""

            def handle_one_request(self) -> None:
                self.timer = eventlet.Timeout(REQUEST_S, TimeoutError("the request did not come in time"))
                try:
                    super().handle_one_request()
                finally:
                    self.timer.cancel()

            def handle_one_response(self) -> None:
                if self.command == "GET":
                    self.timer.cancel()
                super().handle_one_response()

        options = {"log": NOWHERE, "log_output": False, "debug": False, "protocol": ImpatientProtocol}
        eventlet.spawn(eventlet.wsgi.server, green, quick(self._app), **options)
        eventlet.spawn(self._answer_bell)
        return green

    def _answer_bell(self) -> None:
        self._bell.setblocking(False)
        bell = self._eventlet.greenio.GreenSocket(self._bell)
        while bell.recv(1000):
            self._run_wanted()

    def _run_wanted(self) -> None:
        with suppress(IndexError):
            while True:
                self._wanted.popleft()()

    def call(self, function: Call) -> None:
        """Run it in the thread of the green threads, perhaps after this has returned."""
        if threading.current_thread() is self._serving:
            function()
            return
        self._wanted.append(function)
        # A pair that is full has enough bytes in it to wake up whom it may.
        with suppress(BlockingIOError):
            self._bell_pull.send(b"!")

    def stop(self) -> None:
        self._stopping.set()
        self._serving.join(5)
        self._bell_pull.close()


ENGINES: dict[str, type[Threads] | type[Eventlet]] = {"threads": Threads, "eventlet": Eventlet}


def quick(app: Any) -> Any:
    """``app`` with websockets that acknowledge promptly, and that end when their client has gone without a word."""

    def served(environ: dict[str, Any], start_response: Any) -> Any:
        if "werkzeug.socket" in environ:
            connection = environ["werkzeug.socket"]
            if environ.get("HTTP_UPGRADE", "").lower() == "websocket":
                connection.settimeout(IDLE_S)
            environ["werkzeug.socket"] = QuickAckSocket(connection)
        elif "eventlet.input" in environ:
            inner = environ["eventlet.input"]
            # Its websockets write there of connections that are gone.
            environ["wsgi.errors"] = NOWHERE
            acknowledging = QuickAckSocket(inner.get_socket())
            inner.get_socket = lambda: acknowledging
        return app(environ, start_response)

    return served
