"""Jobs for the process pool's tests: a worker imports them by name."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.common.parallel import report, run_jobs

prepared: list[object] = []


def prepare(*values: object) -> None:
    prepared[:] = [os.getpid(), *values]


def square(n: int) -> int:
    return n * n


def what_was_prepared(_job: object) -> list[object]:
    return list(prepared)


def pid(_job: object) -> int:
    return os.getpid()


def sleep(job: tuple[str, float]) -> str:
    name, seconds = job
    time.sleep(seconds)
    return name


def say(job: str) -> str:
    for number in range(3):
        report((job, number))
    return job.upper()


def threads(_job: object) -> tuple[int, int, str]:
    import cv2
    import torch

    return torch.get_num_threads(), cv2.getNumThreads(), os.environ["OMP_NUM_THREADS"]


def disposition(_job: object) -> tuple[bool, bool]:
    blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, set())
    return signal.getsignal(signal.SIGINT) == signal.SIG_IGN, blocked


def fail(job: str) -> str:
    if job == "user":
        raise UserError("a sentence.")
    if job == "eof":
        raise EOFError("of a file that the job read")
    if job == "odd":
        raise TwoArgumentsError("a", "b")
    if job == "unpicklable":
        return lambda: None  # type: ignore[return-value]
    if job == "die":
        os._exit(3)
    if job == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return job


class TwoArgumentsError(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


def note_and_wait(job: tuple[Path, float]) -> None:
    """Say who works by the name of a file, then work."""
    folder, seconds = job
    (folder / f"{os.getpid()}.pid").touch()
    time.sleep(seconds)


def main() -> None:
    """A command whose workers never end by themselves; printed in the main process when interrupted."""
    try:
        for _ in run_jobs(note_and_wait, [(Path(sys.argv[1]), 600.0)] * 4, workers=2):
            pass
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
