"""The emulated simulator against what was measured: its bytes, its numbers, what it does with bad answers."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from nacdrive.common.errors import UserError
from nacdrive.extras.simulator.client import Telemetry, UdacityClient
from nacdrive.extras.simulator.number_format import NUMBER_FORMATS
from nacdrive.extras.simulator.websocket_sharp import GUID

JPEG = bytes(range(256)) * 40


class Peer:
    """The server's end of one connection, byte by byte."""

    def __init__(self, listener: socket.socket) -> None:
        self.connection = listener.accept()[0]
        self.connection.settimeout(120)
        self.stream = self.connection.makefile("rb")
        lines = []
        while line := self.stream.readline().strip().decode():
            lines.append(line)
        self.request = lines
        key = next(line.split(": ")[1] for line in lines if line.startswith("Sec-WebSocket-Key"))
        accepted = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
        self.connection.sendall(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accepted}\r\n\r\n".encode()
        )

    def frame(self) -> tuple[int, bool, bytes]:
        first, size = struct.unpack("!BB", self.stream.read(2))
        assert size & 0x80, "a client masks"
        size &= 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", self.stream.read(2))
        mask = self.stream.read(4)
        data = bytes(byte ^ mask[i % 4] for i, byte in enumerate(self.stream.read(size)))
        return first & 0x0F, bool(first & 0x80), data

    def message(self) -> str:
        parts = []
        while True:
            _, last, data = self.frame()
            parts.append(data)
            if last:
                return b"".join(parts).decode()

    def say(self, text: str, opcode: int = 1) -> None:
        data = text.encode()
        assert len(data) < 126
        self.connection.sendall(struct.pack("!BB", 0x80 | opcode, len(data)) + data)

    def gone(self) -> bool:
        """Whether the client has ended the connection without a word."""
        try:
            return self.stream.read(1) == b""
        except ConnectionError:
            return True


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        opened.settimeout(120)
        yield opened


def client_of(listener: socket.socket, culture: str = "en-US", manual: bool = False) -> tuple[UdacityClient, list[Any]]:
    applied: list[Any] = []
    state = None if manual else Telemetry(-12.5, 0.25, 1234.5, JPEG)
    client = UdacityClient(
        "127.0.0.1", listener.getsockname()[1], lambda: state, lambda *command: applied.append(command), culture
    )
    return client, applied


def frame_after(client: UdacityClient) -> None:
    """The next frame in which there is something to do."""
    assert client.wait(120)
    time.sleep(0.05)
    client.frame()


def test_the_opening_is_the_simulators_byte_for_byte(listener) -> None:
    client, _ = client_of(listener)
    with client:
        peer = Peer(listener)
        assert peer.request[0] == "GET /socket.io/?EIO=4&transport=websocket HTTP/1.1"
        assert peer.request[1] == "User-Agent: websocket-sharp/1.0"
        assert not any(line.startswith(("Origin", "Sec-WebSocket-Ext", "Sec-WebSocket-Proto")) for line in peer.request)
        peer.say('0{"sid":"x"}')
        frame_after(client)
        assert peer.frame() == (1, True, b"2"), "its own PING comes first"
        sizes = []
        last = False
        opcodes = []
        while not last:
            opcode, last, data = peer.frame()
            opcodes.append(opcode)
            sizes.append(len(data))
        assert opcodes == [1] + [0] * (len(opcodes) - 1) and set(sizes[:-1]) == {1016} and sizes[-1] <= 1016
        name, data = json.loads(peer.message().removeprefix("42"))
        assert name == "telemetry", "a second report: open fires twice"
        assert list(data) == ["steering_angle", "throttle", "speed", "image"]
        assert (data["steering_angle"], data["throttle"], data["speed"]) == ("-12.5000", "0.2500", "1,234.5000")
        assert base64.b64decode(data["image"]) == JPEG
        peer.say("2")
        assert peer.message() == "3", "a PING of the server is answered at once"
    assert [peer.message(), peer.message()] == ["41", "1"] and peer.frame()[0] == 8


