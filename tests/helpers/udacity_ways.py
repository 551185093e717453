"""Ways in which a driving program ends or fails, each in a process of its own, and a car that shows what becomes of it.

The processes are forked from one that has imported everything, and before it has any thread: each begins at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import Any

from nacdrive.cli.main import stop_like_ctrl_c
from nacdrive.common.action import Action
from nacdrive.envs.udacity import UdacityEnv
from tests.helpers.udacity_simulators import Simulator

FRAME_S = 0.02
SLOW_MPH = 5.0
SOUND = Action(0.1, 0.6, 0.0)
STEPS = 40
"""Decisions before the program ends by itself."""


class Car(Simulator):
    """A simulator whose car gathers speed, brakes, coasts and reverses as the real one does, 0.02 s a frame.

    It loses 15 mph in a second of full brake, and 2 by itself. Below 5 mph the brake reverses.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port, frame_s=FRAME_S)
        self.frames = 0
        self.applied: list[int] = []
        """Frame in which each command was carried out."""
        self.velocity_mph = self.slowest_mph = 18.0
        self.velocities_mph: list[float] = []
        """After each frame."""

    def _apply(self, steering: float, throttle: float) -> None:
        self.applied.append(self.frames)
        super()._apply(steering, throttle)

    def _frame(self) -> None:
        super()._frame()
        self.frames += 1
        pedal = self.commands[-1][1] if self.commands else 0.0
        change = 4.0 * pedal
        if pedal < 0:
            change = 15.0 * pedal if self.velocity_mph > SLOW_MPH else 2.0 * pedal
        elif pedal == 0:
            change = -min(2.0, self.velocity_mph / FRAME_S)
        self.velocity_mph = min(25.0, self.velocity_mph + change * FRAME_S)
        self.slowest_mph = min(self.slowest_mph, self.velocity_mph)
        self.velocities_mph.append(self.velocity_mph)
        # The simulator tells how fast it is, not which way.
        self.speed_mph = abs(self.velocity_mph)

    def stands(self) -> bool:
        """Whether it is slow, was let go, and has never reversed."""
        return self.slowest_mph >= 0.0 and self.velocity_mph < SLOW_MPH and self.commands[-1][1] == 0.0


PUNCTUAL_S = 0.005


class Waiting:
    """For how long a busy machine keeps threads waiting: no fault of the program's.

    Linux counts it for some processes and those that they have started by now, and for the threads of a car; what a
    virtual machine or a container waits for is seen by a thread that wants to wake up every ``PUNCTUAL_S``.
    """

    def __init__(self, car: Car, *processes: int) -> None:
        own = {f"/proc/self/task/{thread.native_id}" for thread in (car._thread, car.client._thread)}
        self._places = own | {f"/proc/{pid}/task/*" for process in processes for pid in family(process)}
        self._before: dict[str, float] = {}
        self._latest: dict[str, float] = {}
        self._before = dict(self._look())
        self._late_s = 0.0
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        woke = time.monotonic()
        while not self._ended.wait(PUNCTUAL_S):
            before, woke = woke, time.monotonic()
            self._late_s += max(0.0, woke - before - 2 * PUNCTUAL_S)

    def end(self) -> None:
        """Watch no longer."""
        self._ended.set()

    def _look(self) -> dict[str, float]:
        for place in self._places:
            for file in glob(f"{place}/schedstat"):
                with suppress(OSError):
                    self._latest[file] = int(Path(file).read_text().split()[1]) / 1e9
        return self._latest

    def seconds(self) -> float:
        """In sum, since this was made."""
        return self._late_s + sum(waited - self._before.get(thread, 0.0) for thread, waited in self._look().items())


def family(process: int) -> list[int]:
    """A process and those that it has started."""
    children: list[int] = []
    for file in glob(f"/proc/{process}/task/*/children"):
        with suppress(OSError):  # a thread or a process that has just ended
            children += map(int, Path(file).read_text().split())
    return [process, *(pid for child in children for pid in family(child))]


