"""A thread that a bug does not end for good."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread

PAUSE_S = 0.1
"""What fails at once is not begun again without end."""


def lasting_thread(name: str, run: Callable[[], None], say: Callable[[str], None]) -> Thread:
    """A daemon thread that calls ``run`` until it returns, again where it raises, after a line to ``say``."""

    def go_on() -> None:
        while True:
            try:
                run()
                return
            except BaseException as error:
                say(f"The thread {name} has ended ({type(error).__name__}: {error}) and is started again.")
                time.sleep(PAUSE_S)

    thread = Thread(target=go_on, name=name, daemon=True)
    thread.start()
    return thread
