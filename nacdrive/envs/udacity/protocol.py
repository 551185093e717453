"""Sessions in the Udacity simulator's dialect, beside modern ones, on one port.

The first packet of a session decides. Modern clients open with CONNECT; the simulator, which claims Engine.IO 4 but
talks Engine.IO 3 and Socket.IO 2, opens with a PING or an EVENT. It is fed the CONNECT that it never sends, so that
everything above sees an ordinary client. Without this, python-socketio 5 accepts the simulator and ignores it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

import engineio
import socketio
from engineio import packet
from engineio.socket import Socket
from wsproto.utilities import LocalProtocolError

SESSION = "nacdrive.session"
"""Key in the environ of the request that a session began with: the session."""
OLD_CLIENT = "nacdrive.engineio3"
"""Key in a session's environ: it asked for Engine.IO 3."""
LARGEST_MESSAGE = 32 << 20
"""Bytes. Larger than any telemetry, so that even an absurd one is answered rather than the connection closed."""
STRANGERS_MESSAGE = 1 << 20
"""Bytes of the same while a client has not reported as the simulator does: many of them can be under way."""
MOST_UNSENT = 1000
"""Packets that a client may leave unread; the simulator reads each within a frame."""
MOST_SESSIONS = 200
"""Connected clients; each takes three threads."""


class LegacySocket(Socket):  # type: ignore[misc]
    """An Engine.IO session that also speaks the simulator's dialect."""

    opened = False
    simulator = False
    """True for a client that never sends CONNECT: the simulator."""
    old = False
    """True for a client that asked for Engine.IO 3, such as socket.io-client 2."""
    largest_message = STRANGERS_MESSAGE
    """Bytes of a message, finished or not."""
    websocket: Any = None
    """simple-websocket's end of the connection, where that serves it."""
    connection: Any = None
    """The socket of a websocket."""
    ping_due: float | None = None
    """When it is to be asked for a sign of life, in ``time.monotonic()`` seconds."""

    def receive(self, pkt: packet.Packet) -> None:
        """Take in a packet; a PING is answered, as Engine.IO 3 wants it."""
        if not self.opened and pkt.packet_type in (packet.PING, packet.MESSAGE):
            self.opened = True
            if not self.old and (pkt.packet_type == packet.PING or not str(pkt.data).startswith("0")):
                self.simulator = True
                self.connect()
        if pkt.packet_type == packet.PING:
            if self.old:
                # Such a client pings by itself and would time out on being asked: its PINGs are its signs of life.
                self.last_ping = time.monotonic() + self.server.ping_interval
            self.send(packet.Packet(packet.PONG, pkt.data or None))
        else:
            super().receive(pkt)
        if self.server.async_mode == "eventlet":
            # A green thread keeps its turn while there is something to read: one busy client would starve the others.
            self.server.sleep(0)

    def connect(self) -> None:
        """Do as if the client had sent CONNECT."""
        super().receive(packet.Packet(packet.MESSAGE, "0"))

    def send(self, pkt: packet.Packet) -> None:
        """Send a packet; CONNECT without the session's name, which Socket.IO 2 does not expect."""
        if (self.simulator or self.old) and pkt.packet_type == packet.MESSAGE and str(pkt.data).startswith("0{"):
            pkt = packet.Packet(packet.MESSAGE, "0")
        if self.queue.qsize() > MOST_UNSENT:
            if not self.closing and not self.closed:
                self.server.logger.warning("a client does not read what it is answered: it is disconnected")
                self.close(wait=False, abort=True)
            return
        super().send(pkt)

    def check_ping_timeout(self) -> bool:
        """As Engine.IO's, by a clock that nobody sets: who has time left loses none where the day's time jumps."""
        asked_s = self.last_ping
        if asked_s and not self.closed and time.monotonic() - asked_s <= self.server.ping_timeout:
            return True
        return bool(super().check_ping_timeout())

    def schedule_ping(self) -> None:
        """Ask for a sign of life after a while, but not clients of Engine.IO 3, which give one by themselves.

        Engine.IO would let a thread sleep until then, which outlives the connection.
        """
        if self.last_ping and not self.old:
            self.last_ping, self.ping_due = None, time.monotonic() + self.server.ping_interval

    def trust(self) -> None:
        """Let it send large messages from now on."""
        self.largest_message = LARGEST_MESSAGE
        if self.websocket is not None:
            self.websocket.max_message_size = LARGEST_MESSAGE

    def hang_up(self) -> None:
        """End the connection at once and forget the session."""
        self.server.sockets.pop(self.sid, None)
        self.close(wait=False, abort=True)
        if self.connection is not None:
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def _websocket_handler(self, ws: Any) -> Any:
        bound_messages(self, ws)
        try:
            return super()._websocket_handler(ws)
        except (ValueError, TypeError, IndexError, OSError) as error:
            # Something that is no Engine.IO packet at all; the session would otherwise linger until it times out.
            self.server.logger.warning("a client sent what is no Engine.IO packet (%s): it is disconnected", error)
            self.queue.put(None)
            self.close(wait=False, abort=True)
            return []
        finally:
            self.server.sockets.pop(self.sid, None)
            if self.websocket is not None:
                # It is part of a circle of references: what it holds would wait for the garbage collector.
                self.websocket.incoming_message = None
                self.websocket.input_buffer = []


