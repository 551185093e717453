"""The socket.io server that the Udacity simulator connects to: who is connected, what each reports and is answered."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Lock
from typing import Any, Protocol
from urllib.parse import urlsplit

import socketio
from engineio.exceptions import SocketIsClosedError
from flask import Flask, request

from nacdrive.common.action import FULL_BRAKE, Action
from nacdrive.common.errors import check_known
from nacdrive.common.net import is_address, is_loopback, listen
from nacdrive.common.units import MPH_PER_MPS
from nacdrive.envs.udacity.connections import RELEASE_MPS, Connections, SimulatorConnection
from nacdrive.envs.udacity.engines import ENGINES
from nacdrive.envs.udacity.guardian import Guardian
from nacdrive.envs.udacity.protocol import LegacyServer
from nacdrive.envs.udacity.telemetry import BadTelemetryError, ForeignTelemetryError, Report, picture, read

PERIOD_S = 1.0
LONGEST_LINE = 300
PARTING_S = 2.0
"""Longest time for which the car is braked before we go."""
GOODBYE_S = 0.5
"""Longest time for which a client may take to hang up."""
COAST = Action(0.0, 0.0, 0.0)
LANDING_PAGE = (
    "This is nacdrive's port for the Udacity simulator, which connects to it by itself: start the simulator and choose "
    "Autonomous Mode. The page to watch is at the address that nacdrive printed.\n"
)


class Pilot(Protocol):
    """Who drives the simulator that is to be driven. Called from the server's threads; must return at once."""

    @property
    def safety(self) -> str | None:
        """Why an emergency stop drives; None while it does not."""

    def report(self, connection: SimulatorConnection, report: Report, now_s: float, *, fresh: bool) -> Action | None:
        """A sound report: what to answer now; None if ``SimulatorServer.steer`` answers it later.

        ``fresh`` is False for a report beyond those in flight, which comes only while ``stopping``.
        """

    def bad_report(self, connection: SimulatorConnection, reason: str) -> Action:
        """What to answer to a report that cannot be driven by."""

    def stopping(self, connection: SimulatorConnection) -> bool:
        """Whether an emergency stop is under way, so that each report is answered at once."""

    def watch(self, connection: SimulatorConnection, now_s: float) -> tuple[Action, bool]:
        """What to do if it is to be sent something now, and whether it must be."""

    def release(self, connection: SimulatorConnection, why: str) -> None:
        """It is not driven any more."""


