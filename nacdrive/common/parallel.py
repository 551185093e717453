"""The one process pool: jobs and actors, in processes of this machine or on a Ray cluster."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeVar

from nacdrive.common.errors import UserError, first_line
from nacdrive.common.plugins import trust, trusted
from nacdrive.common.runs import start_method

J = TypeVar("J")
R = TypeVar("R")
Initializer = Callable[..., object]
OnMessage = Callable[[Any, Any], object]
Setup = tuple[Callable[[Any], Any], Initializer | None, tuple[Any, ...]]

END_S = 5.0
"""A worker gets so long to end by itself before it is ended."""
POLL_S = 0.5
"""Ray is asked for messages this often."""
PROBE_S = 5.0
"""A Ray cluster's port must answer within this time."""
LIBRARIES = ("OMP_NUM", "MKL_NUM", "OPENBLAS_NUM", "VECLIB_MAXIMUM")
ONE_THREAD = {"OPENCV_FOR_THREADS_NUM": "1", **{f"{name}_THREADS": "1" for name in LIBRARIES}}
"""Workers share the cores: a second thread in each makes all of them slower."""


def _ignore(message: Any) -> None:
    """Nobody listens."""


_send: Callable[[Any], object] = _ignore


def report(message: Any) -> None:
    """Send progress of the job under way to ``run_jobs(on_message=...)``; outside of a job it does nothing."""
    _send(message)


def run_jobs(
    function: Callable[[J], R],
    jobs: Iterable[J],
    *,
    workers: int,
    initializer: Initializer | None = None,
    initargs: tuple[Any, ...] = (),
    on_message: OnMessage | None = None,
    ray: str | None = None,
    on_lost: Callable[[Any, int | None], Any] | None = None,
    max_tasks_per_child: int | None = None,
    preload: Sequence[str] = (),
    gpus: float = 0,
) -> Generator[tuple[J, R], None, None]:
    """Yield each job with ``function(job)`` as soon as it is done, in the order in which they are finished.

    Workers have one thread each, ignore Ctrl-C (this process decides what it means) and end when this process ends, by
    SIGKILL too. Leaving the iterator early ends them at once, in the middle of their jobs.

    Args:
        function: Done with each job; importable by name, as all that travels to a process.
        jobs: May be endless: a job is taken only when a worker is idle, so at most ``workers`` are under way. An
            iterator that has no job now is asked again after each result.
        workers: Processes; 0 does the jobs one after the other in this process. On Ray: actors, at most one per core
            of the cluster; 0 for one per core.
        initializer: Called once in each worker, before its first job.
        initargs: Its arguments.
        on_message: Called here as ``on_message(job, message)`` for each ``report(message)`` of a job.
        ray: Address of a Ray cluster; ``local`` starts one on this machine.
        on_lost: Called as ``on_lost(job, exit_code)`` when a worker died; what it returns stands for the result, and
            another worker takes its place. Without it that is an error.
        max_tasks_per_child: Jobs after which a fresh process takes a worker's place; None for no limit. Not for Ray.
        preload: Modules that new processes find imported, where the system can fork them safely.
        gpus: GPUs that a worker needs on Ray.

    Raises:
        UserError: if a worker died, Ray is not installed or there is no cluster; or what a job raised.
        Exception: what a job raised, with the worker's traceback as its cause.
    """
    setup = (function, initializer, initargs)
    if not ray and workers == 0:
        yield from _run_here(setup, iter(jobs), on_message)
        return
    crew: _Processes | _RayActors = _Processes(preload)
    if ray:
        crew = _RayActors(ray, gpus, listening=on_message is not None)
        workers, max_tasks_per_child = min(workers or crew.cores, crew.cores), None
    waiting, idle, running = iter(jobs), list[Any](), dict[Any, J]()
    done: Counter[Any] = Counter()

    def refill() -> None:
        """Give jobs to idle workers, and start more while there are jobs and too few workers."""
        while idle or len(running) < workers:
            try:
                job = next(waiting)
            except StopIteration:
                if not crew.keeps_idle:
                    crew.dismiss(idle)
                    idle.clear()
                return
            worker = idle.pop() if idle else crew.start(packed)
            running[worker] = job
            crew.give(worker, job)

    try:
        packed = crew.pack(setup)
        refill()
        while running:
            for worker, kind, value in crew.answers(running):
                if kind == "message":
                    if on_message is not None:
                        on_message(running[worker], value)
                    continue
                if kind == "error":
                    raise _unpacked(value)
                job = running.pop(worker)
                done[worker] += 1
                if kind == "lost":
                    if on_lost is None:
                        raise _death(value)
                    value = on_lost(job, value)
                elif done[worker] == max_tasks_per_child:
                    crew.dismiss([worker])
                else:
                    idle.append(worker)
                refill()
                yield job, value
                refill()
        crew.dismiss(idle)
    finally:
        crew.close()


