"""Drives that share one network."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from nacdrive.rollout.batched_inference import drive_batched


def count_up(job: int, ask: Callable[[int], int]) -> list[int]:
    """Ask ``job`` times."""
    return [ask(100 * job + i) for i in range(job)]


def test_each_drive_gets_its_own_answers_and_all_that_drive_are_asked_together() -> None:
    batches: list[list[int]] = []

    def decide(questions: Sequence[int]) -> list[int]:
        batches.append(list(questions))
        return [-question for question in questions]

    jobs = [3, 5, 2, 4]
    answers = drive_batched(count_up, jobs, decide, at_once=3)
    assert answers == [[-(100 * job + i) for i in range(job)] for job in jobs]
    # Three at once; the fourth begins when the one of two decisions has ended, in the same step.
    assert batches[:3] == [[300, 500, 200], [301, 501, 201], [302, 502, 400]]
    assert batches[3:] == [[503, 401], [504, 402], [403]]


def test_nothing_to_drive_is_no_drive() -> None:
    assert drive_batched(count_up, [], lambda questions: questions) == []


@pytest.mark.parametrize("where", ["drive", "decide"])
def test_the_first_error_ends_all_drives(where: str) -> None:
    def drive(job: int, ask: Callable[[int], int]) -> list[int]:
        if where == "drive" and job == 7:
            raise ValueError("a wheel came off")
        return count_up(job, ask)

    def decide(questions: Sequence[int]) -> Sequence[int]:
        if where == "decide":
            raise ValueError("a wheel came off")
        return questions

    before = threading.active_count()
    with pytest.raises(ValueError, match="wheel"):
        drive_batched(drive, [5, 6, 7], decide)
    assert threading.active_count() == before


def test_ctrl_c_ends_the_drives() -> None:
    def decide(questions: Sequence[int]) -> Sequence[int]:
        if 10**9 + 100 in questions:
            # A signal of the system wakes whoever waits; one of Python alone would wait for the drives to end.
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # type: ignore[arg-type]
        return questions

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        drive_batched(count_up, [1, 10**7], decide)
    # A thread that was just being started is not waited for; it ends at its next question, as the others do.
    deadline = time.monotonic() + 120
    while threading.active_count() > before:
        assert time.monotonic() < deadline, "a drive goes on"
        time.sleep(0.01)