class SimulatorServer:
    """Serves the simulator and, on the same port, modern Socket.IO clients, which may ask for ``status``.

    A client that reports as the simulator does is driven while there is no simulator. Arguments and errors are those of
    ``UdacityEnv``, which is its ``pilot``.
    """

    def __init__(
        self, pilot: Pilot, host: str, port: int, engine: str, on_event: Callable[[str], None], in_flight: int
    ) -> None:
        self.steers = 0
        self.dropped = 0
        """Reports dropped because another one was under way."""
        self.log = RateLimitedLog(on_event)
        self.connections = Connections()
        self._pilot, self._in_flight = pilot, in_flight
        self._leaving = False
        check_known("server", engine, ENGINES)
        self._engine = ENGINES[engine]()
        self._sio = LegacyServer(
            async_mode=self._engine.async_mode,
            logger=self.log.logger("Socket.IO"),
            engineio_logger=self.log.logger("Engine.IO"),
        )
        self._sio.on("connect", self._guarded(self._connect))
        self._sio.on("disconnect", self._guarded(self._disconnect))
        self._sio.on("telemetry", self._guarded(self._telemetry))
        self._sio.on("status", self._guarded(self._status))
        self._sio.on("*", self._guarded(self._unknown))
        listener = listen(host, port, what="the simulator")
        self.port: int = listener.getsockname()[1]
        self._guardian = Guardian(self.log.say)
        app = same_site(socketio.WSGIApp(self._sio, landing_page(self.log.say)), is_loopback(host), self.log.say)
        watch, goodbye = self._guarded(self._watch), self._guarded(self._disconnect_all)
        self._engine.start(listener, app, watch, goodbye, lambda line: self.log.say(line, line))

    def stop(self) -> None:
        self._brake()
        self._engine.stop()
        self._guardian.close()

    def pause(self) -> None:
        """Brake the car, then stop this process until it is continued, as Ctrl-Z does; in a thread of its own."""
        if not self._leaving:
            self._brake()
            os.kill(os.getpid(), signal.SIGSTOP)
            self._leaving = False

    def _brake(self) -> None:
        self._leaving = True
        until = time.monotonic() + PARTING_S
        cars = [each for each in self.connections.sound() if not each.manual]
        for car in cars:
            # Whoever was to answer its last report may have been interrupted.
            self.steer(car, FULL_BRAKE)
        # A command holds until the next one, and one that brakes would reverse a car once it is slow.
        while any(car.speed_mps > RELEASE_MPS for car in cars) and time.monotonic() < until:
            time.sleep(0.05)
        self._engine.call(self._let_go)

    def _let_go(self) -> None:
        for car in self.connections.sound():
            self._send(car, "steer", car.command(COAST))

    def steer(self, connection: SimulatorConnection, action: Action) -> None:
        """Send a command, from whichever thread; the brake while the program is about to end or to be stopped."""
        action = FULL_BRAKE if self._leaving else action
        self._engine.call(lambda: self._send(connection, "steer", connection.command(action)))

    def _send(self, connection: SimulatorConnection, event: str, data: dict[str, str]) -> None:
        """Answer one session, never all: an event that it cannot read makes the simulator drop the connection."""
        connection.sent(time.monotonic())
        self.steers += event == "steer"
        with suppress(SocketIsClosedError):  # it has gone a moment ago, which its disconnection will say
            self._sio.emit(event, data, to=connection.sid)

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, with its exceptions told in one line: none may end a connection or a thread."""

        def guarded(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except Exception as error:
                self.log.say("fault", f"Fault in the simulator's server: {type(error).__name__}: {error}")
                return None

        return guarded

    # Whatever comes in is from outside: a client may also name an event "connect", so none trusts its arguments.

    def _connect(self, sid: str, *_: Any) -> None:
        session = self._sio.session_of(sid)
        environ = self._sio.get_environ(sid) or {}
        who = f"{str(environ.get('HTTP_USER_AGENT', 'no name'))[:60]} at {environ.get('REMOTE_ADDR', '?')}"
        if session is None or not session.simulator:
            kind = "Socket.IO 2" if session is not None and session.old else "Socket.IO"
            self.log.say("client", f"A {kind} client has connected that is not the simulator ({who}).")
            return
        self.connections.of(sid, True, time.monotonic())
        self.log.say("connected", f"The simulator has connected ({who}).")

    def _disconnect(self, sid: str, *_: Any) -> None:
        if self._sio.manager.is_connected(sid, "/"):
            return
        connection = self.connections.remove(sid)
        if connection is None:
            return
        self._guardian.remove(connection.number)
        self._pilot.release(connection, "the simulator has gone")
        if connection.separator is not None and not self._leaving:
            who = "The simulator" if connection.simulator else "A client that reported as the simulator does"
            others = "the other one is driven now" if self.connections.driven() else "waiting for it to come back"
            self.log.say("gone", f"{who} has gone: {others}.")

    def _status(self, *_: Any) -> dict[str, Any]:
        connection = self.connections.driven()
        return {
            "simulator": connection is not None,
            "manual": connection is not None and connection.manual,
            "speed_mps": connection.speed_mps if connection else None,
            "steers": self.steers,
            "safety": self._pilot.safety,
        }

    def _unknown(self, event: str, *_: Any) -> None:
        self.log.say("event", f"A client sends events that nobody knows here: '{str(event)[:40]}'.")

    def _telemetry(self, sid: str, data: Any = None, *_: Any) -> None:
        session = self._sio.session_of(sid)
        if session is None:
            return
        now = time.monotonic()
        connection = self.connections.of(sid, session.simulator, now)
        fresh = connection.begin(self._in_flight, now)
        # If the car is being stopped while another report is decided on, that takes too long.
        if not (fresh or self._leaving or (connection.busy and self._pilot.stopping(connection))):
            self.dropped += 1
            return
        answer: Action | None = FULL_BRAKE
        kept = False
        try:
            if not data:
                answer = None
                self._manual(connection)
            else:
                answer, kept = self._answer(connection, data, now, fresh)
                if connection.separator is not None and not connection.guarded:
                    session.trust()
                    connection.guarded = True
                    if session.connection is not None:
                        self._guardian.add(connection.number, session.connection)
        finally:
            # A fault of our own is no reason to leave the car without an answer.
            if fresh and not kept:
                connection.end()
            if answer is not None:
                self._send(connection, "steer", connection.command(answer))

    def _manual(self, connection: SimulatorConnection) -> None:
        if not connection.manual:
            connection.manual = True
            self.log.say("manual", "A person drives (W or S is held in the simulator).")
        self._pilot.release(connection, "a person drives in the simulator")
        self._send(connection, "manual", {})

    def _answer(
        self, connection: SimulatorConnection, data: Any, now_s: float, fresh: bool
    ) -> tuple[Action | None, bool]:
        """What to answer now, None for nothing, and whether the report was kept to be answered later."""
        if connection.manual:
            connection.manual = False
            self.log.say("manual", "The keys were let go: the policy drives.")
        known = connection.separator is not None
        try:
            report = read(data)
            if not known:
                # Who has never shown a picture takes over from nobody.
                picture(report.image)
        except ForeignTelemetryError as error:
            if not known:
                connection.foreign = True
                self.log.say("foreign", f"A simulator is left alone: {error}.")
                return None, False
            return self._pilot.bad_report(connection, str(error)), False
        except BadTelemetryError as error:
            return self._pilot.bad_report(connection, str(error)), False
        before = self.connections.driven()
        connection.foreign = False
        connection.separator, connection.speed_mps = report.separator, report.speed_mps
        driven = connection is self.connections.driven()
        if not known and driven and before is not None and before.simulator:
            self.log.say("second", "Another one was connected before: the newer is driven, the older braked.")
        if self._leaving or not driven:
            # One that is not driven is left alone once it is slow and let go: each answer would make it report again.
            return None if connection.rests and connection.speed_mps <= RELEASE_MPS else FULL_BRAKE, False
        answer = self._pilot.report(connection, report, now_s, fresh=fresh)
        return answer, answer is None

    def _watch(self) -> None:
        """Wake up a simulator that says nothing, and stop a car for which nothing is decided."""
        self._sio.ping_clients()
        now = time.monotonic()
        for connection in (self.connections.driven(), self.connections.expected()):
            if connection is None:
                continue
            action, must = self._pilot.watch(connection, now)
            stopping = self._leaving or self._pilot.stopping(connection)
            # While a report is decided on, it is for us to speak.
            if must or ((stopping or not connection.busy) and connection.silent(now)):
                connection.ping(now)
            elif not (stopping and connection.unanswered(now)):
                continue
            if connection.manual:
                self._send(connection, "manual", {})
            else:
                self._send(connection, "steer", connection.command(action))
        # Last: whoever hangs above this line gives no sign of life, and the guardian brakes.
        cars = {each.number: (each.speed_mps * MPH_PER_MPS, each.steering) for each in self.connections.sound()}
        self._guardian.sign_of_life(cars)

    def _disconnect_all(self) -> None:
        self._let_go()
        sessions = self._sio.eio.sockets
        for session in list(sessions.values()):
            session.close(wait=False)
        # Other threads write to the connections: a program that ended now would take the last command with it.
        until = time.monotonic() + GOODBYE_S
        while any(session.upgraded for session in list(sessions.values())) and time.monotonic() < until:
            self._sio.sleep(0.01)


class RateLimitedLog:
    """Passes on at most one line a second of each kind; the next one says how many were left out."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lock = Lock()
        self._last_s: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def say(self, kind: str, text: str) -> bool:
        """Tell ``text``; False if something of its ``kind`` was told less than a second ago, and it is left out."""
        now = time.monotonic()
        with self._lock:
            if now - self._last_s.get(kind, -PERIOD_S) < PERIOD_S:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return False
            self._last_s[kind] = now
            more = self._left_out.pop(kind, 0)
        line = " ".join(text.split())
        line = line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} ..."
        self._tell(f"{line} ({more} more like this)" if more else line)
        return True

    def logger(self, name: str) -> logging.Logger:
        """A logger for a library: its warnings and errors become lines here, without tracebacks."""
        logger = logging.Logger(name, logging.WARNING)
        logger.addHandler(_OneLine(self, name))
        return logger


