"""A real Chromium for the page's tests; without one they skip and say why."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nacdrive.web import LiveServer

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'nacdrive[dev]'")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("needs a Chromium: apt-get install chromium")
    with api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages that collect what goes wrong on them in ``page.faults``."""
    contexts = []

    def opened(url: str, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.faults = []
        page.on("console", lambda said: page.faults.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def server() -> Iterator[LiveServer]:
    with LiveServer(port=0, title="nac_steady on a bending road") as live:
        yield live
