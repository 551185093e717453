"""However the program ends, as long as it can notice: the car is braked first. Real processes, real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.udacity_simulators import Simulator, until

# The command's own way: whoever asks it to end is answered as Ctrl-C is.
SCRIPT = """
import signal, sys, threading, time
from nacdrive.common.action import Action
from nacdrive.envs.udacity import UdacityEnv

for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), signal.default_int_handler)
ending = sys.argv[1]

def drive(env):
    env.reset()
    began = time.monotonic()
    while True:
        env.step(Action(0.1, 0.6, 0.0))
        if time.monotonic() - began > 0.5:
            if ending == "exception":
                raise ValueError("a bug")
            if ending == "exit":
                sys.exit(3)

if ending == "without":
    env = UdacityEnv(port=0)
    print(env.port, flush=True)
    ending = "exception"
    drive(env)
with UdacityEnv(port=0) as env:
    print(env.port, flush=True)
    drive(env)
"""


def braked(ending: str, number: signal.Signals | None = None, **options: object) -> int:
    """Drive, end, and return the exit code; fails where the car's last word is not the brake."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, ending],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    assert process.stdout is not None
    with Simulator(int(process.stdout.readline())) as car:
        car.speed_mph = 20.0
        assert until(lambda: (0.1, 0.6) in car.commands)
        if number is not None:
            assert car.drives(10)
            process.send_signal(number)
        assert until(lambda: car.commands[-1][1] == -1.0, 10), car.commands[-5:]
        car.speed_mph = 3.0
        began = time.monotonic()
        process.communicate(timeout=20)
        # It stays as long as the car is fast, and no longer.
        assert time.monotonic() - began < 5
        assert until(lambda: car.commands[-1] == (0.0, 0.0), 5), "let go once it is slow"
    return process.returncode


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_brakes(number: signal.Signals) -> None:
    assert braked("signal", number) != 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_program_in_the_background_of_a_script_can_be_ended() -> None:
    # A shell lets its background jobs ignore Ctrl-C.
    assert braked("signal", signal.SIGINT, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) != 0


@pytest.mark.parametrize("ending", ["exception", "exit", "without"])
def test_a_program_that_ends_by_itself_brakes(ending: str) -> None:
    assert braked(ending) == (3 if ending == "exit" else 1)
