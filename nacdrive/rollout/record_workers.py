"""Several recording processes, and the seeds that they drive."""

from __future__ import annotations

import multiprocessing as mp
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import TracebackType

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.rollout.record_worker import Failure, Frames, Job, Message, work


class RecordWorkers:
    """Processes that each drive one episode at a time. A context manager: leaving it ends them at once."""

    def __init__(self, job: Job, count: int) -> None:
        context = mp.get_context("spawn")
        self._processes: dict[Connection, SpawnProcess] = {}
        self._driving: dict[Connection, int] = {}
        with ignore_sigint():
            for _ in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(target=work, args=(theirs, job), daemon=True)
                process.start()
                theirs.close()
                self._processes[ours] = process

    def __enter__(self) -> RecordWorkers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe, process in self._processes.items():
            pipe.close()
            process.terminate()
        for process in self._processes.values():
            process.join()

    @property
    def idle(self) -> int:
        """Processes that wait for a seed."""
        return len(self._processes) - len(self._driving)

    @property
    def driving(self) -> int:
        """Episodes under way."""
        return len(self._driving)

    def drive(self, seed: int) -> None:
        """Give ``seed`` to an idle process."""
        pipe = next(pipe for pipe in self._processes if pipe not in self._driving)
        self._driving[pipe] = seed
        try:
            pipe.send(seed)
        except (BrokenPipeError, ConnectionResetError):
            # It has failed already: what it says of that is still in the pipe.
            return

    def messages(self) -> Iterator[Frames | Episode]:
        """Wait for something to happen; yields news of frames, and finished episodes.

        Raises:
            UserError: if a process cannot do the job, or died.
        """
        for ready in wait(list(self._driving)):
            assert isinstance(ready, Connection)
            try:
                message: Message = ready.recv()
            except (EOFError, ConnectionResetError) as error:
                seed, process = self._driving[ready], self._processes[ready]
                process.join()
                raise UserError(
                    f"the process that drove seed {seed} died (exit code {process.exitcode}; out of memory?): complete "
                    "episodes are kept, run the same command with --resume, with fewer --workers if it happens again."
                ) from error
            if isinstance(message, Failure):
                raise UserError(message.sentence)
            if isinstance(message, Episode):
                del self._driving[ready]
            yield message


@contextmanager
def ignore_sigint() -> Iterator[None]:
    """Processes started inside ignore Ctrl-C from their first instruction on, before they can say so themselves."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
