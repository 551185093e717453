"""What-if questions are answered in a process of their own, that the drive loses no time by them.

The process begins when a page that may ask is opened, has less claim on the cores (``nice``), ends with this one, and
is begun anew if it dies. Short questions are answered between two steps of a ghost's drive.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Lock, Thread
from typing import Any

from nacdrive.common.errors import UserError
from nacdrive.common.parallel import Worker, lower_priority, start_worker
from nacdrive.extras.what_if.what_if import Moment, WhatIf

MOST_WAITING = 64
"""Questions of all viewers together that are not answered yet."""


@dataclass(frozen=True)
class WhatIfSource:
    """Whom to ask, and what the page should know of it."""

    load: Callable[[], WhatIf]
    """Called in the other process; pickles."""
    window: int
    """Frames that the policy remembers."""
    ghost: bool
    """Whether the world can be driven once more."""
    expert: bool = False
    """Whether an expert knows its tracks."""

    def describe(self) -> dict[str, Any]:
        """For the page, as plain JSON."""
        return {"window": self.window, "ghost": self.ghost, "expert": self.expert}


@dataclass(frozen=True)
class Question:
    """``ask`` is decide, occlusion, ghost, or lap (of ``who``: expert or driven)."""

    ask: str
    moment: Moment
    edits: list[dict[str, Any]]
    seconds: float = 10.0
    who: str = "expert"


Reply = Callable[[dict[str, Any]], None]


class WhatIfProcess:
    """Asks ``source.load()`` in a process of its own; safe to use from several threads."""

    def __init__(self, source: WhatIfSource) -> None:
        self.source = source
        self._lock, self._sending = Lock(), Lock()
        self._tickets = itertools.count(1)
        self._waiting: dict[int, Reply] = {}
        self._worker: Worker | None = None
        self._closed = False

    def begin(self) -> None:
        """Load what answers, that the first question need not wait for it."""
        with self._lock:
            if not self._closed:
                self._begin()

    def ask(self, question: Question, reply: Reply) -> int:
        """Ask; ``reply`` is called in another thread, the last time with ``"done": True``. Returns a ticket."""
        with self._lock:
            ticket = next(self._tickets)
            busy = self._closed or len(self._waiting) >= MOST_WAITING
            if not busy:
                self._begin()
                self._waiting[ticket] = reply
        if busy:
            reply({"error": "too many questions at once: ask again in a moment.", "done": True})
        else:
            self._send((ticket, question))
        return ticket

    def cancel(self, ticket: int) -> None:
        with self._lock:
            wanted = self._waiting.pop(ticket, None) is not None
        if wanted:
            self._send((ticket, None))

    def close(self) -> None:
        """End the process, in the middle of an answer too."""
        with self._lock:
            self._closed = True
            worker = self._worker
            self._waiting.clear()
        if worker is not None:
            worker.process.terminate()
            worker.join()

    def _begin(self) -> None:
        if self._worker is None:
            self._worker = start_worker(answer_questions, self.source.load, name="nacdrive-what-if")
            Thread(target=self._read, args=(self._worker,), name="nacdrive-what-if", daemon=True).start()

    def _send(self, message: Any) -> None:
        # Under a lock of its own: whoever reads the answers must never wait for a question to be taken in.
        worker = self._worker
        with self._sending, suppress(OSError):
            # If the process has died, the reader tells everybody.
            if worker is not None:
                worker.pipe.send(message)

    def _read(self, worker: Worker) -> None:
        while True:
            try:
                ticket, answer = worker.pipe.recv()
            except (EOFError, OSError):
                break
            with self._lock:
                reply = self._waiting.pop(ticket, None) if answer.get("done") else self._waiting.get(ticket)
            if reply is not None:
                reply(answer)
        with self._lock:
            lost, self._waiting = list(self._waiting.values()), {}
            self._worker = None
        for reply in lost:
            reply({"error": "the process that answers has ended: ask again.", "done": True})


def answer_questions(pipe: Connection, load: Callable[[], WhatIf]) -> None:
    """The other process: answer until the pipe closes."""
    lower_priority()
    drives: dict[int, Iterator[dict[str, Any]]] = {}
    what_if = load()
    while True:
        while pipe.poll(0 if drives else None):
            ticket, question = pipe.recv()
            if question is None:
                drives.pop(ticket, None)
            elif question.ask in ("decide", "occlusion"):
                pipe.send((ticket, next(pieces(what_if, question))))
            else:
                drives[ticket] = pieces(what_if, question)
        for ticket, drive in list(drives.items())[:1]:
            if piece := next(drive):
                pipe.send((ticket, piece))
            # The next one's turn, that nobody waits for the end of another's drive.
            del drives[ticket]
            if not piece.get("done"):
                drives[ticket] = drive


def pieces(what_if: WhatIf, question: Question) -> Iterator[dict[str, Any]]:
    """The pieces of an answer, one of a short one; ``"done": True`` with the last, or the sentence of what is wrong."""
    try:
        if question.ask == "ghost":
            for piece in what_if.ghost(question.moment, question.edits, question.seconds):
                yield {**piece, "done": True} if "effect" in piece else piece
        elif question.ask == "lap":
            yield from what_if.lap(question.moment, question.who)
        else:
            ask = what_if.decide if question.ask == "decide" else what_if.occlusion
            yield {**ask(question.moment, question.edits), "done": True}
    except (UserError, ValueError) as error:
        yield {"error": str(error), "done": True}
