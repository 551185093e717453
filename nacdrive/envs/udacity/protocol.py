"""Sessions in the Udacity simulator's dialect, beside modern ones, on one port.

The first packet of a session decides. Modern clients open with CONNECT; the simulator, which claims Engine.IO 4 but
talks Engine.IO 3 and Socket.IO 2, opens with a PING or an EVENT. It is fed the CONNECT that it never sends, so that
everything above sees an ordinary client. Without this, python-socketio 5 accepts the simulator and ignores it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

import engineio
import socketio
from engineio import packet
from engineio.socket import Socket

OLD_CLIENT = "nacdrive.engineio3"
"""Key in a session's environ: it asked for Engine.IO 3."""


class LegacySocket(Socket):  # type: ignore[misc]
    """An Engine.IO session that also speaks the simulator's dialect."""

    opened = False
    simulator = False
    """True for a client that never sends CONNECT: the simulator."""
    old = False
    """True for a client that asked for Engine.IO 3, such as socket.io-client 2."""

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
                self.last_ping = time.time() + self.server.ping_interval
            self.send(packet.Packet(packet.PONG, pkt.data or None))
        else:
            super().receive(pkt)

    def connect(self) -> None:
        """Do as if the client had sent CONNECT."""
        super().receive(packet.Packet(packet.MESSAGE, "0"))

    def send(self, pkt: packet.Packet) -> None:
        """Send a packet; CONNECT without the session's name, which Socket.IO 2 does not expect."""
        if (self.simulator or self.old) and pkt.packet_type == packet.MESSAGE and str(pkt.data).startswith("0{"):
            pkt = packet.Packet(packet.MESSAGE, "0")
        super().send(pkt)

    def schedule_ping(self) -> None:
        """Ask for a sign of life after a while, but not clients of Engine.IO 3, which give one by themselves."""
        if not self.old:
            super().schedule_ping()

    def _websocket_handler(self, ws: Any) -> Any:
        try:
            return super()._websocket_handler(ws)
        except (ValueError, TypeError, IndexError, OSError) as error:
            # Something that is no Engine.IO packet at all; the session would otherwise linger until it times out.
            self.server.logger.warning("a client sent what is no Engine.IO packet (%s): it is disconnected", error)
            self.queue.put(None)
            self.close(wait=False, abort=True)
            return []


class LegacyEngine(engineio.Server):  # type: ignore[misc]
    """Lets clients of Engine.IO 3 in where they come by websocket; their polling speaks another format."""

    def handle_request(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Serve one request; one for Engine.IO 3 is relabelled and marked."""
        query = parse_qs(environ.get("QUERY_STRING", ""))
        if query.get("EIO") == ["3"] and "sid" not in query:
            if query.get("transport") == ["websocket"]:
                environ["QUERY_STRING"] = environ["QUERY_STRING"].replace("EIO=3", "EIO=4")
                environ[OLD_CLIENT] = True
            else:
                self.logger.warning(
                    "a client of Socket.IO 2 came by polling: give it transports: ['websocket'], or use version 4"
                )
        answer: Iterable[bytes] = super().handle_request(environ, start_response)
        return answer


class LegacyServer(socketio.Server):  # type: ignore[misc]
    """A Socket.IO server for modern clients and for the simulator."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.eio.on("connect", self._adopt)

    def _engineio_server_class(self) -> type[engineio.Server]:
        return LegacyEngine

    def _adopt(self, eio_sid: str, environ: dict[str, Any]) -> Any:
        session = self.eio.sockets[eio_sid]
        session.__class__ = LegacySocket
        accepted = self._handle_eio_connect(eio_sid, environ)
        if environ.get(OLD_CLIENT):
            session.old = session.opened = True
            session.connect()
        return accepted

    def session_of(self, sid: str) -> LegacySocket | None:
        """The Engine.IO session of a Socket.IO client; None once it has gone."""
        try:
            found = self.eio.sockets.get(self.manager.eio_sid_from_sid(sid, "/"))
        except KeyError:
            return None
        return found if isinstance(found, LegacySocket) else None
