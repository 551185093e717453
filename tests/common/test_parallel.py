"""The process pool: results, messages, errors, and ends of every kind."""

from __future__ import annotations

import importlib.util
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nacdrive.common import parallel
from nacdrive.common.errors import UserError
from nacdrive.common.parallel import Actors, RemoteTraceback, report, run_jobs
from tests.helpers import jobs

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_each_job_comes_back_with_its_result(workers: int) -> None:
    assert sorted(run_jobs(jobs.square, range(7), workers=workers)) == [(n, n * n) for n in range(7)]


@pytest.mark.parametrize("workers", [0, 2])
def test_no_jobs_no_processes(workers: int) -> None:
    assert list(run_jobs(jobs.square, [], workers=workers)) == []


def test_results_come_as_soon_as_they_are_done() -> None:
    found = [result for _, result in run_jobs(jobs.sleep, [("slow", 2.0), ("quick", 0.0)], workers=2)]
    assert found == ["quick", "slow"]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_initializer_runs_once_in_each_worker(workers: int) -> None:
    found = [
        r
        for _, r in run_jobs(
            jobs.what_was_prepared, range(6), workers=workers, initializer=jobs.prepare, initargs=(1, "a")
        )
    ]
    assert all(r[1:] == [1, "a"] for r in found) and len({r[0] for r in found}) <= max(1, workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_messages_of_a_job_arrive_in_order_and_before_its_result(workers: int) -> None:
    heard: list[object] = []
    for job, result in run_jobs(jobs.say, ["a", "b"], workers=workers, on_message=lambda j, m: heard.append((j, m))):
        assert result == job.upper()
        assert [m for j, m in heard if j == job] == [(job, n) for n in range(3)]
    report("nobody listens outside of a job")
    assert len(heard) == 6


def test_an_endless_iterator_is_taken_only_as_workers_are_idle() -> None:
    taken = []

    def endless() -> Iterator[int]:
        for n in itertools.count():
            taken.append(n)
            yield n

    pool = run_jobs(jobs.square, endless(), workers=2)
    found = [next(pool) for _ in range(5)]
    assert len(taken) <= len(found) + 2
    pool.close()


def test_jobs_that_appear_because_of_a_result_are_done_too() -> None:
    class Growing:
        def __init__(self) -> None:
            self.waiting = [1]

        def __iter__(self) -> Growing:
            return self

        def __next__(self) -> int:
            if not self.waiting:
                raise StopIteration
            return self.waiting.pop()

    growing, found = Growing(), []
    for job, _ in run_jobs(jobs.square, growing, workers=2):
        found.append(job)
        if job < 4:
            growing.waiting += [job + 1]
    assert found == [1, 2, 3, 4]


def test_a_worker_has_one_thread_and_ignores_ctrl_c() -> None:
    ((_, found),) = run_jobs(jobs.threads, [0], workers=1)
    assert found == (1, 1, "1")
    ((_, (ignored, blocked)),) = run_jobs(jobs.disposition, [0], workers=1)
    assert ignored and not blocked


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("job", "kind", "words"), [("user", UserError, "a sentence"), ("eof", EOFError, "the job read")]
)
def test_errors_arrive_as_themselves(workers: int, job: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        list(run_jobs(jobs.fail, [job], workers=workers))
    if workers:
        assert isinstance(caught.value.__cause__, RemoteTraceback) and "jobs.py" in str(caught.value.__cause__)


@pytest.mark.parametrize(("job", "words"), [("odd", "TwoArgumentsError: a and b"), ("unpicklable", "pickle")])
def test_errors_and_results_that_cannot_travel_say_so(job: str, words: str) -> None:
    with pytest.raises(Exception, match=words):
        list(run_jobs(jobs.fail, [job], workers=1))


@pytest.mark.parametrize(("job", "code"), [("die", 3), ("killed", -9)])
def test_a_worker_that_dies_is_one_sentence(job: str, code: int) -> None:
    with pytest.raises(UserError, match=rf"worker process died \(exit code {code}\).*fewer --workers"):
        list(run_jobs(jobs.fail, [job, "fine"], workers=1))


def test_a_lost_job_can_be_a_result_and_the_others_go_on() -> None:
    found = dict(run_jobs(jobs.fail, ["a", "die", "b"], workers=1, on_lost=lambda job, code: (job, code)))
    assert found == {"a": "a", "die": ("die", 3), "b": "b"}


def test_fresh_processes() -> None:
    assert len({p for _, p in run_jobs(jobs.pid, range(3), workers=1, max_tasks_per_child=1)}) == 3
    assert len({p for _, p in run_jobs(jobs.pid, range(3), workers=1)}) == 1


def running(folder: Path) -> list[int]:
    """Workers of ``folder`` that are alive."""
    found = []
    for path in folder.glob("*.pid"):
        try:
            state = Path(f"/proc/{path.stem}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [int(path.stem)] if state != "Z" else []
    return found


def wait_for(condition: object, longest_s: float = 120.0) -> None:
    end = time.monotonic() + longest_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.05)


def test_leaving_early_ends_workers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "END_S", 600.0)
    work = [(tmp_path, 0.0), (tmp_path, 600.0), (tmp_path, 600.0)]
    with pytest.raises(RuntimeError):
        for _ in run_jobs(jobs.note_and_wait, work, workers=2):
            wait_for(lambda: len(running(tmp_path)) == 2)
            began = time.monotonic()
            raise RuntimeError
    assert not running(tmp_path) and time.monotonic() - began < 120


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_main_process(tmp_path: Path, sent: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.helpers.jobs", str(tmp_path)]
    main = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_for(lambda: len(running(tmp_path)) == 2)
        if sent == signal.SIGINT:
            # As a terminal does: to all processes.
            os.killpg(main.pid, sent)
        else:
            main.send_signal(sent)
        said, _ = main.communicate(timeout=120)
    finally:
        main.kill()
    wait_for(lambda: not running(tmp_path))
    if sent == signal.SIGINT:
        assert main.returncode == 130 and said == "interrupted\n"


def test_ctrl_c_while_workers_start_is_not_lost(tmp_path: Path) -> None:
    for delay in (0.3, 0.6, 1.0):
        command = [sys.executable, "-m", "tests.helpers.jobs", str(tmp_path)]
        main = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(delay)
        os.killpg(main.pid, signal.SIGINT)
        try:
            assert main.wait(timeout=120) != 0
        finally:
            main.kill()
        wait_for(lambda: not running(tmp_path))


def test_a_wrong_ray_address_is_told_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(parallel, "PROBE_S", 600.0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(UserError, match=rf"no Ray cluster at {address}"):
            list(run_jobs(jobs.square, [1], workers=1, ray=address))
        assert time.monotonic() - began < 120
    with pytest.raises(UserError, match="is no address"):
        list(run_jobs(jobs.square, [1], workers=1, ray="nowhere"))


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="ray is installed")
def test_ray_that_is_not_installed_is_told() -> None:
    with pytest.raises(UserError, match=r"nacdrive\[ray\]"):
        list(run_jobs(jobs.square, [1], workers=1, ray="local"))


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_the_same_jobs_on_a_ray_cluster() -> None:
    heard: list[object] = []
    found = dict(run_jobs(jobs.say, ["a", "b", "c"], workers=2, ray="local", on_message=lambda j, m: heard.append(j)))
    assert found == {"a": "A", "b": "B", "c": "C"}
    found = dict(
        run_jobs(jobs.what_was_prepared, range(3), workers=1, ray="local", initializer=jobs.prepare, initargs=(7,))
    )
    assert all(value[1:] == [7] for value in found.values())
    with pytest.raises(UserError, match="a sentence") as caught:
        list(run_jobs(jobs.fail, ["user"], workers=1, ray="local"))
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert dict(run_jobs(jobs.fail, ["die", "b"], workers=1, ray="local", on_lost=lambda j, c: "lost")) == {
        "die": "lost",
        "b": "b",
    }


RAY = pytest.param("local", marks=pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="no ray"))


