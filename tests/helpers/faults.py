"""A process that is killed, or whose disk is full, at one of the things that it does to files."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
KILLED = 9


def changes_files(event: str, args: tuple[Any, ...], folder: Path) -> bool:
    """Whether an audited event changes something below ``folder``."""
    if event not in CHANGES or not isinstance(args[0], (str, bytes, Path)):
        return False
    writes = event != "open" or (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return bool(writes) and Path(os.fsdecode(args[0])).is_relative_to(folder)


def run_with_fault(work: Callable[[], object], folder: Path, at: int, fault: str) -> int:
    """Run ``work`` in a child that is killed, or has no space left, at change number ``at`` of files in ``folder``.

    Returns:
        Exit code: 0 if the work was done before, ``KILLED``, 3 for any exception.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    count = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        if not changes_files(event, args, folder):
            return
        count += 1
        if fault == "kill" and count > at:
            os._exit(KILLED)
        # Only what takes space fails, and goes on failing: cleaning up must do without.
        if fault == "full" and count > at and event in ("open", "os.mkdir"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fsdecode(args[0]))

    sys.addaudithook(hook)
    try:
        work()
    except BaseException:
        os._exit(3)
    os._exit(0)
