"""Who watches a run, and whether it is over: what every state that is shown to browsers has in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition


class Viewers:
    """Counts viewers, and wakes whoever waits for news under ``_changed``."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._closed = False
        self._viewers = 0

    @property
    def closed(self) -> bool:
        """True once the run is over: viewers say goodbye."""
        return self._closed

    @property
    def viewers(self) -> int:
        return self._viewers

    @contextmanager
    def viewer(self) -> Iterator[None]:
        """Counts one viewer for as long as it stays."""
        with self._changed:
            self._viewers += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._viewers -= 1
                self._changed.notify_all()

    def wait_for_viewers(self, wanted: bool, timeout_s: float | None) -> bool:
        """Wait until somebody watches, or until nobody does if not ``wanted``; False if it took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: (self._viewers > 0) == wanted, timeout_s)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
