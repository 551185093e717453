"""The card of the tracks that were driven: on the page of every drive, in the dialog over the run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from nacdrive.cli.page import open_page as open_server
from nacdrive.web import DriveResult
from tests.helpers.ticks import make_tick
from tests.web.test_page import until


def test_every_track_that_was_driven_stands_in_the_dialog_once(open_page: Callable[..., Any]) -> None:
    with ExitStack() as stack:
        server = open_server(stack, "127.0.0.1", 0, "steady on CarRacing")
        page = open_page(server.url)
        until(page, "document.getElementById('tracks') !== null")
        for episode, progress in enumerate((0.5, 1.0)):
            server.publish(make_tick(0, episode=episode))
            result = DriveResult(700 + episode, "lap finished", 12.5 + episode, 910.0, progress)
            server.result(result)
            until(page, f"document.querySelectorAll('#tracks tbody tr').length === {episode + 1}")
            server.status("counting")  # what is known of all changes, the result does not
        page.keyboard.press("a")
        cells = "[...document.querySelectorAll('#tracks tbody tr:first-child td')].map((cell) => cell.textContent)"
        assert page.evaluate(cells) == ["701", "lap finished", "100 %", "910.0", "13.5 s"]
        assert page.is_visible("#tracks")
        assert page.evaluate("document.querySelectorAll('#tracks tbody tr').length") == 2
        assert page.faults == []
