"""One browser's connection for what-if questions: JSON texts in, JSON texts out. It changes nothing that drives.

A question is ``{"id": 7, "ask": "decide", "moment": {"seq": 812}, "edits": [...]}``; ``ask`` may also be ``occlusion``,
``ghost`` (with ``seconds``), ``lap`` (with ``who``) and ``stop``, which ends the ghost or lap of this ``id``. Answers
carry the ``id``. Anything that is no question ends the connection; too many are answered with an ``error``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from queue import Full, Queue
from threading import Thread
from typing import Any

from simple_websocket import ConnectionClosed, Server

from nacdrive.common.errors import UserError
from nacdrive.extras.what_if.interventions import edits_from_json
from nacdrive.extras.what_if.moments import FindMoment, parse_moment
from nacdrive.extras.what_if.process import Question, WhatIfProcess
from nacdrive.web.stream_socket import RECEIVE_TIMEOUT_S, Allowance, accept

LARGEST_QUESTION = 8192
"""Bytes."""
MOST_AT_ONCE = 4
"""Unanswered questions of one viewer."""
MOST_UNSENT = 512
"""Answers that wait for a slow browser before it is let go."""

Runs = Mapping[int, tuple[FindMoment, WhatIfProcess]]
"""Of every run that is shown: how its moments are found, and whom to ask."""


class Session:
    """One browser: its unanswered questions, its allowance, and the answers that are on their way to it."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self.allowance = Allowance()
        self.answers: Queue[str | None] = Queue(MOST_UNSENT)
        self._tickets: dict[int, tuple[WhatIfProcess, int]] = {}
        self.is_overrun = False

    def receive(self, text: str | bytes) -> bool:
        """Take in a message; False if it is no question."""
        asked = question_of(text)
        if asked is None:
            return False
        number, ask, body = asked
        if ask == "stop":
            self._drop(number)
            return True
        if not self.allowance.take(1.0 if ask == "decide" else 4.0) or len(self._tickets) >= MOST_AT_ONCE:
            return self._refuse(number, "too many questions at once: ask again in a moment.")
        self._drop(number)
        try:
            edits_from_json(body["edits"])
        except UserError as error:
            return self._refuse(number, str(error))
        find, process = self._runs.get(body["moment"].get("run", 0), (None, None))
        moment = find(body["moment"]) if find is not None else None
        if moment is None or process is None:
            return self._refuse(number, "this moment is not kept any more: hold a later one.")
        question = Question(ask, moment, body["edits"], body["seconds"], body["who"])
        # Kept first: the answer may be there before ``ask`` returns.
        self._tickets[number] = (process, 0)
        ticket = process.ask(question, lambda answer: self.send(number, answer))
        if number in self._tickets:
            self._tickets[number] = (process, ticket)
        return True

    def send(self, number: int, answer: dict[str, Any]) -> None:
        if answer.get("done"):
            self._tickets.pop(number, None)
        try:
            self.answers.put_nowait(json.dumps(finite({"id": number, **answer}), allow_nan=False))
        except Full:
            self.is_overrun = True

    def close(self) -> None:
        for number in list(self._tickets):
            self._drop(number)
        try:
            self.answers.put_nowait(None)
        except Full:
            self.answers.get()
            self.answers.put(None)

    def _refuse(self, number: int, sentence: str) -> bool:
        self.send(number, {"error": sentence, "done": True})
        return True

    def _drop(self, number: int) -> None:
        process, ticket = self._tickets.pop(number, (None, 0))
        if process is not None:
            process.cancel(ticket)


def serve_questions(environ: dict[str, Any], runs: Runs, is_closed: Callable[[], bool]) -> None:
    """Answer one browser until it leaves or the run ends; runs in its own thread."""
    socket, session = accept(environ, LARGEST_QUESTION), Session(runs)
    if 0 in runs:
        runs[0][1].begin()
    Thread(target=send_all, args=(socket, session), name="nacdrive-answers", daemon=True).start()
    # The browser may go, with or without a word.
    with closing(session), suppress(ConnectionClosed, OSError):
        while not is_closed() and not session.is_overrun:
            text = socket.receive(timeout=RECEIVE_TIMEOUT_S)
            if text is not None and not session.receive(text):
                socket.close(message="not a question")
                break


def send_all(socket: Server, session: Session) -> None:
    """Send answers until the browser leaves; a thread of its own, that a slow one delays nobody."""
    # The browser may leave at any time.
    with suppress(ConnectionClosed, OSError):
        while (answer := session.answers.get()) is not None:
            socket.send(answer)


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
    moment, seconds, who = parse_moment(given.get("moment")), given.get("seconds", 10.0), given.get("who", "expert")
    edits = given.get("edits", [])
    if ask not in ("decide", "occlusion", "ghost", "lap") or moment is None or who not in ("expert", "driven"):
        return None
    if type(seconds) not in (int, float) or not 0 < seconds <= 60 or not isinstance(edits, list):
        return None
    return given["id"], ask, {"moment": moment, "edits": edits, "seconds": seconds, "who": who}


def finite(value: Any) -> Any:
    """For JSON, which has no NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    return [finite(part) for part in value] if isinstance(value, list) else value
