"""Modern Socket.IO clients, old ones and strangers on the simulator's port, while a simulator is driven."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import socketio
from engineio.exceptions import SocketIsClosedError

from tests.helpers.udacity_simulators import until

NODE = """
const {io} = (() => { const m = require('socket.io-client'); return {io: m.io || m}; })();
const socket = io(process.argv[2], {transports: JSON.parse(process.argv[3]), reconnection: false});
let answered = 0, disconnected = 0;
socket.on('disconnect', () => { disconnected++; });
socket.on('connect_error', error => { console.log(JSON.stringify({error: String(error)})); process.exit(0); });
socket.on('connect', () => {
  const ask = () => socket.emit('status', {}, answer => {
    if (++answered < 50) setTimeout(ask, 10);
    else { console.log(JSON.stringify({answered, disconnected, simulator: answer.simulator})); socket.close(); }
  });
  ask();
});
"""


@pytest.mark.parametrize("transports", [["polling", "websocket"], ["polling"], ["websocket"]], ids="-".join)
def test_python_clients_are_served_beside_a_simulator(driven, simulator, lines, transports: list[str]) -> None:
    server = driven()
    car = simulator(server)
    assert car.drives()
    gone = []
    with socketio.SimpleClient() as client:
        client.connect(f"http://127.0.0.1:{server.env.port}", transports=transports)
        client.client.on("disconnect", lambda *_: gone.append(1))
        for _ in range(10):
            assert client.call("status", timeout=120)["simulator"] is True
        assert client.transport == ("polling" if transports == ["polling"] else "websocket")
        assert not gone
    assert lines.told("not the simulator")
    assert car.drives() and car.client.connections == 1 and car.client.lost == 0


def test_a_client_that_reports_as_the_simulator_does_is_driven(driven, simulator) -> None:
    server = driven()
    from base64 import b64encode

    from tests.helpers.udacity_simulators import PICTURE

    report = {"steering_angle": "0.0", "throttle": "0.0", "speed": "10", "image": b64encode(PICTURE).decode()}
    with socketio.SimpleClient() as client:
        client.connect(f"http://127.0.0.1:{server.env.port}")
        # On a busy machine an answer may be the watchdog's or the safety stop's.
        driven = 0
        for _ in range(50):
            client.emit("telemetry", report)
            driven += client.receive(timeout=120) == ["steer", {"steering_angle": "0.100000", "throttle": "0.200000"}]
            if driven == 5:
                break
        assert driven == 5
        # The real one comes first.
        assert simulator(server).drives()


def test_a_client_that_was_sent_away_is_not_taken_for_the_simulator(driven) -> None:
    server = driven()
    with socketio.SimpleClient() as client:
        client.connect(f"http://127.0.0.1:{server.env.port}")
        (sid,) = server.env._server._sio.manager.get_participants("/", None)
        server.env._server._sio.disconnect(sid[0])
        client.client.eio.send('2["telemetry",{}]')
        time.sleep(0.2)
        assert server.env.status.startswith("Waiting")


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """npm's socket.io-client 4 and 2, each in a folder of its own."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm: apt-get install nodejs npm")
    folder = tmp_path_factory.mktemp("node")
    for version in ("4.8.1", "2.5.0"):
        place = folder / version[0]
        place.mkdir()
        (place / "package.json").write_text("{}")
        done = subprocess.run(
            ["npm", "install", "--silent", "--no-audit", "--no-fund", f"socket.io-client@{version}"],
            cwd=place,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            pytest.skip(f"npm cannot fetch socket.io-client here: {done.stderr.strip()[:200]}")
        (place / "ask.js").write_text(NODE)
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("version", "transports"),
    [("4", ["polling", "websocket"]), ("4", ["websocket"]), ("2", ["websocket"])],
    ids=["4-polling-websocket", "4-websocket", "2-websocket"],
)
def test_node_clients_are_served_beside_a_simulator(
    driven, simulator, node_modules: Path, version: str, transports: list[str]
) -> None:
    server = driven()
    car = simulator(server)
    assert car.drives()
    answer = ask_with_node(node_modules / version, server.env.port, transports)
    assert answer == {"answered": 50, "disconnected": 0, "simulator": True}
    assert car.drives() and car.client.connections == 1


@pytest.mark.nightly
def test_an_old_node_client_that_polls_is_told_what_to_do(driven, lines, node_modules: Path) -> None:
    answer = ask_with_node(node_modules / "2", driven().env.port, ["polling"])
    assert "error" in answer and lines.told("transports: ['websocket']")


def test_who_asks_as_an_old_client_polls_is_refused_and_told_what_to_do(driven, lines) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(f"http://127.0.0.1:{driven().env.port}/socket.io/?EIO=3&transport=polling", timeout=120)
    assert lines.told("transports: ['websocket']")


def ask_with_node(place: Path, port: int, transports: list[str]) -> dict[str, object]:
    command = ["node", "ask.js", f"http://127.0.0.1:{port}", json.dumps(transports)]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120)
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout.splitlines()[0])
    assert isinstance(answer, dict)
    return answer


def test_a_browser_is_told_where_it_is(driven, lines) -> None:
    server = driven()
    with urllib.request.urlopen(f"http://127.0.0.1:{server.env.port}/", timeout=120) as answer:
        assert "Autonomous Mode" in answer.read().decode()
    assert lines.told("Not the simulator, but Python-urllib")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://127.0.0.1:{server.env.port}/other", timeout=120)


def test_another_sites_page_is_refused(driven) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{driven().env.port}/socket.io/?EIO=4&transport=polling",
        headers={"Origin": "http://evil.example"},
    )
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=120)


def test_a_plain_websocket_is_named(driven, lines) -> None:
    with socket.create_connection(("127.0.0.1", driven().env.port)) as raw:
        raw.sendall(
            b"GET /workspace HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert b"404" in raw.recv(100)
    assert until(lambda: lines.told("plain websocket client"))


def test_a_simulator_that_has_gone_a_moment_ago_does_not_keep_the_port(driven, simulator) -> None:
    server = driven()
    assert simulator(server).drives()
    bridge = server.env._server

    def closed() -> bool:
        raise SocketIsClosedError

    for one in list(bridge._sio.eio.sockets.values()):
        one.check_ping_timeout = closed  # as where it closes between two lines of Engine.IO
    server.env.close()
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", bridge.port))
