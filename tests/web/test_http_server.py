"""The page's port: nobody holds it by connections that say nothing, and what has died says so and goes on."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from nacdrive.common.net import ImpatientHandler
from nacdrive.common.paths import find_model
from nacdrive.models import load_policy
from nacdrive.web import Card, LiveServer, http_server
from nacdrive.web.http_server import MOST_CONNECTIONS
from tests.helpers.ticks import make_tick
from tests.web.test_auth import UPGRADE
from tests.web.test_stream import join


def holds(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def connect(server: LiveServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), 120)


def page_of(server: LiveServer) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("GET", "/")
    return connection.getresponse().status


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    with suppress(TimeoutError):
        try:
            return connection.recv(1) == b""
        except ConnectionError:
            return True
    return False


def test_idle_connections_take_a_bounded_number_of_threads_and_are_closed(
    monkeypatch: pytest.MonkeyPatch, server: LiveServer
) -> None:
    monkeypatch.setattr(ImpatientHandler, "timeout", 1.0)
    before = threading.active_count()
    idle = [connect(server) for _ in range(300)]
    time.sleep(0.5)
    assert threading.active_count() - before <= MOST_CONNECTIONS
    holds(lambda: all(is_closed(one) for one in idle))
    holds(lambda: threading.active_count() <= before + 1)
    assert page_of(server) == 200


def test_a_request_that_comes_byte_by_byte_is_cut_off(monkeypatch: pytest.MonkeyPatch, server: LiveServer) -> None:
    monkeypatch.setattr(ImpatientHandler, "timeout", 1.0)
    slow = connect(server)
    with pytest.raises(ConnectionError):
        for letter in "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + "X" * 1000:
            slow.sendall(letter.encode())
            time.sleep(0.05)
    assert page_of(server) == 200


def test_a_viewer_who_only_watches_stays(monkeypatch: pytest.MonkeyPatch, server: LiveServer) -> None:
    monkeypatch.setattr(ImpatientHandler, "timeout", 0.5)
    viewer = join(server)
    holds(lambda: server.viewers == 1)
    time.sleep(2)
    server.publish(make_tick(0))
    assert viewer.receive(120) is not None
    assert server.viewers == 1


def test_a_page_whose_thread_died_says_so_and_answers_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], server: LiveServer
) -> None:
    server.publish(make_tick(0))

    def break_once() -> None:
        monkeypatch.undo()
        raise RuntimeError("broken")

    assert server._server is not None
    monkeypatch.setattr(server._server, "service_actions", break_once)
    holds(lambda: "nacdrive-page has ended (RuntimeError: broken) and is started again" in capsys.readouterr().out)
    assert page_of(server) == 200
    events = [event["text"] for event in server._state._lanes[0].events]
    assert any("nacdrive-page has ended" in text for text in events)


def get(server: LiveServer, path: str, **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
    connection.request("GET", path, headers={"Accept-Encoding": "gzip, br", **headers})
    answer = connection.getresponse()
    return answer, answer.read()


def test_texts_come_as_gzip_and_not_again_while_they_are_the_same(server: LiveServer) -> None:
    _, plain = get(server, "/page.js", **{"Accept-Encoding": "identity"})
    answer, packed = get(server, "/page.js")
    assert answer.headers["Content-Encoding"] == "gzip" and "Accept-Encoding" in answer.headers["Vary"]
    assert gzip.decompress(packed) == plain and len(packed) < len(plain) / 2
    again, nothing = get(server, "/page.js", **{"If-None-Match": answer.headers["ETag"]})
    assert (again.status, nothing) == (304, b"")


def test_the_first_decision_waits_for_four_files_that_the_page_names_and_for_less_than_80_kb() -> None:
    policy = load_policy(find_model("nac_steady.pt", "carracing"))
    neurons = {"k": np.zeros((4, 12, 16)), "inter": np.zeros((4, 12, 48)), "command": np.zeros((4, 12, 32))}
    with LiveServer(port=0, circuit=policy.circuit(), cards=[Card("tracks")]) as server:
        for step in range(300):
            server.publish(make_tick(step, neurons=neurons))
        answers = {"/": get(server, "/")[1]}
        names = re.findall(r' (?:src|href)="([^"]+)"', gzip.decompress(answers["/"]).decode())
        assert set(names) == {"page.css", "js/first_stream.js", "page.js", "icon.svg"}
        answers |= {name: get(server, f"/{name}")[1] for name in names}
        viewer = join(server)
        stream = [viewer.receive(120) for _ in range(2)]
    assert sum(map(len, [*answers.values(), *stream])) < 80_000
    assert "edges" not in json.loads(stream[0])["circuit"]


def test_a_machine_without_a_network_is_called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    # A socket may not connect to all machines at once unless it asks for that.
    monkeypatch.setattr(http_server, "ELSEWHERE", ("255.255.255.255", 9))
    assert http_server.machine_address() == socket.gethostname()


def test_what_comes_on_a_connection_that_was_upgraded_is_no_request(server: LiveServer) -> None:
    with connect(server) as browser:
        head = {"Host": f"127.0.0.1:{server.port}", "Origin": f"http://127.0.0.1:{server.port}"}
        head |= {name.replace("_", "-"): value for name, value in UPGRADE.items()}
        browser.sendall("\r\n".join(["GET /stream HTTP/1.1", *map(": ".join, head.items()), "", ""]).encode())
        assert browser.recv(1 << 16).startswith(b"HTTP/1.1 101")
        server.stop()
        sent = b""
        while not sent.endswith(b"\x88\x02\x03\xe8"):
            byte = browser.recv(1)
            assert byte, "closed without a farewell"
            sent += byte
        after = b""
        # A browser masks its answer to the farewell as it likes, so that it may read as a line.
        with suppress(ConnectionError):
            for _ in range(5):
                browser.sendall(b"\x88\x82\n\n\n\n\x09\xe2")
                time.sleep(0.05)
                after += browser.recv(1 << 16)
    assert after == b""
