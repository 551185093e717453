"""A thread that a bug does not end."""

from __future__ import annotations

from nacdrive.common.lasting_thread import lasting_thread


def test_it_is_started_again_until_it_returns_and_says_so() -> None:
    lines: list[str] = []
    faults = [SystemExit(3), ValueError("a bug")]

    def run() -> None:
        if faults:
            raise faults.pop(0)

    thread = lasting_thread("a-thread", run, lines.append)
    thread.join(120)
    assert not thread.is_alive() and thread.name == "a-thread" and thread.daemon
    assert lines == [
        "The thread a-thread has ended (SystemExit: 3) and is started again.",
        "The thread a-thread has ended (ValueError: a bug) and is started again.",
    ]
