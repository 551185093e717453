"""The live page beside a verb: started, announced, and stopped when the verb is done."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nacdrive.drivers.exported import ExportedPolicy
    from nacdrive.models.policy import Policy
    from nacdrive.web import Card, LiveServer

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


def network_view(policy: Policy | ExportedPolicy) -> dict[str, Any]:
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
