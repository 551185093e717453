"""One browser's connection for what-if questions: JSON texts in, JSON texts out. It changes nothing that drives.

A question is ``{"id": 7, "ask": "decide", "moment": {"seq": 812}, "edits": [...]}``; ``ask`` may also be ``occlusion``,
``ghost`` (with ``seconds``), ``lap`` (with ``who``) and ``stop``, which ends the ghost or lap of this ``id``. Answers
carry the ``id``. Anything that is no question ends the connection; too many are answered with an ``error``.
"""

from __future__ import annotations

import itertools
import json
import math
from queue import Empty, Full, Queue
from threading import Thread
from typing import Any

from simple_websocket import ConnectionClosed, Server

from nacdrive.common.errors import UserError
from nacdrive.models.interventions import edits_from_json
from nacdrive.web.allowance import Allowance
from nacdrive.web.moments import FindMoment, named
from nacdrive.web.stream_socket import RECEIVE_TIMEOUT_S, accept
from nacdrive.web.what_if_process import Question, WhatIfProcess

LARGEST_QUESTION = 8192
"""Bytes."""
MOST_AT_ONCE = 4
"""Unanswered questions of one viewer."""
MOST_UNSENT = 512
"""Answers that wait for a slow browser before it is let go."""
MOST_VIEWERS = 32


class Asker:
    """One browser: its unanswered questions, its allowance, and the answers that are on their way to it."""

    def __init__(self, find: dict[int, tuple[FindMoment, WhatIfProcess]]) -> None:
        self._find = find
        self.allowance = Allowance()
        self.answers: Queue[str | None] = Queue(MOST_UNSENT)
        self._tickets: dict[int, tuple[WhatIfProcess, int]] = {}
        self.overrun = False

    def hear(self, text: str | bytes) -> bool:
        """Take in a message; False if it is no question."""
        asked = question_of(text)
        if asked is None:
            return False
        number, ask, body = asked
        if ask == "stop":
            self._drop(number)
            return True
        if not self.allowance.take(1.0 if ask == "decide" else 4.0) or len(self._tickets) >= MOST_AT_ONCE:
            self.say(number, {"error": "too many questions at once: ask again in a moment.", "done": True})
            return True
        self._drop(number)
        try:
            edits_from_json(body["edits"])
        except UserError as error:
            self.say(number, {"error": str(error), "done": True})
            return True
        find, process = self._find.get(body["moment"].get("run", 0), (None, None))
        moment = find(body["moment"]) if find is not None else None
        if moment is None or process is None:
            self.say(number, {"error": "this moment is not kept any more: hold a later one.", "done": True})
            return True
        question = Question(ask, moment, body["edits"], body["seconds"], body["who"])
        # Kept first: the answer may be there before ``ask`` returns.
        self._tickets[number] = (process, 0)
        ticket = process.ask(question, lambda found: self.say(number, found))
        if number in self._tickets:
            self._tickets[number] = (process, ticket)
        return True

    def say(self, number: int, found: dict[str, Any]) -> None:
        """Send an answer, or a part of one."""
        if found.get("done"):
            self._tickets.pop(number, None)
        try:
            self.answers.put_nowait(json.dumps(finite({"id": number, **found}), allow_nan=False))
        except Full:
            self.overrun = True

    def leave(self) -> None:
        """Nobody waits for the answers any more."""
        for number in list(self._tickets):
            self._drop(number)
        try:
            self.answers.put_nowait(None)
        except Full:
            self.answers.get()
            self.answers.put(None)

    def _drop(self, number: int) -> None:
        process, ticket = self._tickets.pop(number, (None, 0))
        if process is not None:
            process.cancel(ticket)


class WhatIfDesk:
    """Where browsers ask: for every run its moments and its process."""

    def __init__(self, runs: dict[int, tuple[FindMoment, WhatIfProcess]]) -> None:
        self.runs = runs
        self._viewers = itertools.count()
        self._inside: set[int] = set()
        self.closed = False

    def serve(self, environ: dict[str, Any]) -> None:
        """Answer one browser until it leaves or the run ends; runs in its own thread."""
        socket, viewer = accept(environ, LARGEST_QUESTION), next(self._viewers)
        if len(self._inside) >= MOST_VIEWERS:
            socket.close(message="too many viewers ask")
            return
        self._inside.add(viewer)
        asker = Asker(self.runs)
        sender = Thread(target=send_all, args=(socket, asker), name="nacdrive-answers", daemon=True)
        sender.start()
        try:
            while not self.closed and not asker.overrun:
                text = socket.receive(timeout=RECEIVE_TIMEOUT_S)
                if text is not None and not asker.hear(text):
                    socket.close(message="not a question")
                    break
        except (ConnectionClosed, OSError):
            # The browser has gone, with or without a word.
            pass
        finally:
            self._inside.discard(viewer)
            asker.leave()

    def close(self) -> None:
        """End all processes."""
        self.closed = True
        for _, process in self.runs.values():
            process.close()


def send_all(socket: Server, asker: Asker) -> None:
    """Send answers until the browser leaves; a thread of its own, that a slow one delays nobody."""
    while True:
        try:
            answer = asker.answers.get(timeout=60)
        except Empty:
            continue
        if answer is None:
            return
        try:
            socket.send(answer)
        except (ConnectionClosed, OSError):
            return


def question_of(text: str | bytes) -> tuple[int, str, dict[str, Any]] | None:
    """Number, ask and contents of a question; None if it is none."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or type(given.get("id")) is not int or not 0 <= given["id"] < 2**53:
        return None
    if not given.keys() <= {"id", "ask", "moment", "edits", "seconds", "who"}:
        return None
    ask = given.get("ask")
    if ask == "stop":
        return given["id"], "stop", {}
    moment, seconds, who = named(given.get("moment")), given.get("seconds", 10.0), given.get("who", "expert")
    if ask not in ("decide", "occlusion", "ghost", "lap") or moment is None or who not in ("expert", "driven"):
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= 60:
        return None
    if not isinstance(given.get("edits", []), list):
        return None
    return given["id"], ask, {"moment": moment, "edits": given.get("edits", []), "seconds": seconds, "who": who}


def finite(found: Any) -> Any:
    """For JSON, which has no NaN."""
    if isinstance(found, float):
        return found if math.isfinite(found) else None
    if isinstance(found, dict):
        return {key: finite(value) for key, value in found.items()}
    return [finite(value) for value in found] if isinstance(found, list) else found
