"""What happens, told in one line each, and never so often that it drowns the rest."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock

PERIOD_S = 1.0


class RateLimitedLog:
    """Passes on at most one line a second of each kind; the next one says how many were left out."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._lock = Lock()
        self._said: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def say(self, kind: str, text: str) -> None:
        """Tell ``text`` unless something of its ``kind`` was told less than a second ago."""
        now = time.monotonic()
        with self._lock:
            if now - self._said.get(kind, -PERIOD_S) < PERIOD_S:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return
            self._said[kind] = now
            more = self._left_out.pop(kind, 0)
        line = " ".join(text.split())
        self._tell(f"{line} ({more} more like this)" if more else line)

    def logger(self, name: str) -> logging.Logger:
        """A logger for a library: its warnings and errors become notices, without tracebacks."""
        logger = logging.Logger(name, logging.WARNING)
        logger.addHandler(_Lines(self, name))
        return logger


class _Lines(logging.Handler):
    def __init__(self, notices: RateLimitedLog, kind: str) -> None:
        super().__init__()
        self._notices, self._kind = notices, kind

    def emit(self, record: logging.LogRecord) -> None:
        """One line of a library's log."""
        error = record.exc_info[1] if record.exc_info else None
        why = f": {type(error).__name__}: {error}" if error else ""
        self._notices.say(self._kind, f"{self._kind}: {record.getMessage()[:200]}{why[:200]}")
