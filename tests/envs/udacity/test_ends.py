"""However a driving program ends or fails: the car is braked and then stands. Real processes, real signals.

``pytest -s -m 'not soak' tests/envs/udacity/test_ends.py`` prints the table of docs/results/bridge.md.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from nacdrive.envs.udacity.engines import ENGINES
from nacdrive.envs.udacity.guardian import SILENCE_S
from tests.helpers.udacity_simulators import until
from tests.helpers.udacity_ways import FRAME_S, SLOW_MPH, Car, Waiting, family

ROOT = Path(__file__).parents[3]
LONG_S = 120.0
"""For whoever waits, on however busy a machine."""
BRAKED_S, SLOW_S = 0.5, 2.0
"""Longest time to the first brake and to less than 5 mph, in the car's own seconds."""
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


class Start:
    """What is so just before a program ends or fails."""

    def __init__(self, car: Car, *processes: int) -> None:
        self.frames, self.commands = car.frames, len(car.commands)
        self.waiting = Waiting(car, *processes)


def is_braked(car: Car, name: str, start: Start) -> float:
    """Wait until the car is slow, and see that it was in time, stays so and never reverses; seconds to the brake.

    Seconds are the car's own, so a busy machine that draws its frames late makes them no more; the time for which the
    program waited for a processor is taken off.
    """
    began = start.frames

    def pedals() -> list[tuple[int, float]]:
        later = zip(car.applied[start.commands :], car.commands[start.commands :], strict=False)
        return [(frame, pedal) for frame, (_, pedal) in later if frame >= began]

    assert until(lambda: any(pedal < 0 for _, pedal in pedals()), LONG_S), "it is braked"
    brake_waited_s = start.waiting.seconds()
    brake_s = (next(frame for frame, pedal in pedals() if pedal < 0) - began) * FRAME_S
    assert until(lambda: car.velocity_mph < SLOW_MPH, LONG_S), "it becomes slow"
    slow_waited_s = start.waiting.seconds()
    slow = next(i for i, mph in enumerate(car.velocities_mph) if i >= began and mph < SLOW_MPH)
    assert until(car.stands, LONG_S), (car.slowest_mph, car.commands[-1])
    # What reverses does so now.
    assert until(lambda: car.frames > slow + 75, LONG_S) and car.stands(), (car.slowest_mph, car.commands[-1])
    slow_s = (slow - began) * FRAME_S
    start.waiting.end()
    print(f"| {name} | {brake_s:.2f} | {slow_s:.2f} | {car.velocity_mph:.1f} | {slow_waited_s:.2f} |")
    assert brake_s - brake_waited_s <= BRAKED_S and slow_s - slow_waited_s <= SLOW_S
    return brake_s - brake_waited_s