def bound_messages(session: LegacySocket, ws: Any) -> None:
    """Close a websocket whose message exceeds the session's largest, finished or not, in however many fragments.

    Engine.IO looks at the size of finished messages only. What has come and waits to be handled is bounded too.
    """
    if not hasattr(ws, "ws"):
        session.connection = ws.socket
        ws.Message = bounded_message(session, ws.Message)
        return
    session.websocket = websocket = ws.ws
    session.connection = websocket.sock
    websocket.max_message_size = session.largest_message
    websocket.input_buffer = Backlog(websocket, websocket.input_buffer)
    close = websocket.sock.close

    def close_and_wake() -> None:
        # simple-websocket wakes up its reader before it says that the connection is closed: one that is quick goes
        # back to sleep, for ever, and the client with it.
        close()
        websocket.event.set()

    websocket.sock.close = close_and_wake
    close_frame = ws.close

    def close_once() -> None:
        with suppress(LocalProtocolError):
            close_frame()

    # One that was closed for a message too large is closing already; said again, that is a traceback.
    ws.close = close_once


class Backlog(list[Any]):
    """Messages of one client that wait to be handled: while they are many, nothing more is read from it."""

    def __init__(self, websocket: Any, messages: Iterable[Any]) -> None:
        super().__init__(messages)
        self._websocket = websocket

    def append(self, message: Any) -> None:
        """Add a message; waits while there is no room."""
        room = self._websocket.max_message_size - len(message)
        while self and self._websocket.connected and sum(map(len, self)) > room:
            time.sleep(0.01)
        super().append(message)


def bounded_message(session: LegacySocket, base: Any) -> Any:
    """Eventlet's class of messages, with a bound on what its fragments take."""
    from eventlet.websocket import FailedConnectionError

    class BoundedMessage(base):  # type: ignore[misc]
        taken = 0

        def push(self, data: bytes, final: bool = False) -> None:
            self.taken += len(data) + 50  # what Python takes for a bytes object, however short
            if self.taken > session.largest_message:
                raise FailedConnectionError(1009, "Message is too big")
            super().push(data, final)

    return BoundedMessage


class LegacyEngine(engineio.Server):  # type: ignore[misc]
    """Lets clients of Engine.IO 3 in where they come by websocket; their polling speaks another format."""

    def handle_request(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve one request; one for Engine.IO 3 is relabelled and marked."""
        query = parse_qs(environ.get("QUERY_STRING", ""))
        if "sid" not in query and not self._make_room():
            start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
            return [b"Too many clients.\n"]
        if query.get("EIO") == ["3"] and "sid" not in query:
            if query.get("transport") == ["websocket"]:
                environ["QUERY_STRING"] = environ["QUERY_STRING"].replace("EIO=3", "EIO=4")
                environ[OLD_CLIENT] = True
            else:
                self.logger.warning(
                    "a client of Socket.IO 2 came by polling: give it transports: ['websocket'], or use version 4"
                )
        try:
            answer: Iterable[bytes] = super().handle_request(environ, start_response)
            return answer
        finally:
            session = environ.get(SESSION)
            if session is not None and query.get("transport") == ["websocket"]:
                # Its handshake has failed, or all is over; Engine.IO would keep it for 45 s.
                session.hang_up()

    def _make_room(self) -> bool:
        """Whether one more client has a place; whoever came first and has not reported soundly makes way if need be."""
        sessions = [each for each in list(self.sockets.values()) if not each.closed]
        if len(sessions) < MOST_SESSIONS:
            return True
        for session in sessions:
            if isinstance(session, LegacySocket) and session.largest_message == STRANGERS_MESSAGE:
                self.logger.warning("%d clients are connected: the first of them makes way", MOST_SESSIONS)
                session.hang_up()
                return True
        return False


class LegacyServer(socketio.Server):  # type: ignore[misc]
    """A Socket.IO server for modern clients and for the simulator."""

    def __init__(self, **options: Any) -> None:
        # Handlers return at once, so each runs where its event came in: in order, and without a thread for each.
        super().__init__(max_http_buffer_size=LARGEST_MESSAGE, async_handlers=False, **options)
        self.eio.on("connect", self._adopt)

    def _engineio_server_class(self) -> type[engineio.Server]:
        return LegacyEngine

    def _adopt(self, eio_sid: str, environ: dict[str, Any]) -> Any:
        session = self.eio.sockets[eio_sid]
        session.__class__, session.last_ping = LegacySocket, time.monotonic()
        environ[SESSION] = session
        accepted = self._handle_eio_connect(eio_sid, environ)
        if environ.get(OLD_CLIENT):
            session.old = session.opened = True
            session.connect()
        return accepted

    def ping_clients(self) -> None:
        """Ask those for a sign of life who are due; to be called all the time."""
        now_s = time.monotonic()
        for session in list(self.eio.sockets.values()):
            if isinstance(session, LegacySocket) and session.ping_due is not None and now_s >= session.ping_due:
                session.ping_due, session.last_ping = None, time.monotonic()
                session.send(packet.Packet(packet.PING))

    def session_of(self, sid: str) -> LegacySocket | None:
        """The Engine.IO session of a Socket.IO client; None once it has gone."""
        try:
            session = self.eio.sockets.get(self.manager.eio_sid_from_sid(sid, "/"))
        except KeyError:
            return None
        return session if isinstance(session, LegacySocket) else None
