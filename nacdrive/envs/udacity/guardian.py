"""A process that brakes the car when the one that drives has died, was stopped, or runs no more.

It holds the simulators' connections too and says nothing on them while the driving process gives a sign of life. A
command is one small frame, written at once, so it never lies between the halves of another. Reading is another matter:
what is read here is missing there. So it reads only when nobody else does, or when the car may have become slow, and
then keeps the connection: if the driving process comes back, it is closed, and the simulator connects again at once.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any

SILENCE_S = 0.4
"""The driving process gives a sign of life eight times as often."""
LOOK_S = 0.05
AGAIN_S = 0.3
"""A simulator that does not report on a command is sent it again."""
BLIND_S = 2.0
"""Braking ends after this time without a report: below 5 mph it would reverse."""
LONGEST_S = 30.0
"""Longest stay after the driving process has gone."""
SLOW_MPH = 5.0
"""Below this speed the simulator reverses instead of braking."""
FASTEST_BRAKING = 30.0
"""Miles per hour that braking takes away in a second, at most."""
STEER = '42["steer",{"steering_angle":"%s","throttle":"%s"}]'
# The header of a frame that begins a message, with the mask that a client's payload is covered by.
HEADER = re.compile(rb"(?=[\x01\x81](?:[\x80-\xfd]|\xfe..|\xff.{8})(....))", re.DOTALL)
OPENING = '42["telemetry",'
LOOK_AT = 200
"""Bytes at the beginning of a telemetry in which its speed stands."""
MOST_KEPT = 1 << 16
"""Bytes without a telemetry that are kept: it may go on in the next ones."""
SPEED = re.compile(r'"speed": ?"([^"]{1,32})"')


class Guardian:
    """The driving process's end: tells the guardian which connections there are, and that all is well. ``say`` is
    called with a kind and a line if there is none, or it has ended and another one is started.
    """

    def __init__(self, say: Callable[[str, str], Any]) -> None:
        self._say = say
        self._connections: dict[int, Any] = {}
        self._lock = Lock()
        self._control: socket.socket | None = None
        if sys.platform == "win32":
            # Neither descriptors nor sessions are handed on as below.
            say("guardian", "On Windows nothing brakes the car if this program is killed or comes to a stop.")
            return
        self._start()

    def _start(self) -> None:
        # Not where this file is the guardian, which begins sooner without; nor has its file to be compiled for it.
        import subprocess

        ours, its = socket.socketpair()
        begin = "import sys; sys.path.append(sys.argv[2]); from guardian import main; main(int(sys.argv[1]))"
        # A session of its own: what ends or stops all that a terminal runs does not reach it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", begin, str(its.fileno()), os.path.dirname(__file__)],
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        its.close()
        ours.setblocking(False)
        self._control = ours

    def add(self, number: int, connection: Any) -> None:
        with self._lock:
            if connection.fileno() >= 0:  # else it has gone already
                self._connections[number] = connection
                self._tell("add", number, [connection.fileno()])

    def remove(self, number: int) -> None:
        with self._lock:
            if self._connections.pop(number, None) is not None:
                self._tell("remove", number)

    def sign_of_life(self, cars: dict[int, tuple[float, str]]) -> None:
        """All is well; of each car its speed in miles per hour, and its steering as it reads it."""
        with self._lock:
            self._tell("alive", cars)

    def _tell(self, kind: str, content: Any, descriptors: list[int] | None = None) -> None:
        if self._control is None:
            return
        try:
            send(self._control, kind, content, descriptors)
        except OSError:
            self._end()
            self._say("guardian", "The process that brakes if this one fails has ended: another one is started.")
            self._start()
            for number, connection in self._connections.items():
                with suppress(OSError):
                    send(self._control, "add", number, [connection.fileno()])

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        with self._lock:
            self._end()
            self._control = None


def send(control: socket.socket, kind: str, content: Any, descriptors: list[int] | None = None) -> None:
    """Write a line to the guardian, and open descriptors with it."""
    socket.send_fds(control, [json.dumps([kind, content]).encode() + b"\n"], descriptors or [])


class Car:
    """A connection that is guarded."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.speed_mph, self.steering = 0.0, "0"
        self._taken = self._released = False
        self._began_s: float | None = None
        self._commanded_s = self._reported_s = 0.0
        self._data = b""

    def brake(self, now_s: float, alone: bool) -> bool:
        """Do what is to be done now, ``alone`` where nobody else reads the connection; True once the car is slow."""
        if self._began_s is None:
            self._began_s = self._reported_s = now_s
            self._command(now_s)
        may_be_slow_s = self._began_s + (self.speed_mph - SLOW_MPH) / FASTEST_BRAKING
        if alone or (self.speed_mph > SLOW_MPH and now_s > may_be_slow_s):
            self._taken = True
        if not self._taken:
            return False
        reported = self._read()
        if reported:
            self._reported_s = now_s
            if self._released and self.speed_mph <= SLOW_MPH:
                return True
        elif now_s - self._reported_s > BLIND_S:
            self.speed_mph = 0.0
        if reported or now_s - self._commanded_s > AGAIN_S:
            self._command(now_s)
        return False

    def _command(self, now_s: float) -> None:
        slow = self.speed_mph <= SLOW_MPH
        straight = now_s - (self._began_s or 0.0) > SILENCE_S
        text = (STEER % ("0" if slow or straight else self.steering, "0" if slow else "-1")).encode()
        self._commanded_s, self._released = now_s, slow
        with suppress(BlockingIOError):
            self.connection.send(bytes([0x81, len(text)]) + text, socket.MSG_DONTWAIT)

    def _read(self) -> bool:
        with suppress(BlockingIOError):
            data = self.connection.recv(1 << 20, socket.MSG_DONTWAIT)
            if not data:
                raise ConnectionResetError
            self._data += data
        speed, self._data = newest_speed(self._data)
        if speed is not None:
            self.speed_mph = speed
        return speed is not None

    def give_back(self) -> bool:
        """The driving process is back: whether it can go on with this connection."""
        self._began_s = None
        return not self._taken

    def close(self) -> None:
        """Let the simulator have what was sent, and let go of the connection."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def newest_speed(data: bytes) -> tuple[float | None, bytes]:
    """Speed in miles per hour of the newest telemetry that begins in ``data``, None without one; and what follows it.

    ``data`` may begin and end amid a frame. 0 where a person drives: the simulator then tells no speed.
    """
    for match in reversed(list(HEADER.finditer(data))):
        start = match.end(1)
        if uncover(data[start : start + len(OPENING)], match[1]) != OPENING:
            continue
        text = uncover(data[start : start + LOOK_AT], match[1])
        speed = SPEED.search(text)
        if speed is not None or text.startswith(OPENING + "null"):
            return number(speed[1]) if speed else 0.0, data[start:]
    return None, data[-MOST_KEPT:]


def uncover(payload: bytes, mask: bytes) -> str:
    """The beginning of a frame's payload as text."""
    return bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload)).decode("latin-1")


