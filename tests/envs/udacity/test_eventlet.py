"""The other engine, in a process of its own: eventlet is imported there, and nothing of it stays here."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from nacdrive.envs.udacity.engines import apply_mask

SCRIPT = """
import sys, time
from contextlib import ExitStack
import socketio
from tests.helpers.udacity_simulators import PICTURE, Simulator, jpeg, until
from nacdrive.common.action import Action
from nacdrive.envs.udacity import UdacityEnv
from tests.helpers.udacity_loop import drive

lines, slow = [], []
def decide(frame, t_s, speed_mps):
    time.sleep(slow[0] if slow else 0.0)
    return Action(0.25, 0.5, 0.0)

with ExitStack() as stack:
    env = UdacityEnv(port=0, engine="eventlet", on_event=lines.append)
    stack.enter_context(drive(env, decide))
    car = stack.enter_context(Simulator(env.port))
    car.picture = jpeg(detailed=True)
    car.speed_mph = 20.0
    assert car.drives() and car.commands[-1] == (0.25, 0.5)
    for transports in (["polling", "websocket"], ["websocket"]):
        with socketio.SimpleClient() as client:
            client.connect(f"http://127.0.0.1:{env.port}", transports=transports)
            # A decision that takes long holds up nobody, and the car is braked meanwhile.
            slow.append(0.8)
            assert until(lambda: env.safety), lines
            began = time.monotonic()
            for _ in range(10):
                assert client.call("status", timeout=10)["simulator"] is True
            slow.clear()
            assert until(lambda: car.commands[-1] == (0.25, 0.5))
    assert any("still at work" in line for line in lines), lines
    german = stack.enter_context(Simulator(env.port, "de-DE"))
    assert german.drives() and german.commands[-1] == (0.25, 0.5) and german.client.lost == 0
    assert until(lambda: car.commands[-1] == (0.0, -1.0)), "the older one is braked"
    german.picture = b"no picture"
    assert until(lambda: german.commands[-1] == (0.25, 0.0) or german.commands[-1] == (0.0, 0.0))
    german.picture = PICTURE
    german.client._link.abort()
    assert until(lambda: german.client.connections == 2) and german.drives()
    assert not any("Fault" in line for line in lines), lines
again = UdacityEnv(port=env.port, engine="eventlet")
with drive(again, decide):
    with Simulator(again.port) as car:
        assert car.drives()
print("all well")
"""


STRANGERS = """
import select, socket, threading, time
from contextlib import suppress
from tests.helpers.udacity_loop import drive
from tests.helpers.udacity_simulators import PICTURE, Simulator, until
from nacdrive.common.action import Action
from nacdrive.envs.udacity import UdacityEnv
from nacdrive.extras.simulator.client import PATH
from nacdrive.envs.udacity import engines
from nacdrive.envs.udacity.protocol import LARGEST_MESSAGE, MOST_SESSIONS, STRANGERS_MESSAGE
from nacdrive.extras.simulator.websocket_sharp import CONTINUATION, TEXT, WebSocketSharp

lines = []
env = UdacityEnv(port=0, engine="eventlet", on_event=lines.append)
with drive(env, lambda *_: Action(0.25, 0.5, 0.0)), Simulator(env.port) as car:
    assert car.drives()
    for size in (60_000, 1000):
        link, sent = WebSocketSharp("127.0.0.1", env.port, PATH), 0
        with suppress(OSError):
            link._write(TEXT, b"4", last=False)
            while sent < LARGEST_MESSAGE:
                link._write(CONTINUATION, b"x" * size, last=False)
                sent += size
        assert sent < STRANGERS_MESSAGE + (16 << 20), sent
        link.abort()
        assert car.drives()
    for nonsense in (b"GET /" + b"x" * 50_000 + b" HTTP/1.1", b"\\x16\\x03\\x01" * 1000, b"GET x"):
        with socket.create_connection(("127.0.0.1", env.port), 10) as raw, suppress(OSError):
            raw.sendall(nonsense + b"\\r\\n\\r\\n")
            raw.settimeout(1)
            raw.recv(10_000)
    # Nor do those that fill all places, that fail to shake hands, or whose request trickles in.
    polling = b"GET /socket.io/?EIO=4&transport=polling HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
    more = b"Connection: Upgrade\\r\\nUpgrade: websocket\\r\\n"
    upgrade = polling.replace(b"polling", b"websocket").replace(b"Host", more + b"Host")
    for request, times in ((polling, MOST_SESSIONS + 20), (upgrade, 20)):
        for _ in range(times):
            with socket.create_connection(("127.0.0.1", env.port), 60) as raw:
                raw.sendall(request)
                assert raw.recv(100)
    assert len(env._server._sio.eio.sockets) <= MOST_SESSIONS
    with Simulator(env.port) as other:
        assert other.drives()
    assert until(lambda: car.drives(1))
    engines.REQUEST_S = 1.0
    with socket.create_connection(("127.0.0.1", env.port), 60) as raw, suppress(OSError):
        raw.sendall(b"GET / HTTP/1.1\\r\\nHost: ")
        assert until(lambda: raw.send(b"x") and select.select([raw], [], [], 0.05)[0], 60)
        assert raw.recv(100) == b""
    # A client that sends without end does not keep the simulator from its turn.
    flood = WebSocketSharp("127.0.0.1", env.port, PATH)
    flood.send("40")
    ending = threading.Event()
    def flooding():
        with suppress(OSError):
            while not ending.is_set():
                flood.send('42["telemetry",{"x":"' + "y" * 5000 + '"}]')
    thread = threading.Thread(target=flooding)
    thread.start()
    gaps, last, steers = [], time.monotonic(), car.client.steers
    until_s = last + 3
    while time.monotonic() < until_s:
        time.sleep(0.005)
        if car.client.steers > steers:
            gaps.append(time.monotonic() - last)
            last, steers = time.monotonic(), car.client.steers
    ending.set()
    flood.abort()
    thread.join()
    assert max(gaps) < 1.0 and not any("Fault" in line for line in lines), (max(gaps), lines)
    assert car.client.connections == 1 and max(map(len, lines)) < 350
print("all well")
"""


@pytest.mark.parametrize(
    "script", [SCRIPT, pytest.param(STRANGERS, marks=pytest.mark.nightly)], ids=["drives", "strangers"]
)
def test_eventlet_serves_as_the_threads_do(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "all well", done.stdout + done.stderr
    # Nor does its deprecation warning reach the user.
    assert done.stderr == ""


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 125, 1016])
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 6])
def test_fast_unmasking_is_eventlets_own(size: int, offset: int) -> None:
    with ExitStack() as stack:
        import warnings

        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        from eventlet.websocket import RFC6455WebSocket
    data, mask = bytes((7 * i + 3) % 256 for i in range(size + 2)), (1, 200, 33, 255)
    naive = bytes(data[i] ^ mask[(offset + i) % 4] for i in range(size))
    assert apply_mask(data, mask, size, offset) == naive == RFC6455WebSocket._apply_mask(data, mask, size, offset)
