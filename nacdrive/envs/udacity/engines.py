"""What serves the connections: threads (werkzeug and simple-websocket), or eventlet's green threads."""

from __future__ import annotations

import socket
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from werkzeug.serving import make_server

from nacdrive.common.errors import unknown_name
from nacdrive.common.net import QuietHandler, listen
from nacdrive.envs.udacity.tcp import QuickAckSocket, tune, unmask

Result = TypeVar("Result")
LOOK_S = 0.05


class Engine(Protocol):
    """Serves an application and runs what the bridge has to do beside it."""

    async_mode: str
    """Name for python-socketio."""

    def lock(self) -> AbstractContextManager[Any]:
        """A lock that may be held during ``compute``."""

    def compute(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run what takes its time, while others are served."""

    def start(self, listener: socket.socket, app: Any, watch: Callable[[], None], goodbye: Callable[[], None]) -> None:
        """Serve in the background; call ``watch`` all the time, and ``goodbye`` before the end."""

    def stop(self) -> None:
        """Stop serving; returns when the port is free."""


class Threads:
    """One operating-system thread per connection."""

    async_mode = "threading"

    def __init__(self) -> None:
        self._stopping = threading.Event()

    def lock(self) -> AbstractContextManager[Any]:
        """A lock that may be held during ``compute``."""
        return threading.Lock()

    def compute(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run it here: this thread serves nobody else."""
        return function(*arguments)

    def start(self, listener: socket.socket, app: Any, watch: Callable[[], None], goodbye: Callable[[], None]) -> None:
        """Serve in the background."""
        host, port = listener.getsockname()[:2]
        self._goodbye = goodbye
        self._server = make_server(
            host, port, prompt(app), threaded=True, request_handler=QuietHandler, fd=listener.fileno()
        )
        listener.close()
        tune(self._server.socket)
        self._serving = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="nacdrive-bridge", daemon=True
        )
        self._serving.start()
        threading.Thread(target=self._watch, args=(watch,), name="nacdrive-bridge-watch", daemon=True).start()

    def _watch(self, watch: Callable[[], None]) -> None:
        while not self._stopping.wait(LOOK_S):
            watch()

    def stop(self) -> None:
        """Stop serving."""
        self._stopping.set()
        # The port first: the simulator comes back within milliseconds of a goodbye.
        self._server.shutdown()
        self._serving.join()
        self._goodbye()


class Eventlet:
    """Eventlet's green threads, all in one operating-system thread of their own; nothing is monkey-patched."""

    async_mode = "eventlet"

    def __init__(self) -> None:
        with warnings.catch_warnings():
            # Its maintainers discourage new uses; that is no news for whoever asked for it by name.
            warnings.simplefilter("ignore")
            import eventlet
            import eventlet.semaphore
            import eventlet.tpool
            import eventlet.websocket
            import eventlet.wsgi
        self._eventlet = eventlet
        eventlet.websocket.RFC6455WebSocket._apply_mask = staticmethod(unmask)
        # One thread decides, as there is one policy.
        eventlet.tpool.set_num_threads(1)
        self._stopping = threading.Event()

    def lock(self) -> AbstractContextManager[Any]:
        """A lock that may be held during ``compute``."""
        lock: AbstractContextManager[Any] = self._eventlet.semaphore.Semaphore(1)
        return lock

    def compute(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run it in an operating-system thread, for here it would hold up everybody."""
        result: Result = self._eventlet.tpool.execute(function, *arguments)
        return result

    def start(self, listener: socket.socket, app: Any, watch: Callable[[], None], goodbye: Callable[[], None]) -> None:
        """Serve in the background."""
        tune(listener)
        self._serving = threading.Thread(
            target=self._serve, args=(listener, app, watch, goodbye), name="nacdrive-bridge", daemon=True
        )
        self._serving.start()

    def _serve(self, listener: socket.socket, app: Any, watch: Callable[[], None], goodbye: Callable[[], None]) -> None:
        eventlet = self._eventlet
        listener.setblocking(False)
        green = eventlet.greenio.GreenSocket(listener)
        quiet = Quiet()
        eventlet.spawn(eventlet.wsgi.server, green, prompt(app), log=quiet, log_output=False, debug=False)
        while not self._stopping.is_set():
            eventlet.sleep(LOOK_S)
            watch()
        # The port first: the simulator comes back within milliseconds of a goodbye.
        green.close()
        goodbye()
        eventlet.sleep(LOOK_S)
        # The pool's thread belongs to this thread's hub.
        eventlet.tpool.killall()

    def stop(self) -> None:
        """Stop serving."""
        self._stopping.set()
        self._serving.join(5)


class Quiet:
    """A log that keeps nothing."""

    def write(self, text: str) -> None:
        """Drop it."""

    def flush(self) -> None:
        """Nothing is kept back."""


ENGINES: dict[str, Callable[[], Engine]] = {"threads": Threads, "eventlet": Eventlet}


def new_engine(name: str) -> Engine:
    """The engine called ``name``.

    Raises:
        UserError: if there is none of that name.
    """
    if name not in ENGINES:
        raise unknown_name("server", name, ENGINES)
    return ENGINES[name]()


def open_listener(host: str, port: int) -> socket.socket:
    """The listening socket that simulators connect to.

    Raises:
        UserError: if the port is in use, or the address is not this machine's.
    """
    return listen(host, port, what="the simulator")


def prompt(app: Any) -> Any:
    """``app`` with websockets that acknowledge promptly."""

    def prompted(environ: dict[str, Any], start_response: Any) -> Any:
        if "werkzeug.socket" in environ:
            environ["werkzeug.socket"] = QuickAckSocket(environ["werkzeug.socket"])
        elif "eventlet.input" in environ:
            inner = environ["eventlet.input"]
            connection = QuickAckSocket(inner.get_socket())
            inner.get_socket = lambda: connection
        return app(environ, start_response)

    return prompted
