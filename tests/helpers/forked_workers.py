"""``pytest -n 4 --dist loadfile``: workers that are forked once the tests are collected, each with files of its own.

xdist's workers each import and collect all of it, ten seconds of a processor, and send six messages a test. These do
neither. Without Linux, or with another ``--dist``, it is xdist that distributes.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from itertools import count, groupby
from multiprocessing import Pipe, connection, util
from typing import Any, NoReturn

import pytest

from tests.helpers.forkserver import AS_KNOWN_HERE, fork_server


def pytest_configure(config: pytest.Config) -> None:
    option = config.option
    processes = len(getattr(option, "tx", None) or [])
    if AS_KNOWN_HERE and processes and option.dist == "loadfile" and not option.collectonly:
        option.dist = "no"
        config.pluginmanager.register(ForkedWorkers(config, processes), "forked-workers")


class Worker:
    """A process of its own, as the process that forked it sees it."""

    def __init__(self, session: pytest.Session, name: str, todo: list[int], preloaded: list[str]) -> None:
        self.name, self.todo = name, deque(todo)
        self.pipe, other = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self.pipe.close()
            work(session, name, other, todo, preloaded)
        other.close()

    def receive(self) -> tuple[str, Any]:
        try:
            return self.pipe.recv()  # type: ignore[no-any-return]
        except (EOFError, OSError):
            return "end", None

    def end(self) -> None:
        """Interrupt it, and let it tear down what it has set up."""
        os.kill(self.pid, signal.SIGINT)
        while self.pipe.poll(20):
            if self.receive()[0] == "end":
                break
        else:
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class ForkedWorkers:
    """Hands files out, those with most tests first, and reports what comes back as if the tests had run here."""

    def __init__(self, config: pytest.Config, processes: int) -> None:
        self.config, self.processes = config, processes
        self.preloaded: list[str] = []

    def preload(self, names: Iterable[str]) -> None:
        """Import modules for all workers, and for a server of processes that each of them then has."""
        for name in names:
            # An extra that is missing is missed by the tests that need it.
            with suppress(ImportError):
                import_module(name)
                self.preloaded.append(name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        files = [
            list(places) for _, places in groupby(range(len(session.items)), lambda place: session.items[place].path)
        ]
        waiting = deque(sorted(files, key=len, reverse=True))
        self.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        names = (f"gw{number}" for number in count())
        workers: dict[Any, Worker] = {}

        def start(todo: list[int]) -> None:
            worker = Worker(session, next(names), todo, self.preloaded)
            workers[worker.pipe] = worker

        try:
            while waiting and len(workers) < self.processes:
                start(waiting.popleft())
            while workers:
                for pipe in connection.wait(list(workers)):
                    worker = workers[pipe]
                    kind, value = worker.receive()
                    if kind == "more":
                        more = waiting.popleft() if waiting else []
                        worker.todo.extend(more)
                        worker.pipe.send(more)
                    elif kind == "warning":
                        self.config.hook.pytest_warning_recorded.call_historic(kwargs=value)
                    elif kind == "reports":
                        self.report(session.items[worker.todo.popleft()], value)
                    else:
                        os.waitpid(worker.pid, 0)
                        del workers[pipe]
                        if worker.todo:
                            self.report_crash(session.items[worker.todo.popleft()], worker.name)
                        if worker.todo:
                            start(list(worker.todo))
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        finally:
            for worker in workers.values():
                worker.end()
        return True

    def report(self, item: pytest.Item, reports: list[dict[str, Any]]) -> None:
        hook = self.config.hook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in reports:
            hook.pytest_runtest_logreport(report=hook.pytest_report_from_serializable(config=self.config, data=data))
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def report_crash(self, item: pytest.Item, name: str) -> None:
        text = f"worker {name!r} crashed while running {item.nodeid!r}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self.config.hook.pytest_runtest_logreport(report=report)


class Sender:
    """Sends what a test gave when it is over, in one message."""

    def __init__(self, config: pytest.Config, pipe: connection.Connection) -> None:
        self.config, self.pipe = config, pipe
        self.reports: list[Any] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))

    def pytest_runtest_logfinish(self) -> None:
        self.pipe.send(("reports", self.reports))
        self.reports = []

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        seen = warning_message
        message = warnings.WarningMessage(str(seen.message), seen.category, seen.filename, seen.lineno)
        try:
            pickle.dumps(message)
        except (pickle.PicklingError, AttributeError, TypeError):
            message.category = UserWarning
        kwargs = {"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
        self.pipe.send(("warning", kwargs))


def work(
    session: pytest.Session, name: str, pipe: connection.Connection, todo: list[int], preloaded: list[str]
) -> NoReturn:
    """Run tests until there are no more; the next file is asked for with the last test of one, which must know what
    comes after it.
    """
    code = 1
    try:
        config = session.config
        os.environ["PYTEST_XDIST_WORKER"] = name
        plugins = config.pluginmanager
        for other in ("terminalreporter", "terminalprogress", "forked-workers"):
            if plugins.has_plugin(other):
                plugins.unregister(name=other)
        # What is captured lies in files that would be those of all.
        capture = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        factory = config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = factory.getbasetemp() / f"popen-{name}"
        factory._basetemp.mkdir(mode=0o700)
        plugins.register(Sender(config, pipe), "sender")
        if preloaded:
            fork_server(preloaded)
        places = deque(todo)
        try:
            while places and not (session.shouldfail or session.shouldstop):
                item = session.items[places.popleft()]
                if not places:
                    pipe.send(("more", None))
                    places.extend(pipe.recv())
                after = session.items[places[0]] if places else None
                config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            code = 0
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            session._setupstate.teardown_exact(None)
        finally:
            capture.stop_global_capturing()
            util._exit_function()  # type: ignore[attr-defined]
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
