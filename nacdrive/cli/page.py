"""The live page beside a verb: started, announced, and stopped when the verb is done."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nacdrive.drivers.exported import AnyPolicy
    from nacdrive.web import Card, LiveServer
    from nacdrive.web.stream import DriveResult

CARDS: tuple[str, ...] = ("tracks",)
"""Cards of JavaScript alone on the page of every drive: folders of ``nacdrive/extras`` with a ``page/card.js``."""


def open_page(
    stack: ExitStack, host: str, port: int, title: str, cards: Sequence[Card] = (), **more: Any
) -> LiveServer:
    """A page that is served until ``stack`` ends; ``more`` goes to ``LiveServer``. Prints its address."""
    from nacdrive.web import Card, LiveServer

    page = LiveServer(host, port, title, cards=[*cards, *map(Card, CARDS)], **more)
    print(f"watch at {page.start()}", flush=True)
    stack.callback(page.stop)
    return page


@cache
def show_in_browser(url: str) -> bool:
    """Open ``url`` in a browser, once; False where nobody sits at a terminal with a screen."""
    screen = sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if not (screen and sys.stdout.isatty()) or os.environ.get("SSH_CONNECTION"):
        return False
    import webbrowser

    return webbrowser.open(url)


def network_view(policy: AnyPolicy) -> dict[str, Any]:
    """What a page says of a policy's network: options ``circuit`` and ``network_input`` of ``LiveServer``."""
    config = policy.config
    network_input = {
        "frame": (config.height, config.width),
        "rows": config.crop or (0, config.height),
        "masked": config.masked_rows,
        "size": config.input_size,
        "colours": "YUV" if config.yuv else "RGB",
    }
    return {"circuit": policy.circuit(), "network_input": network_input}


def end_card(row: Mapping[str, Any], ending: str, expert_return: float | None, following: str = "") -> DriveResult:
    """What a page says of an episode that is over; ``row`` holds the fields of its ``EpisodeResult``."""
    from nacdrive.web.stream import DriveResult

    same = {name: row[name] for name in ("episode_return", "progress", "expert_agreement")}
    return DriveResult(
        row["seed"], ending, row["simulated_s"], **same, expert_return=expert_return, following=following
    )
