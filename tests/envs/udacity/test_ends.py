"""However a driving program ends or fails: the car is braked and then stands. Real processes, real signals.

``pytest -s tests/envs/udacity/test_ends.py`` prints the table of docs/results/bridge.md.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from tests.helpers.udacity_simulators import until
from tests.helpers.udacity_ways import FRAME_S, SLOW_MPH, Car

ROOT = Path(__file__).parents[3]
LONG_S = 120.0
"""For whoever waits, on however busy a machine."""
AT_MOST_S = 10.0
"""Simulated; on a quiet machine it is less than 2."""
pty = pytest.importorskip("pty", reason="terminals of POSIX")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX, and no guardian")


class Nursery:
    """Starts programs, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.udacity_ways"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: Queue[list[str]] = Queue()
        self.events: list[str] = []
        self.pid = 0
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, *rest = line.split()
            if kind == "event":
                self.events.append(" ".join(rest))
            else:
                self.lines.put([kind, *rest])

    def start(self, way: str, engine: str = "threads") -> int:
        """Start a program; the port that it listens on."""
        self.events.clear()
        assert self._process.stdin is not None
        print(way, engine, file=self._process.stdin, flush=True)
        kind, port, pid = self.lines.get(timeout=LONG_S)
        assert kind == "port"
        self.pid = int(pid)
        return int(port)

    def end(self) -> None:
        """See to it that the program has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        while self.lines.get(timeout=LONG_S)[0] != "ended":
            pass

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    opened = Nursery()
    yield opened
    opened.close()


def is_braked(car: Car, name: str, since: tuple[int, int]) -> None:
    """Wait until the car is slow, and see that it stays so and never reverses.

    ``since``: frames and commands before the program was ended.
    """
    began, commands = since
    assert until(lambda: any(pedal < 0 for _, pedal in car.commands[commands:]), LONG_S), "it is braked"
    braked = next(
        frame for frame, (_, pedal) in zip(car.applied, car.commands, strict=False) if pedal < 0 and frame >= began
    )
    assert until(lambda: car.velocity_mph < SLOW_MPH, LONG_S), "it becomes slow"
    slow = car.frames
    assert until(car.stands, LONG_S), (car.slowest_mph, car.commands[-1])
    # What reverses does so now.
    assert until(lambda: car.frames > slow + 75, LONG_S) and car.stands(), (car.slowest_mph, car.commands[-1])
    print(f"| {name} | {(braked - began) * FRAME_S:.2f} | {(slow - began) * FRAME_S:.2f} | {car.velocity_mph:.1f} |")
    assert (slow - began) * FRAME_S < AT_MOST_S


# Without a handler of ours; Python itself ignores SIGPIPE and SIGXFSZ.
KILLING = [
    *("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM"),
    *("SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"),
    *("SIGXCPU", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPWR", "SIGSTKFLT", "SIGKILL"),
]
STOPPING = ["SIGTSTP", "SIGSTOP", "SIGTTIN", "SIGTTOU"]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("name", [name for name in KILLING if hasattr(signal, name)])
def test_a_signal_brakes(nursery: Nursery, name: str, times: int) -> None:
    with Car(nursery.start("drive")) as car:
        assert car.drives(30)
        since = car.frames, len(car.commands)
        for _ in range(times):
            with suppress(ProcessLookupError):
                os.kill(nursery.pid, getattr(signal, name))
            time.sleep(0.1)
        is_braked(car, f"{name}, {'once' if times == 1 else 'twice'}", since)
        nursery.end()


@pytest.mark.parametrize("name", [name for name in STOPPING if hasattr(signal, name)])
def test_a_program_that_is_stopped_brakes_and_drives_on_when_it_goes_on(nursery: Nursery, name: str) -> None:
    with Car(nursery.start("drive")) as car:
        assert car.drives(30)
        since = car.frames, len(car.commands)
        os.kill(nursery.pid, getattr(signal, name))
        is_braked(car, f"{name}, then SIGCONT", since)
        os.kill(nursery.pid, signal.SIGCONT)
        assert until(lambda: car.velocity_mph > SLOW_MPH, LONG_S), "it drives on"
        nursery.end()
        assert until(car.stands, LONG_S)


def test_signals_that_end_nothing_are_no_reason_to_brake(nursery: Nursery) -> None:
    with Car(nursery.start("drive")) as car:
        assert car.drives(30)
        for name in ("SIGCHLD", "SIGURG", "SIGWINCH", "SIGCONT", "SIGPIPE"):
            os.kill(nursery.pid, getattr(signal, name))
        assert car.drives(30) and car.client.connections == 1
        nursery.end()


@pytest.mark.parametrize("engine", ["threads", "eventlet"])
@pytest.mark.parametrize(
    "way",
    [
        *("raise", "exit", "without_with", "exit_at_once", "segfault", "abort", "kill_itself", "full_disk"),
        *("hang", "slow", "nan", "no_action", "hold_the_lock", "lose_threads", "lose_guardian"),
        *("interrupted_answer", "interrupted_taking"),
    ],
)
def test_a_program_that_fails_brakes(nursery: Nursery, way: str, engine: str) -> None:
    with Car(nursery.start(way, engine)) as car:
        assert nursery.lines.get(timeout=LONG_S) == ["fails"]
        since = car.frames, len(car.commands)
        if way == "lose_guardian":
            assert nursery.lines.get(timeout=LONG_S) == ["fails"]
            assert any("another one is started" in event for event in nursery.events)
            since = car.frames, len(car.commands)
        is_braked(car, f"{way}, {engine}", since)
        nursery.end()
        assert until(lambda: car.frames % 50 == 0, LONG_S) and car.stands()


SCRIPT = "from tests.helpers.udacity_ways import run; run('drive', 'threads')"


def test_a_program_in_the_background_of_a_script_can_be_ended() -> None:
    # A shell lets its background jobs ignore Ctrl-C.
    script = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{SCRIPT}"
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with Car(int(process.stdout.readline().split()[1])) as car:
        assert car.drives(30)
        since = car.frames, len(car.commands)
        process.send_signal(signal.SIGINT)
        is_braked(car, "SIGINT in the background", since)
        process.communicate(timeout=LONG_S)


@pytest.mark.parametrize("what", ["the terminal is closed", "Ctrl-Z and then closed", "Ctrl-\\", "Ctrl-C twice"])
def test_a_terminal_that_is_closed_brakes(what: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", SCRIPT])
    with Car(int(os.read(terminal, 1000).split()[1])) as car:
        assert car.drives(30)
        since = car.frames, len(car.commands)
        if what.startswith("Ctrl"):
            os.write(terminal, {"Z": b"\x1a", "\\": b"\x1c", "C": b"\x03"}[what[5]])
        if what == "Ctrl-C twice":
            time.sleep(0.1)
            os.write(terminal, b"\x03")
        if "closed" in what:
            os.close(terminal)
        is_braked(car, what, since)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert car.stands()
