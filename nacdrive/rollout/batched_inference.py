"""Many drives at once in one process, whose drivers share one network: batched inference.

A network takes hardly longer for sixteen frames than for one. Each drive runs in a thread of its own, so that nothing
of the closed loop is written twice; the thread that asks last has the batch decided.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Generic, TypeVar

J = TypeVar("J")
R = TypeVar("R")
Q = TypeVar("Q")
A = TypeVar("A")


class Batcher(Generic[Q, A]):
    """Gathers the questions of the drives into a batch; the answers come when every drive under way has asked.

    Args:
        decide: Questions, in the order of the drives' numbers -> as many answers.
        drives: How many are under way at first.
    """

    def __init__(self, decide: Callable[[Sequence[Q]], Sequence[A]], drives: int) -> None:
        self.decide = decide
        self._under_way = drives
        self._asked: dict[int, Q] = {}
        self._answers: dict[int, A] = {}
        self._round = 0
        self._failed: BaseException | None = None
        self._changed = threading.Condition()

    def ask(self, number: int, question: Q) -> A:
        """The answer to ``question``; waits for the others to ask.

        Raises:
            RuntimeError: if another drive or the deciding has failed.
        """
        with self._changed:
            self._asked[number] = question
            now = self._round
            self._decide_if_complete()
            while self._round == now and self._failed is None:
                self._changed.wait()
            if self._failed is not None:
                raise RuntimeError("a drive beside this one has failed") from self._failed
            return self._answers[number]

    def leave(self) -> None:
        """A drive has ended and asks no more."""
        with self._changed:
            self._under_way -= 1
            self._decide_if_complete()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self._failed = self._failed or error
            self._changed.notify_all()

    def _decide_if_complete(self) -> None:
        if not self._asked or len(self._asked) < self._under_way:
            return
        # In one order whatever thread was first, so that the same drives give the same numbers to the last bit.
        numbers = sorted(self._asked)
        try:
            self._answers = dict(zip(numbers, self.decide([self._asked[number] for number in numbers]), strict=True))
        except Exception as error:
            self._failed = error
        self._asked = {}
        self._round += 1
        self._changed.notify_all()


def drive_batched(
    drive: Callable[[J, Callable[[Q], A]], R],
    jobs: Iterable[J],
    decide: Callable[[Sequence[Q]], Sequence[A]],
    at_once: int = 16,
) -> Generator[tuple[J, R], None, None]:
    """Yield each job with ``drive(job, ask)`` as soon as it is done, in the order in which they end.

    Leaving the iterator early ends the drives at their next question.

    Args:
        drive: Does a job in a thread of its own; asks ``ask(question)`` for what ``decide`` says.
        jobs: What there is to do.
        decide: Answers many questions at once.
        at_once: Most drives at the same time.

    Raises:
        Exception: what a drive or ``decide`` raised first.
    """
    waiting: queue.SimpleQueue[tuple[int, J]] = queue.SimpleQueue()
    count = 0
    for count, job in enumerate(jobs, 1):
        waiting.put((count, job))
    threads_needed = min(at_once, count)
    batcher: Batcher[Q, A] = Batcher(decide, threads_needed)
    done: queue.SimpleQueue[tuple[J, R] | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            while True:
                try:
                    number, job = waiting.get_nowait()
                except queue.Empty:
                    return
                done.put((job, drive(job, partial(batcher.ask, number))))
        except BaseException as error:
            batcher.fail(error)
            done.put(error)
        finally:
            batcher.leave()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(threads_needed)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(count):
            outcome = done.get()
            if isinstance(outcome, BaseException):
                raise batcher._failed or outcome
            yield outcome
    finally:
        batcher.fail(RuntimeError("nobody waits for the drives any more"))
        for thread in threads:
            thread.join()