_made: Any = None


def _make(kind: Callable[..., Any], *arguments: Any) -> None:
    global _made
    _made = kind(*arguments)


def _call_made(method: str, job: Any) -> Any:
    return getattr(_made, method)(job)


def run_by_method(
    kind: Callable[..., Any], arguments: tuple[Any, ...], method: str, jobs: Iterable[J], **options: Any
) -> Generator[tuple[J, Any], None, None]:
    """``run_jobs`` with its ``options``: each worker makes ``kind(*arguments)``, whose ``method`` does its jobs."""
    return run_jobs(partial(_call_made, method), jobs, initializer=_make, initargs=(kind, *arguments), **options)


def _run_here(setup: Setup, jobs: Iterator[Any], on_message: OnMessage | None) -> Iterator[tuple[Any, Any]]:
    function, initializer, initargs = setup
    if initializer is not None:
        initializer(*initargs)
    for job in jobs:
        with _reporting(partial(on_message, job) if on_message is not None else _ignore):
            result = function(job)
        yield job, result


@contextmanager
def _reporting(send: Callable[[Any], object]) -> Iterator[None]:
    """``report`` sends by ``send`` inside."""
    global _send
    before, _send = _send, send
    try:
        yield
    finally:
        _send = before


def _death(exit_code: int | None) -> UserError:
    return UserError(
        f"a worker process died (exit code {exit_code}), probably for lack of memory: what is complete is kept; "
        "run the same command again (with --resume where there is that option) and with fewer --workers."
    )


@dataclass(eq=False)
class Worker:
    """One process."""

    process: BaseProcess
    pipe: Connection

    def end(self) -> None:
        self.pipe.close()
        self.process.terminate()

    def join(self) -> int | None:
        """Wait until it has gone; its exit code."""
        self.process.join(END_S)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        return self.process.exitcode


class _Processes:
    """Workers that are processes of this machine."""

    keeps_idle = True

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._preload = preload
        self._workers: list[Worker] = []

    def pack(self, setup: Setup) -> bytes:
        return bytes(ForkingPickler.dumps((*setup, trusted())))

    def start(self, packed: bytes) -> Worker:
        worker = start_worker(_work, preload=self._preload)
        self._workers.append(worker)
        # If it has died, here and below, the other end of the pipe says so soon.
        with suppress(BrokenPipeError, ConnectionResetError):
            worker.pipe.send_bytes(packed)
        return worker

    def give(self, worker: Worker, job: Any) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            worker.pipe.send(job)

    def answers(self, workers: Iterable[Worker]) -> Iterator[tuple[Worker, str, Any]]:
        """Wait for ``message``, ``result`` or ``error`` of some of ``workers``; for ``lost``, with the exit code."""
        asked = {worker.pipe: worker for worker in workers}
        for pipe in wait(list(asked)):
            worker = asked[pipe]  # type: ignore[index]
            try:
                kind, value = worker.pipe.recv()
            except (EOFError, ConnectionResetError):
                self._workers.remove(worker)
                kind, value = "lost", worker.join()
            yield worker, kind, value

    def dismiss(self, workers: Sequence[Worker]) -> None:
        for worker in workers:
            worker.pipe.close()
        for worker in workers:
            worker.join()
            self._workers.remove(worker)

    def close(self) -> None:
        for worker in self._workers:
            worker.end()
        for worker in self._workers:
            worker.join()
        self._workers = []


def start_worker(
    function: Callable[..., object], *arguments: Any, name: str | None = None, preload: Sequence[str] = ()
) -> Worker:
    """A process of its own for ``function(pipe, *arguments)``, which may talk over ``pipe`` in the middle of its work.

    Like the workers of ``run_jobs`` it has one thread, ignores Ctrl-C and ends when this process ends; ``function`` and
    ``preload`` are as there.
    """
    context = multiprocessing.get_context(start_method())
    ours, theirs = context.Pipe()
    process: BaseProcess = context.Process(  # type: ignore[attr-defined]
        target=_run_worker, args=(function, theirs, arguments), name=name, daemon=True
    )
    try:
        if start_method() == "forkserver":
            _start_forkserver(preload)
            # Ctrl-C may come while the server still imports; what it forks has SIGINT blocked, as the server itself.
            process.start()
        else:
            with sigint_blocked():
                process.start()
    except BaseException:
        ours.close()
        if process.pid is not None:
            process.terminate()
        raise
    finally:
        theirs.close()
    return Worker(process, ours)