def number(text: str) -> float:
    """The value of a number with four decimals, as any culture writes it; or of a plain one."""
    with suppress(ValueError):
        return float(text)
    return int("0" + "".join(re.findall("[0-9]", text))) / 1e4


def main(descriptor: int) -> None:
    """Guard until the driving process has gone and the cars are slow."""
    for name in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        with suppress(OSError, ValueError):
            signal.signal(name, signal.SIG_IGN)
    control = socket.socket(fileno=descriptor)
    cars: dict[int, Car] = {}
    lines = b""
    alive_s, gone_s = time.monotonic(), None
    while gone_s is None or (cars and time.monotonic() < gone_s + LONGEST_S):
        if gone_s is not None:
            time.sleep(LOOK_S / 5)
        elif select.select([control], [], [], LOOK_S)[0]:
            data, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 64)
            gone_s = None if data else time.monotonic()
            *whole, lines = (lines + data).split(b"\n")
            for kind, content in map(json.loads, whole):
                if kind == "add":
                    cars[content] = Car(socket.socket(fileno=descriptors.pop(0)))
                elif kind == "remove" and content in cars:
                    cars.pop(content).connection.close()
                elif kind == "alive":
                    alive_s = time.monotonic()
                    for key, (speed_mph, steering) in content.items():
                        if int(key) in cars:
                            cars[int(key)].speed_mph, cars[int(key)].steering = speed_mph, steering
        now_s = time.monotonic()
        silent = gone_s is not None or now_s - alive_s > SILENCE_S
        for key, car in list(cars.items()):
            try:
                done = car.brake(now_s, gone_s is not None) if silent else not car.give_back()
            except (OSError, ValueError):
                done = True
            if done and (gone_s is not None or not silent):
                cars.pop(key).close()
