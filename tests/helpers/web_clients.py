"""A WebSocket client for tests of the live page."""

import threading
from functools import partial
from typing import Any

from simple_websocket import Client


class WholeClient(Client):
    """simple_websocket's client leaves a message that comes together with the handshake's answer unread.

    And its thread, unless it is a daemon, keeps Python from ending while a test's connection is open.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options, thread_class=partial(threading.Thread, daemon=True))

    def handshake(self) -> None:
        super().handshake()
        self.connected = self._handle_events()
