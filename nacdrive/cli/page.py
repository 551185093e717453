"""The live page beside a verb: started, announced, and stopped when the verb is done."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nacdrive.web import LiveServer


def open_page(stack: ExitStack, host: str, port: int, title: str, **more: Any) -> LiveServer:
    """A page that is served until ``stack`` ends; ``more`` goes to ``LiveServer``. Prints its address."""
    from nacdrive.web import LiveServer

    page = LiveServer(host, port, title, **more)
    print(f"watch at {page.start()}", flush=True)
    stack.callback(page.stop)
    return page