class _OneLine(logging.Handler):
    def __init__(self, log: RateLimitedLog, kind: str) -> None:
        super().__init__()
        self._log, self._kind = log, kind

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        why = f": {type(error).__name__}: {error}" if error else ""
        self._log.say(self._kind, f"{self._kind}: {record.getMessage()[:200]}{why[:200]}")


def landing_page(say: Callable[[str, str], Any]) -> Flask:
    """What the port says to browsers and to other programs that try it; ``say`` is told who asked."""
    app = Flask("nacdrive.envs.udacity", static_folder=None)

    @app.before_request
    def explain() -> tuple[str, int, dict[str, str]]:
        agent = request.headers.get("User-Agent", "a program without a name")[:80]
        if request.headers.get("Upgrade", "").lower() == "websocket":
            say(
                "stranger",
                f"A plain websocket client ({agent}) asked for {request.path[:80]}: not the desktop simulator. "
                "The builds in Udacity's workspaces speak another protocol.",
            )
        else:
            say("stranger", f"Not the simulator, but {agent}, asked for {request.path[:80]}.")
        return LANDING_PAGE, 200 if request.path == "/" else 404, {"Content-Type": "text/plain; charset=utf-8"}

    return app


def same_site(app: Any, local: bool, say: Callable[[str, str], Any]) -> Any:
    """``app`` for everybody but other sites' pages, which a browser on this machine would let reach this port; where
    ``local``, only this machine is served. ``say`` is called with a kind and a line where a request makes ``app`` fail.
    """

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            if is_foreign(environ, local):
                start_response("403 Forbidden", [("Content-Type", "text/plain"), ("Connection", "close")])
                return [b"Another site's page may not use this port.\n"]
            answer: Iterable[bytes] = app(environ, start_response)
            return answer
        except OSError:
            # The connection has gone.
            raise
        except Exception as error:
            say("request", f"A request was refused: {type(error).__name__}: {error}")
            start_response("400 Bad Request", [("Content-Type", "text/plain"), ("Connection", "close")])
            return [b"Not a request that this port understands.\n"]

    return guarded


def is_foreign(environ: dict[str, Any], local: bool) -> bool:
    """Whether a request is that of another site's page.

    A page whose own name was made to point here (DNS rebinding) is of this site in its browser's eyes: ``Host`` must be
    an address or a name of this machine, for programs too where only this machine is served.
    """
    host, origin = environ.get("HTTP_HOST"), environ.get("HTTP_ORIGIN")
    name = urlsplit(f"//{host}").hostname or "" if host is not None else "localhost"
    ours = is_loopback(name) or (not local and (is_address(name) or name == socket.gethostname().lower()))
    site = environ.get("HTTP_SEC_FETCH_SITE", "none")
    link = environ.get("HTTP_SEC_FETCH_MODE") == "navigate" and environ.get("PATH_INFO") == "/"
    other_site = origin is not None and urlsplit(origin).netloc != host
    return (
        (not ours and (local or origin is not None)) or other_site or (site not in ("same-origin", "none") and not link)
    )
