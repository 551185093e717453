"""``Bridge``: serves the Udacity simulator, has each picture decided on, and answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Self

import socketio

from nacdrive.common.action import Action
from nacdrive.drivers.speed_control import SpeedController
from nacdrive.envs.udacity.connections import RELEASE_MPS, Car, Cars
from nacdrive.envs.udacity.engines import new_engine, open_listener
from nacdrive.envs.udacity.landing_page import web_app
from nacdrive.envs.udacity.protocol import LegacyServer
from nacdrive.envs.udacity.rate_limited_log import RateLimitedLog
from nacdrive.envs.udacity.telemetry import BadTelemetryError, ForeignTelemetryError, answer, read
from nacdrive.envs.udacity.wheel import Decide, Decision, Wheel

LARGEST_MESSAGE = 32 << 20
"""Bytes. Larger than any telemetry, so that even an absurd one is answered rather than the connection closed."""
SILENCE_S = 1.0
"""A simulator that has not reported for so long is sent a command: that makes it report."""
PATIENT_SILENCE_S = 5.0
"""The same after a few tries: a simulator that is paused answers all of them at once when it goes on."""
TRIES = 5
PARTING_S = 2.0
"""Longest time for which the car is braked before we go."""
STOP = Action(0.0, 0.0, 1.0)

Reply = tuple[str, dict[str, str]]


def nothing(*_: Any) -> None:
    """Do nothing."""


class Bridge:
    """A server for the simulator and, on the same port, for modern Socket.IO clients. A context manager.

    Modern clients may ask for ``status``. One that reports as the simulator does is driven while there is no simulator.

    Args:
        decide: Picture (uint8 [160, 320, 3], RGB), seconds since the drive began and speed in m/s give an action.
            Called for one picture at a time. Whatever it raises starts the safety stop.
        speed: Gives throttle and brake in place of the action's own; None leaves those.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one, ``port`` then tells which.
        engine: ``threads`` or ``eventlet``.
        on_event: Told in one line of what happens; at most once a second for each kind.
        on_decision: Told of each decision after it was sent; must return at once.
        begin: Called before the first decision of each drive.
        in_flight: Reports of one simulator that may be under way at once; see ``Car``.
    """

    def __init__(
        self,
        decide: Decide,
        speed: SpeedController | None = None,
        host: str = "127.0.0.1",
        port: int = 4567,
        engine: str = "threads",
        on_event: Callable[[str], None] = nothing,
        on_decision: Callable[[Decision], None] = nothing,
        begin: Callable[[], None] = nothing,
        in_flight: int = 1,
    ) -> None:
        self.host, self.port, self.in_flight = host, port, in_flight
        self.steers = 0
        """Commands sent."""
        self.dropped = 0
        """Reports dropped because another one was under way."""
        self._on_decision = on_decision
        self._engine = new_engine(engine)
        self._notices = RateLimitedLog(on_event)
        self._cars = Cars()
        self._wheel = Wheel(decide, begin, speed, self._engine.lock(), self._engine.compute, self._notices.say)
        self._leaving = False
        self._sio = LegacyServer(
            async_mode=self._engine.async_mode,
            logger=self._notices.logger("Socket.IO"),
            engineio_logger=self._notices.logger("Engine.IO"),
            max_http_buffer_size=LARGEST_MESSAGE,
        )
        handlers: dict[str, Callable[..., Any]] = {
            "connect": self._connect,
            "disconnect": self._disconnect,
            "telemetry": self._telemetry,
            "status": self._status,
            "*": self._unknown,
        }
        for event, handler in handlers.items():
            self._sio.on(event, self._guarded(handler))

    def start(self) -> Self:
        """Listen, in the background.

        Raises:
            UserError: if the port is in use, or the address is not this machine's.
        """
        listener = open_listener(self.host, self.port)
        self.port = listener.getsockname()[1]
        app = socketio.WSGIApp(self._sio, web_app(self._notices.say))
        self._engine.start(listener, app, self._guarded(self._watch), self._disconnect_all)
        return self

    __enter__ = start

    def stop(self) -> None:
        """Brake the car, disconnect everybody and free the port."""
        self._leaving = True
        until = time.monotonic() + PARTING_S
        # A command holds until the next one, and one that brakes would reverse the car once it is slow.
        while (car := self._cars.driven()) and car.speed_mps > RELEASE_MPS and time.monotonic() < until:
            time.sleep(0.05)
        self._engine.stop()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    @property
    def connected(self) -> bool:
        """Whether there is a car to drive."""
        return self._cars.driven() is not None

    @property
    def safety(self) -> str | None:
        """Why the safety stop drives; None while it does not."""
        return self._wheel.safety.reason

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, with its exceptions told in one line: none may end a connection or a thread."""

        def guarded(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except Exception as error:
                self._notices.say("fault", f"Fault in the bridge: {type(error).__name__}: {error}")
                return None

        return guarded

    # Whatever comes in is from outside: a client may also name an event "connect", so none trusts its arguments.

    def _connect(self, sid: str, *_: Any) -> None:
        session = self._sio.session_of(sid)
        environ = self._sio.get_environ(sid) or {}
        who = f"{str(environ.get('HTTP_USER_AGENT', 'no name'))[:60]} at {environ.get('REMOTE_ADDR', '?')}"
        if session is None or not session.simulator:
            kind = "Socket.IO 2" if session is not None and session.old else "Socket.IO"
            self._notices.say("client", f"A {kind} client has connected that is not the simulator ({who}).")
            return
        before = self._cars.driven()
        self._cars.of(sid, True, time.monotonic())
        self._notices.say("connected", f"The simulator has connected ({who}).")
        if before is not None and before.simulator and before.sid != sid:
            self._notices.say("second", "Another one was connected before: the newer is driven, the older braked.")

    def _disconnect(self, sid: str, *_: Any) -> None:
        if self._sio.manager.is_connected(sid, "/"):
            return
        car = self._cars.remove(sid)
        if car is None:
            return
        if self._wheel.drives(car):
            self._wheel.let_go()
        if not self._leaving:
            others = "the other one is driven now" if self.connected else "waiting for it to come back"
            self._notices.say("gone", f"The simulator has gone: {others}.")

    def _status(self, *_: Any) -> dict[str, Any]:
        car = self._cars.driven()
        return {
            "simulator": car is not None,
            "manual": car is not None and car.manual,
            "speed_mps": car.speed_mps if car else None,
            "steers": self.steers,
            "safety": self.safety,
        }

    def _unknown(self, event: str, *_: Any) -> None:
        self._notices.say("event", f"A client sends events that nobody knows here: '{str(event)[:40]}'.")

    def _telemetry(self, sid: str, data: Any = None, *_: Any) -> None:
        session = self._sio.session_of(sid)
        if session is None:
            return
        now = time.monotonic()
        car = self._cars.of(sid, session.simulator, now)
        reply: Reply | None = None
        decision: Decision | None = None
        if not car.take(self.in_flight, now):
            # If the safety stop drives while another report is being decided on, that takes too long.
            if car.busy and self.safety is not None and self._wheel.drives(car):
                self._send(car, self._steer(car, self._wheel.emergency()))
            else:
                self.dropped += 1
            return
        try:
            reply, decision = self._reply(car, data)
        except Exception:
            # A fault of our own is no reason to leave the car without an answer.
            reply = self._steer(car, STOP)
            raise
        finally:
            car.done()
            if reply is not None:
                self._send(car, reply)
        if decision is not None:
            self._on_decision(decision)

    def _reply(self, car: Car, data: Any) -> tuple[Reply | None, Decision | None]:
        """What to answer, None for nothing at all, and what there is to show."""
        if not data:
            return self._manual(car), None
        if car.manual:
            car.manual = False
            self._notices.say("manual", "The keys were let go: the policy drives.")
        try:
            report = read(data)
        except (BadTelemetryError, ForeignTelemetryError) as error:
            if isinstance(error, ForeignTelemetryError) and not car.known:
                car.foreign = True
                self._notices.say("foreign", f"A simulator is left alone: {error}.")
                return None, None
            return self._steer(car, self._wheel.fail(str(error)) if self._drives(car) else STOP), None
        car.known, car.foreign = True, False
        car.separator, car.speed_mps = report.separator, report.speed_mps
        if self._drives(car):
            action, decision = self._wheel.drive(report, car)
            return self._steer(car, action), decision
        # One that is not driven is left alone once it is slow: each answer would make it report again.
        return self._steer(car, STOP) if self._leaving or car.speed_mps > RELEASE_MPS else None, None

    def _drives(self, car: Car) -> bool:
        return car is self._cars.driven() and not self._leaving

    def _manual(self, car: Car) -> Reply:
        if not car.manual:
            car.manual = True
            self._notices.say("manual", "A person drives (W or S is held in the simulator).")
        if self._wheel.drives(car):
            self._wheel.let_go()
        return "manual", {}

    def _steer(self, car: Car, action: Action) -> Reply:
        return "steer", answer(action.steering, car.pedal(action.throttle, action.brake), car.separator)

    def _send(self, car: Car, reply: Reply) -> None:
        """Answer one session, never all: an event that it cannot read makes the simulator drop the connection."""
        car.asked()
        self.steers += reply[0] == "steer"
        self._sio.emit(*reply, to=car.sid)

    def _watch(self) -> None:
        """Wake up a simulator that says nothing, and stop a car for which nothing is decided."""
        car = self._cars.driven()
        if car is None:
            return
        now = time.monotonic()
        drives = self._wheel.drives(car)
        action = STOP
        wake = now - car.heard_s > (SILENCE_S if car.tries < TRIES else PATIENT_SILENCE_S)
        if drives and self.safety is not None:
            action = self._wheel.emergency()
        elif drives and self._wheel.safety.overdue(now):
            wake = True
            why = "the policy is still at work" if car.busy else "the simulator sends no picture"
            action = self._wheel.fail(f"no decision for {self._wheel.safety.limit_s:g} s, {why}")
        if wake:
            car.woken(now)
            self._send(car, ("manual", {}) if car.manual else self._steer(car, action))

    def _disconnect_all(self) -> None:
        car = self._cars.driven()
        if car is not None:
            self._send(car, self._steer(car, STOP))
        for session in list(self._sio.eio.sockets.values()):
            session.close(wait=False)