def test_every_command_is_applied_and_answered_once(listener) -> None:
    client, applied = client_of(listener)
    with client:
        peer = opened(listener, client)
        peer.say('42["steer",{"steering_angle":"-0.25","throttle":"2"}]')
        frame_after(client)
        assert applied[-1] == (-0.25, 1.0) and peer.message().startswith('42["telemetry",{')
        peer.say('42["manual",{}]')
        frame_after(client)
        assert peer.message().startswith('42["telemetry",{')
        peer.say('42["other",{}]')
        peer.say('42["none"]')
        time.sleep(0.1)
        client.frame()
        assert (client.sent, client.steers) == (4, 1)


def test_a_held_key_reports_null(listener) -> None:
    client, _ = client_of(listener, manual=True)
    with client:
        peer = Peer(listener)
        frame_after(client)
        assert [peer.message(), peer.message()] == ["2", '42["telemetry",null]']


@pytest.mark.parametrize(
    ("culture", "steering", "throttle", "applied"),
    [
        ("en-US", '"0.25"', '"0.5"', [(0.25, 0.0), (0.25, 0.5)]),
        ("de-DE", '"0.25"', '"0.2"', [(1.0, 0.0), (1.0, 1.0)]),
        ("de-DE", '"0,25"', '"0,5"', [(0.25, 0.0), (0.25, 0.5)]),
        ("fr-FR", '"0.25"', '"0.5"', []),
        ("fa-IR", '"-0/25"', '"1e-05"', [(-0.25, 0.0), (-0.25, 1e-05)]),
        ("en-US", "0.25", "0.5", []),
        ("en-US", '"nan"', '"0"', []),
        ("en-US", '" +0.25 "', "null", [(0.25, 0.0)]),
    ],
)
def test_numbers_are_read_as_dotnet_reads_them(listener, culture, steering, throttle, applied) -> None:
    client, seen = client_of(listener, culture)
    with client:
        peer = opened(listener, client)
        sent = client.sent
        peer.say(f'42["steer",{{"steering_angle":{steering},"throttle":{throttle}}}]')
        frame_after(client)
        assert seen == applied
        # What cannot be read is swallowed: no report follows.
        complete = len(applied) == 2
        assert (client.sent - sent, client.lost) == ((1, 0) if complete else (0, 1))


@pytest.mark.parametrize(
    "bad", ['42["x","text"]', '42["x",[1]]', '42["x",{},{}]', '42["x",1]', '451-["x",{"_placeholder":true}]', "42[]"]
)
def test_an_answer_it_cannot_take_ends_the_connection_and_it_comes_back(listener, bad: str) -> None:
    client, _ = client_of(listener)
    with client:
        peer = opened(listener, client)
        peer.say(bad)
        assert peer.gone()
        opened(listener, client)
        assert client.connections == 2


def opened(listener: socket.socket, client: UdacityClient) -> Peer:
    peer = Peer(listener)
    peer.say('0{"sid":"x"}')
    frame_after(client)
    assert peer.message() == "2" and peer.message().startswith("42") and peer.message().startswith("42")
    return peer


@pytest.mark.parametrize(
    ("culture", "value", "text"),
    [
        ("en-US", -1234.5, "-1,234.5000"),
        ("de-DE", -1234.5, "-1.234,5000"),
        ("de-CH", 1234.5, "1'234.5000"),
        ("fr-FR", 1234.5, "1\u00a0234,5000"),
        ("hr-HR", -0.5, "- 0,5000"),
        ("sv-SE", -0.5, "\u22120,5000"),
        ("fa-IR", -0.5, "0/5000-"),
        ("en-US", -0.00001, "0.0000"),
    ],
)
def test_n4_is_dotnets(culture: str, value: float, text: str) -> None:
    assert NUMBER_FORMATS[culture].n4(value) == text


def test_an_unknown_culture_names_the_nearest() -> None:
    with pytest.raises(UserError, match="de-DE"):
        UdacityClient("127.0.0.1", 1, lambda: None, lambda *_: None, "de-DA")