def lower_priority() -> None:
    """Let processes that somebody waits for go first, where the system has priorities (Windows has not)."""
    if hasattr(os, "nice"):
        os.nice(5)


def _run_worker(function: Callable[..., object], pipe: Connection, arguments: tuple[Any, ...]) -> None:
    prepare_worker()
    # The other end has gone or has closed the pipe: there is nobody to work for.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        function(pipe, *arguments)


def _start_forkserver(preload: Sequence[str]) -> None:
    """Start the process that forks the workers, with SIGINT blocked from its first instruction on."""
    from multiprocessing import forkserver

    if preload:
        # Counts only before the server's start.
        forkserver.set_forkserver_preload(list(preload))
    with sigint_blocked():
        forkserver.ensure_running()


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Processes started inside have SIGINT blocked from their first instruction on; one that comes is not lost here."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    # Its start unblocks SIGINT, so it must have been before.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def prepare_worker() -> None:
    """Make this process a worker: deaf to Ctrl-C and to a closed terminal, one thread, gone when its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_exit_with_parent, name="exit with parent", daemon=True).start()
    _limit_threads()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _limit_threads() -> None:
    """One thread in each library that starts threads; what has been imported already must be told by itself."""
    os.environ |= ONE_THREAD
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(1)


def _work(pipe: Connection) -> None:
    """Body of a worker of ``run_jobs``: jobs come in, messages, results and errors go out."""
    function: Callable[[Any], Any] | None = None
    packed = pipe.recv_bytes()
    while True:
        job = pipe.recv()
        try:
            if function is None:
                # Only now, for it imports the modules of the function and must not import them with many threads.
                function = _prepared(packed)
            with _reporting(lambda message: pipe.send(("message", message))):
                answer = bytes(ForkingPickler.dumps(("result", function(job))))
        except Exception as error:
            answer = bytes(ForkingPickler.dumps(("error", _packed(error))))
        pipe.send_bytes(answer)


def _prepared(packed: bytes) -> Callable[[Any], Any]:
    """The function of the jobs, when its worker's initializer has been called."""
    function: Callable[[Any], Any]
    function, initializer, initargs, names = pickle.loads(packed)
    trust(*names)
    _limit_threads()
    if initializer is not None:
        initializer(*initargs)
    return function


class RemoteTraceback(Exception):  # noqa: N818
    """Where in a worker an error came up: the cause of the error that is raised here."""

    def __str__(self) -> str:
        return f"\n\nin a worker process:\n{self.args[0]}"


def _packed(error: Exception) -> tuple[bytes, str]:
    """An error and its traceback, so that they can travel."""
    text = "".join(traceback.format_exception(error))
    try:
        packed = pickle.dumps(error)
        pickle.loads(packed)
    except Exception:
        packed = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return packed, text


def _unpacked(packed: tuple[bytes, str]) -> Exception:
    error: Exception = pickle.loads(packed[0])
    error.__cause__ = RemoteTraceback(packed[1])
    return error


class _RayWorker:
    """An actor on the cluster. Messages are fetched while a job runs: it has a second thread for that."""

    def __init__(self, packed: bytes, path: list[str]) -> None:
        sys.path += [folder for folder in path if folder not in sys.path]
        os.environ |= ONE_THREAD
        self._packed = packed
        self._function: Callable[[Any], Any] | None = None
        self._messages: list[Any] = []

    def run(self, job: Any) -> tuple[str, Any]:
        """Do one job; prepares itself before the first."""
        try:
            if self._function is None:
                self._function = _prepared(self._packed)
            with _reporting(self._messages.append):
                return "result", self._function(job)
        except Exception as error:
            return "error", _packed(error)

    def messages(self) -> list[Any]:
        """What has been reported since the last time."""
        messages, self._messages[:] = list(self._messages), []
        return messages


