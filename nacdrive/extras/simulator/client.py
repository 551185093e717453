"""The Udacity simulator as its server sees it: what it sends, when it sends it, and what it makes of the answers.

It claims Engine.IO 4 and talks Engine.IO 3 / Socket.IO 2: it never sends CONNECT, sends its own PING, and reports its
state twice when the connection opens and once for every ``steer`` or ``manual``, never by itself. Behaviour measured
with the simulator's own C# sources (udacity/self-driving-car-sim); no Unity build was run.
"""

from __future__ import annotations

import base64
import json
import math
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Self

from nacdrive.common.errors import check_known
from nacdrive.extras.simulator.number_format import NUMBER_FORMATS
from nacdrive.extras.simulator.websocket_sharp import TEXT, WebSocketSharp

PATH = "/socket.io/?EIO=4&transport=websocket"
PING_INTERVAL_S = 25.0
RECONNECT_S = 0.005
REFUSED_S = 0.2
"""Wait after a refused connection. The simulator itself does not wait at all: thousands of attempts a second."""


@dataclass(frozen=True)
class Telemetry:
    """What the simulator reports of itself, in its own units."""

    steering_angle_deg: float
    """Angle of the front wheels, -25 left .. 25 right, degrees."""
    throttle: float
    """0 .. 1."""
    speed_mph: float
    jpeg: bytes
    """The front camera's picture, JPEG, 320 x 160."""


class BadAnswerError(Exception):
    """An answer over which the simulator drops the connection."""


class UdacityClient:
    """Connects, stays connected, and exchanges messages in step with the caller's frames.

    Args:
        host: Where the server is, at ``port``.
        telemetry: Asked in ``frame`` for the state to report; None while a person drives (W or S held).
        apply: Told in ``frame`` of each command: steering -1 left .. 1 right, throttle -1 (brake, reverse) .. 1.
        culture: Whose decimal separators the operating system uses, such as ``de-DE``; ``UserError`` if it is unknown.
    """

    def __init__(
        self,
        host: str,
        port: int,
        telemetry: Callable[[], Telemetry | None],
        apply: Callable[[float, float], None],
        culture: str = "en-US",
    ) -> None:
        self.host, self.port = host, port
        self.connections = 0
        """How often a connection came about; more than one means that it was lost."""
        self.sent = self.steers = 0
        self.lost = 0
        """Answers that could not be read: the simulator says nothing and does not go on asking."""
        self._telemetry, self._apply = telemetry, apply
        check_known("--locale", culture, NUMBER_FORMATS)
        self._culture = NUMBER_FORMATS[culture]
        self._steering = self._throttle = 0.0
        self._link: WebSocketSharp | None = None
        self._ping_due = math.inf
        self._events: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._something = Event()
        self._closing = Event()
        self._thread = Thread(target=self._run, name="udacity-client", daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    __enter__ = start

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connected(self) -> bool:
        return self._link is not None

    def frame(self) -> None:
        """One ``Update()`` of its main loop, a rendered frame: each command is carried out, answered by the state."""
        self._something.clear()
        if time.monotonic() >= self._ping_due:
            self._ping_due = math.inf
            self._send("2")
        for _ in range(self._events.qsize()):
            name, data = self._events.get()
            if name in ("open", "manual") or (name == "steer" and self._steer(data)):
                self._report()

    def wait(self, timeout_s: float) -> bool:
        """Wait until the next ``frame`` has something to do; False if nothing came. For clients without a clock."""
        return self._something.wait(timeout_s)

    def close(self) -> None:
        """Quit: Socket.IO DISCONNECT, Engine.IO CLOSE, websocket CLOSE."""
        self._closing.set()
        self._send("41")
        self._send("1")
        if (link := self._link) is not None:
            link.close()
        if self._thread.is_alive():
            self._thread.join(15)

    def _steer(self, data: Any) -> bool:
        """Carry out a command; False where it made the simulator's handler throw, which nobody notices."""
        try:
            # Steering counts even if the throttle then turns out to be unreadable.
            self._steering = clamped(self._culture.parse(data["steering_angle"]))
            self._apply(self._steering, self._throttle)
            self._throttle = clamped(self._culture.parse(data["throttle"]))
            self._apply(self._steering, self._throttle)
        except (KeyError, TypeError, ValueError):
            self.lost += 1
            return False
        self.steers += 1
        return True

    def _report(self) -> None:
        state = self._telemetry()
        if state is None:
            self._send('42["telemetry",null]')
        else:
            n4 = self._culture.n4
            self._send(
                f'42["telemetry",{{"steering_angle":"{n4(state.steering_angle_deg)}","throttle":"{n4(state.throttle)}",'
                f'"speed":"{n4(state.speed_mph)}","image":"{base64.b64encode(state.jpeg).decode()}"}}]'
            )
        self.sent += 1

    def _send(self, text: str) -> None:
        """Send, or lose what is to be sent: without a connection the simulator only writes to its log."""
        if (link := self._link) is not None:
            try:
                link.send(text)
            except OSError:
                link.abort()

    def _run(self) -> None:
        """Connect again and again, and take in what comes; runs in a thread of its own."""
        while not self._closing.is_set():
            try:
                link = WebSocketSharp(self.host, self.port, PATH)
            except OSError:
                self._closing.wait(REFUSED_S)
                continue
            self._link, self._ping_due = link, 0.0
            self.connections += 1
            self._event("open", None)
            with suppress(OSError, ValueError, BadAnswerError):
                while (message := link.receive()) is not None:
                    self._take(link, *message)
            self._link = None
            link.abort()
            self._closing.wait(RECONNECT_S)

    def _take(self, link: WebSocketSharp, kind: int, payload: bytes) -> None:
        """One Engine.IO packet, as it comes off the wire."""
        if kind != TEXT:
            raise BadAnswerError("binary data")
        text = payload.decode()
        if text.startswith("0"):
            # "open" a second time: one for the websocket, one for Engine.IO.
            self._event("open", None)
        elif text.startswith("2"):
            link.send("3" + text[1:])
        elif text.startswith("3"):
            self._ping_due = time.monotonic() + PING_INTERVAL_S
            self._something.set()
        elif text.startswith("42"):
            self._event(*event_of(text))
        elif text.startswith(("45", "46")):
            raise BadAnswerError("a binary event")

    def _event(self, name: str, data: Any) -> None:
        self._events.put((name, data))
        self._something.set()


def event_of(text: str) -> tuple[str, Any]:
    """Name and argument of a Socket.IO event; ``BadAnswerError`` if that is more than one object."""
    event = re.fullmatch(r"42(?:/[^,]*,)?[0-9]*(\[.*)", text, re.DOTALL)
    if event is None:
        raise BadAnswerError("an event that is no array")
    name, *arguments = json.loads(event[1]) or [None]
    if not isinstance(name, str) or [type(argument) for argument in arguments] not in ([], [dict]):
        raise BadAnswerError("an event that is not a name and at most one object")
    return name, arguments[0] if arguments else None


def clamped(value: float) -> float:
    """``value`` within -1 .. 1, as the car's ``Move`` does it."""
    return max(-1.0, min(1.0, value))
