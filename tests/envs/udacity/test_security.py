"""What strangers may do on the simulator's port while a car is driven: nothing to the car, little to the machine."""

from __future__ import annotations

import base64
import json
import select
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from io import BytesIO

import pytest
import socketio
from PIL import Image

from nacdrive.common.action import Action
from nacdrive.envs.udacity import UdacityEnv, protocol
from nacdrive.envs.udacity.protocol import LARGEST_MESSAGE, MOST_SESSIONS, MOST_UNSENT, STRANGERS_MESSAGE
from nacdrive.envs.udacity.telemetry import BadTelemetryError, picture
from nacdrive.extras.simulator.client import PATH
from nacdrive.extras.simulator.websocket_sharp import CONTINUATION, TEXT, WebSocketSharp
from tests.helpers.udacity_loop import drive
from tests.helpers.udacity_simulators import PICTURE, Simulator, jpeg, steer_by_speed, until

HANDSHAKE = (
    "GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: {host}\r\n{more}Upgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def report(**changed: str) -> str:
    data = {"steering_angle": "0.0000", "throttle": "0.0000", "speed": "1.0000"}
    data["image"] = base64.b64encode(PICTURE).decode()
    return '42["telemetry",' + json.dumps({**data, **changed}) + "]"


def answer_to(port: int, request: str) -> str:
    with socket.create_connection(("127.0.0.1", port), 120) as raw:
        raw.sendall(request.encode())
        return raw.recv(100).decode("latin-1").splitlines()[0]


def test_an_unfinished_message_is_bounded_whatever_its_fragments(driven, simulator) -> None:
    loop = driven()
    car = simulator(loop)
    assert car.drives()
    link = WebSocketSharp("127.0.0.1", loop.env.port, PATH)
    sent = 0
    with suppress(OSError):
        link._write(TEXT, b"4", last=False)
        while sent < LARGEST_MESSAGE:
            link._write(CONTINUATION, b"x" * 60_000, last=False)
            sent += 60_000
    # What is on its way in buffers when the connection is closed counts as sent.
    assert STRANGERS_MESSAGE - 60_000 < sent < STRANGERS_MESSAGE + (16 << 20)
    link.abort()
    assert car.drives() and car.client.connections == 1


def test_the_simulators_own_messages_are_bounded_too(driven, simulator, monkeypatch) -> None:
    largest = 2 * STRANGERS_MESSAGE
    monkeypatch.setattr(protocol, "LARGEST_MESSAGE", largest)
    car = simulator(driven())
    assert car.drives()
    with suppress(OSError):
        car.client._send("4" + "x" * (largest - 1000))
    assert car.drives() and car.client.connections == 1, "this one is just let through"
    car.client._send("4" + "x" * (largest + 1000))
    assert until(lambda: car.client.connections == 2) and car.drives()


def test_messages_that_wait_to_be_handled_are_bounded() -> None:
    from nacdrive.envs.udacity.protocol import Backlog

    class Websocket:
        connected = True
        max_message_size = LARGEST_MESSAGE

    backlog = Backlog(Websocket(), [])
    backlog.append("x" * LARGEST_MESSAGE)
    adding = threading.Thread(target=backlog.append, args=("y" * 1000,), daemon=True)
    adding.start()
    time.sleep(0.1)
    assert len(backlog) == 1 and adding.is_alive(), "nothing more is read"
    backlog.pop(0)
    adding.join(120)
    assert backlog == ["y" * 1000]


@pytest.mark.parametrize(
    ("host", "more", "status"),
    [
        ("127.0.0.1:{port}", "", 101),
        ("localhost:{port}", "", 101),
        ("[::1]:{port}", "", 101),
        ("localhost:{port}", "Origin: http://localhost:{port}\r\n", 101),
        ("evil.com:{port}", "Origin: http://evil.com:{port}\r\n", 403),
        ("evil.com:{port}", "", 403),
        ("localhost:{port}", "Origin: http://evil.com\r\n", 403),
        ("localhost:{port}", "Origin: http://localhost\r\n", 403),
        ("localhost:{port}", "Origin: null\r\n", 403),
        ("localhost:{port}", "Sec-Fetch-Site: cross-site\r\n", 403),
    ],
)
def test_only_programs_and_pages_of_this_machine_get_in(lasting, host: str, more: str, status: int) -> None:
    port = lasting.env.port
    request = HANDSHAKE.format(host=host, more=more).replace("{port}", str(port))
    assert f" {status} " in answer_to(port, request)


@pytest.fixture(scope="module")
def open_port() -> Iterator[int]:
    """A port of an environment that serves other machines too."""
    with drive(UdacityEnv(host="0.0.0.0", port=0), steer_by_speed) as loop:
        yield loop.env.port


@pytest.mark.parametrize(
    ("host", "more", "status"),
    [
        ("192.0.2.7:{port}", "", 101),
        ("192.0.2.7:{port}", "Origin: http://192.0.2.7:{port}\r\n", 101),
        ("a-name-of-this-machine:{port}", "", 101),
        ("evil.com:{port}", "Origin: http://evil.com:{port}\r\n", 403),
        ("127.0.0.1.nip.io:{port}", "Origin: http://127.0.0.1.nip.io:{port}\r\n", 403),
    ],
)
def test_pages_whose_name_points_here_stay_out_of_an_open_port_too(
    open_port: int, host: str, more: str, status: int
) -> None:
    request = HANDSHAKE.format(host=host, more=more).replace("{port}", str(open_port))
    assert f" {status} " in answer_to(open_port, request)


def test_strangers_cannot_take_the_simulators_place(driven, simulator, lines, capfd, monkeypatch) -> None:
    loop = driven()
    port = loop.env.port
    most = MOST_SESSIONS // 4
    monkeypatch.setattr(protocol, "MOST_SESSIONS", most)
    for _ in range(most + 20):
        assert " 200 " in answer_to(port, "GET /socket.io/?EIO=4&transport=polling HTTP/1.1\r\nHost: localhost\r\n\r\n")
    car = simulator(loop)
    assert car.drives()
    for _ in range(20):
        answer_to(port, "GET /socket.io/?EIO=4&transport=polling HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert car.drives() and car.client.connections == 1, "who is driven makes way for nobody"
    assert lines.told("makes way") and capfd.readouterr().err == ""


def test_a_client_of_today_is_not_taken_for_the_simulator(driven, lines) -> None:
    with socketio.SimpleClient() as client:
        client.connect(f"http://127.0.0.1:{driven().env.port}", transports=["websocket"])
        assert client.call("status", timeout=120)["simulator"] is False
    assert lines.told("that is not the simulator") and not lines.told("The simulator has connected")


@pytest.mark.parametrize(
    "wrong",
    [("Host: {host}\r\n", ""), ("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", ""), ("Host: {host}", "Host: [")],
    ids=["no host", "no key", "no address"],
)
def test_a_handshake_that_fails_leaves_nothing_and_prints_nothing(driven, lines, capfd, wrong) -> None:
    env = driven().env
    request = HANDSHAKE.replace(*wrong).format(host="localhost", more="")
    for _ in range(20):
        assert " 101 " not in answer_to(env.port, request)
    assert until(lambda: not env._server._sio.eio.sockets)
    assert capfd.readouterr().err == "" and len(lines) < 20


def test_other_sites_neither_poll_nor_read_the_landing_page(driven) -> None:
    address = f"http://127.0.0.1:{driven().env.port}"
    for path in ("/", "/socket.io/?EIO=4&transport=polling"):
        for headers in ({"Host": "evil.com"}, {"Origin": "http://evil.com"}, {"Sec-Fetch-Site": "same-site"}):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(urllib.request.Request(address + path, headers=headers), timeout=120)
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    urllib.request.urlopen(urllib.request.Request(f"{address}/", headers=followed), timeout=120).close()


UNSOUND = {
    "silent": [],
    "ping": ["2"],
    "no picture": [report(image="%%%")],
    "no speed": [report(speed="fast")],
    "empty": ['42["telemetry",{}]'],
    "manual": ['42["telemetry",null]'],
}


def test_who_has_reported_nothing_sound_takes_over_from_nobody(driven, simulator) -> None:
    loop = driven()
    car = simulator(loop)
    car.speed_mph = 20.0
    assert car.drives()
    for kind, said in UNSOUND.items():
        link = WebSocketSharp("127.0.0.1", loop.env.port, PATH)
        for text in said:
            for _ in range(3):
                link.send(text)
        assert car.drives(15) and not loop.endings, kind
        # A busy machine may keep its pictures waiting, and it is braked meanwhile; one that is not driven stays braked.
        assert until(lambda: car.commands[-1][1] > 0), kind
        link.abort()


def test_connections_that_have_ended_leave_no_threads(driven, simulator) -> None:
    loop = driven()
    car = simulator(loop)
    assert car.drives()
    before = threading.active_count()
    for number in range(24):
        link = WebSocketSharp("127.0.0.1", loop.env.port, PATH)
        link.send("40" if number % 2 else "2")
        link.close()
    assert until(lambda: threading.active_count() <= before + 2), threading.enumerate()
    assert car.drives()


def test_a_client_is_still_asked_for_a_sign_of_life(driven) -> None:
    loop = driven()
    loop.env._server._sio.eio.ping_interval = 0.3
    link = WebSocketSharp("127.0.0.1", loop.env.port, PATH)
    link.send("40")
    asked = 0
    while asked < 3:
        _, payload = link.receive() or (0, b"")
        assert payload
        if payload == b"2":
            asked += 1
            link.send("3")
    link.abort()


@pytest.mark.parametrize("version", [3, 4])
def test_a_clock_that_is_set_parts_no_client(driven, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = driven()
    loop.env._server._sio.eio.ping_interval = 0.3
    link = WebSocketSharp("127.0.0.1", loop.env.port, PATH.replace("EIO=4", f"EIO={version}"))
    link.send({3: "2", 4: "40"}[version])
    # By now it has said that it lives, or is asked whether it does.
    awaited = {3: b"3", 4: b"2"}[version]
    while (link.receive() or (0, b""))[1] != awaited:
        pass
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600)
    link.send('421["status",{}]')
    assert until(lambda: (link.receive() or (0, b""))[1].startswith(b"431["))
    link.abort()


def test_one_that_reads_no_answers_is_disconnected(driven, simulator, lines, monkeypatch) -> None:
    most = MOST_UNSENT // 10
    monkeypatch.setattr(protocol, "MOST_UNSENT", most)
    loop = driven()
    car = simulator(loop)
    assert car.drives()
    link = WebSocketSharp("127.0.0.1", loop.env.port, PATH)
    link.send("40")
    with suppress(OSError):
        for number in range(4000 * most):
            link.send(f'42{number}["status",{{}}]')
            if lines.told("does not read"):
                break
    assert lines.told("does not read")
    link.abort()
    assert car.drives()


def test_a_request_that_does_not_come_is_not_waited_for(driven, monkeypatch: pytest.MonkeyPatch) -> None:
    from nacdrive.common.net import ImpatientHandler

    monkeypatch.setattr(ImpatientHandler, "timeout", 0.3)
    with socket.create_connection(("127.0.0.1", driven().env.port), 120) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: local")
        assert raw.recv(100) == b""


def test_a_request_that_trickles_in_is_not_waited_for(driven, monkeypatch: pytest.MonkeyPatch) -> None:
    from nacdrive.common.net import ImpatientHandler

    monkeypatch.setattr(ImpatientHandler, "timeout", 1.0)
    with socket.create_connection(("127.0.0.1", driven().env.port), 120) as raw, suppress(OSError):
        raw.sendall(b"GET / HTTP/1.1\r\nHost: ")
        # A byte now and then keeps no connection open.
        assert until(lambda: raw.send(b"x") and select.select([raw], [], [], 0.05)[0], 120)
        assert raw.recv(100) == b""


def bomb(chunk: bytes, data: bytes) -> bytes:
    """A PNG of the right size with one more chunk."""
    buffer = BytesIO()
    Image.new("RGB", (320, 160)).save(buffer, "PNG")
    whole = buffer.getvalue()
    extra = struct.pack("!I", len(data)) + chunk + data + struct.pack("!I", zlib.crc32(chunk + data))
    return whole[:33] + extra + whole[33:]


def header_of(width: int, height: int) -> bytes:
    data = struct.pack("!IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack("!I", 13) + b"IHDR" + data + struct.pack("!I", zlib.crc32(b"IHDR" + data))


def progressive() -> bytes:
    buffer = BytesIO()
    Image.open(BytesIO(PICTURE)).save(buffer, "JPEG", progressive=True)
    return buffer.getvalue()


BOMBS: dict[str, Callable[[], bytes]] = {
    # Made where it is thrown: to press so much together takes a while.
    "text": cache(lambda: bomb(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(8 << 20)))),
    "pixels": lambda: header_of(60_000, 60_000),
    "scans": progressive,
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_picture_that_unpacks_to_too_much_is_a_bad_picture(kind: str) -> None:
    began = time.process_time()
    with pytest.raises(BadTelemetryError, match="camera image"):
        picture(base64.b64encode(BOMBS[kind]()).decode())
    assert time.process_time() - began < 10


@pytest.mark.parametrize("kind", BOMBS)
def test_it_is_answered_as_any_lost_picture(driven, simulator, lines, kind: str) -> None:
    car = simulator(driven(lambda *_: Action(0.4, 0.6, 0.0)))
    car.speed_mph = 20.0
    assert car.drives()
    car.picture = BOMBS[kind]()
    assert until(lambda: car.commands[-1] == (0.4, 0.0)), "held first"
    assert until(lambda: car.commands[-1] == (0.0, -1.0)), "then braked"
    assert not lines.told("Fault")
    car.picture = jpeg(seed=1)
    assert until(lambda: car.commands[-1] == (0.4, 0.6))


def test_no_line_is_long_and_malformed_requests_print_nothing(driven, lines, capfd) -> None:
    port = driven().env.port
    for nonsense in (
        "GET /" + "x" * 50_000 + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "\x16\x03\x01" * 1000 + "\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", port), 120) as raw, suppress(OSError):
            raw.sendall(nonsense.encode("latin-1"))
            raw.settimeout(1)
            raw.recv(10_000)
    with suppress(socketio.exceptions.ConnectionError), socketio.SimpleClient() as client:
        client.connect(f"http://127.0.0.1:{port}")
        client.emit("y" * 10_000, {})
        client.call("status", timeout=120)
    assert lines and max(map(len, lines)) < 350
    assert capfd.readouterr().err == ""


def test_what_comes_on_a_connection_that_was_upgraded_is_no_request(driven, capfd) -> None:
    port = driven().env.port
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port), 120) as raw:
            # The line lies in the reader of requests until the websocket has ended.
            raw.sendall(HANDSHAKE.format(host="localhost", more="").encode() + b"\x16\x03\x01\r\n\r\n")
            assert raw.recv(1 << 16).startswith(b"HTTP/1.1 101")
            raw.sendall(b"\x88\x82\x00\x00\x00\x00\x03\xe8")
            with suppress(ConnectionError):
                while raw.recv(1 << 16):
                    pass
    answer_to(port, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert capfd.readouterr().err == ""


def test_a_client_that_goes_is_not_called_the_simulator(driven, lines) -> None:
    loop = driven()
    with socketio.SimpleClient() as client:
        client.connect(f"http://127.0.0.1:{loop.env.port}")
        client.call("status", timeout=120)
    link = WebSocketSharp("127.0.0.1", loop.env.port, PATH)
    link.send("2")
    link.close()
    with Simulator(loop.env.port) as car:
        assert car.drives()
        assert not lines.told("has gone")
    assert until(lambda: lines.told("The simulator has gone"))