@pytest.mark.parametrize("ray", [None, RAY])
def test_actors_keep_what_they_were_made_with(ray: str | None) -> None:
    actors = Actors(jobs.what_was_prepared, jobs.prepare, [("a",), ("b",)], ray=ray)
    try:
        first, second = actors.ask([0, 0]), actors.ask([0, 0])
        assert first == second and [mine[1] for mine in first] == ["a", "b"] and first[0][0] != first[1][0]
    finally:
        actors.close()


@pytest.mark.parametrize("ray", [None, RAY])
@pytest.mark.parametrize(("job", "words"), [("user", "a sentence"), ("die", "worker process died")])
def test_an_actor_that_fails_or_dies_is_one_sentence(ray: str | None, job: str, words: str) -> None:
    actors = Actors(jobs.fail, jobs.prepare, [(), ()], ray=ray)
    try:
        with pytest.raises(UserError, match=words):
            actors.ask(["fine", job])
    finally:
        actors.close()


def test_ctrl_c_while_actors_work_leaves_none_behind(tmp_path: Path) -> None:
    actors = Actors(jobs.note_and_wait, jobs.prepare, [(), ()])

    def interrupt() -> None:
        wait_for(lambda: len(running(tmp_path)) == 2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        actors.ask([(tmp_path, 600.0), (tmp_path, 600.0)])
    actors.close()
    assert not running(tmp_path)
