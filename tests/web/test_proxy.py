"""A page behind a proxy that puts a path before its addresses, as those of notebooks on servers do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from nacdrive.drivers.human import HumanControl
from nacdrive.extras.what_if import WhatIfCard
from nacdrive.web import Card, LiveServer
from nacdrive.web.episode_cache import EpisodeCache
from nacdrive.web.replay import ReplayServer
from tests.helpers.ticks import make_tick
from tests.helpers.what_if import SOURCE
from tests.web.test_http_server import holds
from tests.web.test_page import serve, shows, text, until
from tests.web.test_replay import run_of

PREFIX = "/user/ada/proxy/8765"


def pipe(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes until one of both has ended."""
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for one in (source, sink):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def forward(browser: socket.socket, port: int, strays: list[str]) -> None:
    """One request of a connection and its answer, or a WebSocket; what lies outside ``PREFIX`` is 404 and a stray."""
    request = b""
    while b"\r\n\r\n" not in request:
        if not (data := browser.recv(65536)):
            return
        request += data
    head, _, body = request.partition(b"\r\n\r\n")
    method, path, rest = head.decode("latin-1").split(" ", 2)
    if not path.startswith(f"{PREFIX}/"):
        strays.append(path)
        browser.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        browser.close()
        return
    lines = rest.split("\r\n")
    if "upgrade: websocket" not in rest.lower():
        lines = [line for line in lines if not line.lower().startswith("connection:")] + ["Connection: close"]
    server = socket.create_connection(("127.0.0.1", port), 120)
    first = f"{method} {path.removeprefix(PREFIX)} "
    server.sendall((first + "\r\n".join(lines)).encode("latin-1") + b"\r\n\r\n" + body)
    threading.Thread(target=pipe, args=(browser, server), daemon=True).start()
    pipe(server, browser)


@contextmanager
def proxy(port: int) -> Iterator[tuple[str, list[str]]]:
    """The page's address behind a proxy, and what was asked for outside it."""
    strays: list[str] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=forward, args=(listener.accept()[0], port, strays), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}{PREFIX}/", strays
        listener.shutdown(socket.SHUT_RDWR)


def test_a_live_page_behind_a_path_streams_operates_and_has_its_cards(open_page: Callable[..., Any]) -> None:
    cards, control = [Card("tracks"), WhatIfCard.of_drive(SOURCE, 128)], HumanControl()
    with serve(cards=cards, control=control) as server, proxy(server.port) as (url, strays):
        for step in range(5):
            server.publish(tick := make_tick(step))
        page = open_page(url, alone=True)
        shows(page, tick)
        page.click("#show-neurons")
        until(
            page, "performance.getEntriesByName(document.baseURI + 'edges').some((one) => one.responseStatus === 200)"
        )
        styles = "[...document.styleSheets].map((one) => one.href).some((href) => href.endsWith('what_if.css'))"
        until(page, styles)
        page.click("#controls .take")
        holds(lambda: control.poll(wait=False).keys is not None)
        assert not page.faults and not strays


def test_a_token_leads_back_to_the_page_behind_its_path(open_page: Callable[..., Any]) -> None:
    with LiveServer(host="0.0.0.0", port=0, announce=lambda _: None) as server, proxy(server.port) as (url, strays):
        server.publish(tick := make_tick(3))
        page = open_page(f"{url}?{server.url.partition('?')[2]}", alone=True)
        shows(page, tick)
        assert page.url == url and not strays


def test_a_replay_behind_a_path_shows_its_episodes(open_page: Callable[..., Any]) -> None:
    cache = EpisodeCache([run_of("steady")])
    with ReplayServer(cache, port=0) as server, proxy(server.port) as (url, strays):
        page = open_page(url, alone=True)
        until(page, "/\\d/.test(document.getElementById('step').textContent)")
        page.keyboard.press("End")
        until(page, "document.getElementById('step').textContent === '59'")
        assert text(page, "#state") and not strays