def check_ray(address: str) -> None:
    """Refuse an address at which no cluster can be, within seconds and before anything is begun."""
    if importlib.util.find_spec("ray") is None:
        raise UserError("--ray needs the package ray: install it with pip install 'nacdrive[ray]'.")
    if address in ("local", "auto"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UserError(f"--ray '{address}' is no address: give HOST:PORT, ray://HOST:PORT, auto or local.")
    try:
        # Ray itself tries for minutes where nobody answers.
        socket.create_connection((host.strip("[]"), int(port)), PROBE_S).close()
    except OSError as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> UserError:
    return UserError(f"there is no Ray cluster at {address} ({first_line(error)}): start one, or give --ray local.")


class _RayActors:
    """Workers that are actors of a Ray cluster; files must lie under the same paths on every node."""

    keeps_idle = False
    """An actor that waits for its core may have that of an idle one."""

    def __init__(self, address: str, gpus: float = 0, listening: bool = False) -> None:
        check_ray(address)
        self._ray: Any = importlib.import_module("ray")
        self._connected = not self._ray.is_initialized()
        if self._connected:
            try:
                dashboard = None if address != "local" else False
                self._ray.init(address=address, log_to_driver=False, include_dashboard=dashboard)
            except (ConnectionError, ValueError, RuntimeError, OSError) as error:
                raise _no_cluster(address, error) from error
        # What is lost is told; Ray must not begin it again behind our back.
        options = {"num_cpus": 1, "num_gpus": gpus, "max_restarts": 0, "max_task_retries": 0, "max_concurrency": 2}
        self._class = self._ray.remote(**options)(_RayWorker)
        self._listening = listening
        self._actors: list[Any] = []
        self._running: dict[Any, Any] = {}
        """Reference of a result -> the actor that works on it."""

    @property
    def cores(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def pack(self, setup: Setup) -> bytes:
        return bytes(self._ray.cloudpickle.dumps((*setup, trusted())))

    def start(self, packed: bytes) -> Any:
        self._actors.append(self._class.remote(packed, list(sys.path)))
        return self._actors[-1]

    def give(self, actor: Any, job: Any) -> None:
        self._running[actor.run.remote(job)] = actor

    def answers(self, actors: Iterable[Any]) -> Iterator[tuple[Any, str, Any]]:
        """As of ``_Processes``, of all that have a job."""
        errors = self._ray.exceptions.RayError
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=POLL_S if self._listening else None)
        for actor in list(self._running.values()) if self._listening else ():
            # Not yet placed, or dead: the result says so.
            with suppress(errors):
                for message in self._ray.get(actor.messages.remote(), timeout=POLL_S):
                    yield actor, "message", message
        for reference in ready:
            actor = self._running.pop(reference)
            try:
                kind, value = self._ray.get(reference)
            except errors:
                self._actors.remove(actor)
                kind, value = "lost", None
            yield actor, kind, value

    def dismiss(self, actors: Sequence[Any]) -> None:
        for actor in actors:
            self._actors.remove(actor)
            self._ray.kill(actor)

    def close(self) -> None:
        if self._connected:
            self._ray.shutdown()
        else:
            self.dismiss(list(self._actors))
        self._actors, self._connected = [], False


class Actors:
    """Workers that keep what they make and are all asked at once: processes of this machine, or actors of Ray.

    They are the workers of ``run_jobs``: one thread each, deaf to Ctrl-C, gone when this process is gone.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        initializer: Initializer,
        initargs: Sequence[tuple[Any, ...]],
        *,
        ray: str | None = None,
    ) -> None:
        """Start one actor for each of ``initargs``, in which ``initializer`` gets these before the first job;
        ``UserError`` if Ray is not installed, there is no cluster, or it has fewer cores than actors are asked for.
        """
        self._crew: _Processes | _RayActors = _RayActors(ray) if ray else _Processes()
        try:
            if isinstance(self._crew, _RayActors) and len(initargs) > (cores := self._crew.cores):
                what = f"the Ray cluster at {ray} has {cores} cores for {len(initargs)} workers that run side by side"
                raise UserError(f"{what}: give fewer --workers.")
            packed = [self._crew.pack((function, initializer, arguments)) for arguments in initargs]
            self._workers = list(map(self._crew.start, packed))
        except BaseException:
            self.close()
            raise

    def ask(self, jobs: Sequence[Any]) -> list[Any]:
        """Do job ``i`` in actor ``i``, all at once: results in order; what a job raised, ``UserError`` if one died."""
        for worker, job in zip(self._workers, jobs, strict=True):
            self._crew.give(worker, job)
        answers: dict[Any, tuple[str, Any]] = {}
        while len(answers) < len(self._workers):
            for worker, kind, value in self._crew.answers(w for w in self._workers if w not in answers):
                if kind == "lost":
                    raise _death(value)
                if kind != "message":
                    answers[worker] = kind, value
        ordered = [answers[worker] for worker in self._workers]
        if errors := [value for kind, value in ordered if kind == "error"]:
            raise _unpacked(errors[0])
        return [value for _, value in ordered]

    def close(self) -> None:
        """End all actors at once, in the middle of a job too."""
        self._crew.close()
