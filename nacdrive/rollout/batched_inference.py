"""Many drives at once in one process, whose drivers share one network: batched inference.

A network takes hardly longer for sixteen frames than for one. Each drive runs in a thread of its own, so that nothing
of the closed loop is written twice; the thread that asks last has the batch decided.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import Generic, TypeVar

J = TypeVar("J")
R = TypeVar("R")
Q = TypeVar("Q")
A = TypeVar("A")


class Batcher(Generic[Q, A]):
    """Gathers the questions of the drives into a batch; the answers come when every drive under way has asked.

    ``decide`` answers questions in the order of the drives' numbers; ``at_once`` of so many ``drives`` are under way.
    """

    def __init__(self, decide: Callable[[Sequence[Q]], Sequence[A]], drives: int, at_once: int) -> None:
        self.decide, self.at_once = decide, at_once
        self.failed: BaseException | None = None
        self._left = drives
        self._asked: dict[int, Q] = {}
        self._answers: dict[int, A] = {}
        self._round = 0
        self._changed = threading.Condition()

    def ask(self, number: int, question: Q) -> A:
        """The answer to ``question``, once the others have asked too; ``RuntimeError`` if something has failed."""
        with self._changed:
            self._asked[number] = question
            now = self._round
            self._decide_if_complete()
            while self._round == now and self.failed is None:
                self._changed.wait()
            if self.failed is not None:
                raise RuntimeError("a drive beside this one has failed") from self.failed
            return self._answers[number]

    def end(self) -> None:
        """A drive has ended and asks no more; another one takes its place while there is one."""
        with self._changed:
            self._left -= 1
            self._decide_if_complete()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self.failed = self.failed or error
            self._changed.notify_all()

    def _decide_if_complete(self) -> None:
        if not self._asked or len(self._asked) < min(self.at_once, self._left):
            return
        # In one order whatever thread was first, so that the same drives give the same numbers to the last bit.
        numbers = sorted(self._asked)
        try:
            self._answers = dict(zip(numbers, self.decide([self._asked[number] for number in numbers]), strict=True))
        except Exception as error:
            self.failed = error
        self._asked = {}
        self._round += 1
        self._changed.notify_all()


def drive_batched(
    drive: Callable[[J, Callable[[Q], A]], R],
    jobs: Iterable[J],
    decide: Callable[[Sequence[Q]], Sequence[A]],
    at_once: int = 16,
) -> list[R]:
    """What ``drive(job, ask)`` returns for each job, in their order; ``ask(question)`` is what ``decide`` says.

    At most ``at_once`` drive at the same time. What a drive or ``decide`` raises first, or Ctrl-C, ends all of them at
    their next question.
    """
    numbered = list(enumerate(jobs))
    batcher: Batcher[Q, A] = Batcher(decide, len(numbered), at_once)

    def work(number: int, job: J) -> R:
        try:
            return drive(job, partial(batcher.ask, number))
        except BaseException as error:
            batcher.fail(error)
            raise
        finally:
            batcher.end()

    with ThreadPoolExecutor(at_once) as pool:
        try:
            driving = [pool.submit(work, number, job) for number, job in numbered]
            for done in as_completed(driving):
                if (error := done.exception()) is not None:
                    raise batcher.failed or error
            return [done.result() for done in driving]
        finally:
            batcher.fail(RuntimeError("nobody waits for the drives any more"))
            pool.shutdown(cancel_futures=True)