# Without a handler of ours; Python itself ignores SIGPIPE and SIGXFSZ.
KILLING = [
    *("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM"),
    *("SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"),
    *("SIGXCPU", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPWR", "SIGSTKFLT", "SIGKILL"),
]
STOPPING = ["SIGTSTP", "SIGSTOP", "SIGTTIN", "SIGTTOU"]
DAILY = {
    *("SIGTERM-2", "SIGKILL-1", "SIGTSTP"),
    *("exit_at_once-threads", "hang-threads", "slow-threads", "hold_the_lock-threads"),
}
"""The handful that is tried every day, of all that can happen."""


def some(*values: Any) -> Any:
    """Values of a parametrized test, marked ``nightly`` unless they are among ``DAILY``."""
    name = "-".join(map(str, values))
    return pytest.param(*values, id=name, marks=[] if name in DAILY else pytest.mark.nightly)


@pytest.mark.parametrize(
    ("name", "times"), [some(name, times) for name in KILLING for times in (1, 2) if hasattr(signal, name)]
)
def test_a_signal_brakes(nursery: Nursery, name: str, times: int) -> None:
    with Car(nursery.start("drive")) as car:
        assert car.drives(30)
        start = Start(car, nursery.pid)
        for _ in range(times):
            with suppress(ProcessLookupError):
                os.kill(nursery.pid, getattr(signal, name))
            time.sleep(0.1)
        is_braked(car, f"{name}, {'once' if times == 1 else 'twice'}", start)
        nursery.end()


@pytest.mark.parametrize("name", [some(name) for name in STOPPING if hasattr(signal, name)])
def test_a_program_that_is_stopped_brakes_and_drives_on_when_it_goes_on(nursery: Nursery, name: str) -> None:
    with Car(nursery.start("drive")) as car:
        assert car.drives(30)
        start = Start(car, nursery.pid)
        os.kill(nursery.pid, getattr(signal, name))
        brake_s = is_braked(car, f"{name}, then SIGCONT", start)
        # The program itself; the guardian waits for SILENCE_S first.
        assert name != "SIGTSTP" or brake_s < SILENCE_S
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


FAILING = (
    *("raise", "exit", "without_with", "exit_at_once", "segfault", "abort", "kill_itself", "full_disk"),
    *("hang", "slow", "nan", "no_action", "hold_the_lock", "lose_threads", "lose_guardian"),
    *("interrupted_answer", "interrupted_taking"),
)


@pytest.mark.parametrize(("way", "engine"), [some(way, engine) for way in FAILING for engine in ENGINES])
def test_a_program_that_fails_brakes(nursery: Nursery, way: str, engine: str) -> None:
    with Car(nursery.start(way, engine)) as car:
        # A program that has ended no longer tells which processes it started.
        assert car.drives(10)
        processes = family(nursery.pid)
        assert nursery.lines.get(timeout=LONG_S) == ["fails"]
        start = Start(car, *processes)
        if way == "lose_guardian":
            assert nursery.lines.get(timeout=LONG_S) == ["fails"]
            assert any("another one is started" in event for event in nursery.events)
            start = Start(car, nursery.pid)
        is_braked(car, f"{way}, {engine}", start)
        nursery.end()
        assert until(lambda: car.frames % 50 == 0, LONG_S) and car.stands()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 kB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(tmp_path)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("a disk that is small enough to be full can be mounted by root alone")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.nightly
def test_a_recording_that_fills_the_disk_is_told_and_the_car_is_driven_and_braked(small_disk: Path) -> None:
    line = "-m nacdrive drive --sim udacity --port 0 --headless --driver constant --record"
    process = subprocess.Popen(
        [sys.executable, *line.split(), str(small_disk / "recording")],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    with Car(int(re.findall(r"on port (\d+)", process.stdout.readline())[0])) as car:
        # Its hours pass faster than ours.
        car._frame_s = FRAME_S / 10
        assert any("Recording has failed: no space left on the disk" in row for row in process.stdout)
        car._frame_s = FRAME_S
        assert car.drives(30) and car.velocity_mph > SLOW_MPH
        start = Start(car, process.pid)
        process.send_signal(signal.SIGINT)
        is_braked(car, "SIGINT after the recording has filled the disk", start)
        assert "no space left on the disk" in process.communicate(timeout=LONG_S)[0] and process.returncode == 2


SCRIPT = "from tests.helpers.udacity_ways import run; run('drive', 'threads')"


@pytest.mark.nightly
def test_a_program_in_the_background_of_a_script_can_be_ended() -> None:
    # A shell lets its background jobs ignore Ctrl-C.
    script = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{SCRIPT}"
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with Car(int(process.stdout.readline().split()[1])) as car:
        assert car.drives(30)
        start = Start(car, process.pid)
        process.send_signal(signal.SIGINT)
        is_braked(car, "SIGINT in the background", start)
        process.communicate(timeout=LONG_S)


@pytest.mark.nightly
@pytest.mark.parametrize("what", ["the terminal is closed", "Ctrl-Z and then closed", "Ctrl-\\", "Ctrl-C twice"])
def test_a_terminal_that_is_closed_brakes(what: str) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", SCRIPT])
    with Car(int(os.read(terminal, 1000).split()[1])) as car:
        assert car.drives(30)
        start = Start(car, pid)
        if what.startswith("Ctrl"):
            os.write(terminal, {"Z": b"\x1a", "\\": b"\x1c", "C": b"\x03"}[what[5]])
        if what == "Ctrl-C twice":
            time.sleep(0.1)
            os.write(terminal, b"\x03")
        if "closed" in what:
            os.close(terminal)
        is_braked(car, what, start)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert car.stands()
