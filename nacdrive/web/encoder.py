"""Encode a Tick once, however many viewers want it, and not at all when nobody looks."""

from __future__ import annotations

from threading import Lock

from nacdrive.web.protocol import Packed, pack
from nacdrive.web.stream import Snapshot


class Encoder:
    """Runs in the thread of the first viewer that asks; the others take what it made."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seq = 0
        self._packed: Packed | None = None

    def packed(self, seen: Snapshot) -> Packed | None:
        """The shared parts of the Tick in ``seen``; None where it holds no new Tick."""
        if seen.tick is None:
            return None
        with self._lock:
            if self._packed is None or seen.seq > self._seq:
                self._packed = pack(seen.tick, seen.seq)
                self._seq = seen.seq
            # A viewer that looked before a newer Tick was encoded gets the newer one: it is the one to show.
            return self._packed