def nursery() -> None:
    """Fork a program for each line of the standard input: way and engine. Its exit status is written when it ends."""
    for line in sys.stdin:
        if os.fork() == 0:
            # A process group of its own, as a shell gives it: otherwise Ctrl-Z could not stop it.
            os.setpgid(0, 0)
            with suppress(KeyboardInterrupt, BrokenPipeError):
                run(*line.split())
            os._exit(0)
        write(f"ended {os.wait()[1]}")


def write(line: str) -> None:
    """One line to whoever started the nursery, at once."""
    os.write(1, f"{line}\n".encode())


def run(way: str, engine: str) -> None:
    """Drive as the command line does, and end or fail in one way."""
    stop_like_ctrl_c()
    env = UdacityEnv(port=0, engine=engine, on_event=lambda text: write(f"event {text}"))
    write(f"port {env.port} {os.getpid()}")
    if way == "without_with":
        drive(env, WAYS["raise"])
    with env:
        drive(env, WAYS[way])


def drive(env: UdacityEnv, fail: Callable[[UdacityEnv], Any]) -> None:
    """Decide soundly for a while, and then only as ``fail`` does; drive after drive."""
    steps = 0
    while True:
        env.reset()
        ended = False
        while not ended:
            steps += 1
            if steps == STEPS:
                write("fails")
            action = fail(env) if steps >= STEPS else SOUND
            ended = env.step(action)[3]


def end_thread(name: str) -> None:
    """End threads of this process as a bug of theirs would."""
    for thread in threading.enumerate():
        if thread.name.startswith(name) and thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


def raise_error(env: UdacityEnv) -> Action:
    raise ValueError("a bug")


def hang(env: UdacityEnv) -> Action:
    time.sleep(1000)
    return SOUND


def be_slow(env: UdacityEnv) -> Action:
    time.sleep(0.5)
    return SOUND


def hold_the_lock(env: UdacityEnv) -> Action:
    # Of a function of a PyDLL the interpreter's lock is not let go.
    ctypes.PyDLL(None).usleep(8_000_000)
    return SOUND


def lose_threads(env: UdacityEnv) -> Action:
    end_thread("nacdrive-udacity")
    time.sleep(1000)
    return SOUND


def lose_guardian(env: UdacityEnv) -> Action:
    env._server._guardian._process.kill()
    for _ in range(100):
        time.sleep(0.02)
        env.step(SOUND)
    write("fails")
    os._exit(7)


def ask_twice(env: UdacityEnv) -> Action:
    """Ctrl-C in the middle of an answer: it was begun and is never sent."""
    steer = env._server.steer

    def interrupted(*_: Any) -> None:
        env._server.steer = steer  # type: ignore[method-assign]
        raise KeyboardInterrupt

    env._server.steer = interrupted  # type: ignore[method-assign]
    return SOUND


def ask_while_taking(env: UdacityEnv) -> Action:
    """Ctrl-C between taking a report and noting that it was taken."""
    drive = env._drive

    class Waiting(type(drive.waiting)):  # type: ignore[misc]
        def popleft(self) -> Any:
            super().popleft()
            raise KeyboardInterrupt

    drive.waiting = Waiting(drive.waiting)
    return SOUND


def write_to(path: str) -> Callable[[UdacityEnv], Action]:
    def fail(env: UdacityEnv) -> Action:
        with open(path, "w", encoding="utf-8") as file:
            file.write("a line of the recording")
        return SOUND

    return fail


WAYS: dict[str, Callable[[UdacityEnv], Any]] = {
    "drive": lambda env: SOUND,
    "raise": raise_error,
    "exit": lambda env: sys.exit(3),
    "without_with": raise_error,
    "exit_at_once": lambda env: os._exit(7),
    "segfault": lambda env: ctypes.string_at(0),
    "abort": lambda env: os.abort(),
    "kill_itself": lambda env: os.kill(os.getpid(), signal.SIGKILL),
    "full_disk": write_to("/dev/full"),
    "hang": hang,
    "slow": be_slow,
    "nan": lambda env: Action(float("nan"), 0.5, 0.0),
    "no_action": lambda env: None,
    "hold_the_lock": hold_the_lock,
    "lose_threads": lose_threads,
    "lose_guardian": lose_guardian,
    "interrupted_answer": ask_twice,
    "interrupted_taking": ask_while_taking,
}

if __name__ == "__main__":
    nursery()
