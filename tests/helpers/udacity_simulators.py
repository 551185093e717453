"""Simulators on the wire for the bridge's tests: the emulated client in a frame loop of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from io import BytesIO
from threading import Event, Thread
from typing import Any, Self

import numpy as np
from PIL import Image

from nacdrive.common.action import Action
from nacdrive.common.units import MPH_PER_MPS
from nacdrive.extras.simulator.client import Telemetry, UdacityClient

FRAME_S = 0.02


def jpeg(width: int = 320, height: int = 160, seed: int = 0, *, detailed: bool = False) -> bytes:
    """A picture of 2 kB; a ``detailed`` one has 11 kB as the simulator's own has, and costs twice as much to handle."""
    patch, quality = (8, 75) if detailed else (32, 10)
    small = np.random.default_rng(seed).integers(0, 255, (height // patch, width // patch, 3), np.uint8)
    buffer = BytesIO()
    Image.fromarray(small).resize((width, height)).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


PICTURE = jpeg()


class Simulator:
    """An emulated simulator whose frames a thread draws; a car that goes as it is told."""

    def __init__(self, port: int, culture: str = "en-US", frame_s: float = FRAME_S) -> None:
        self.commands: list[tuple[float, float]] = []
        self.manual = False
        self.picture = PICTURE
        self.speed_mph = 0.0
        self.paused = Event()
        self._frame_s, self._closing = frame_s, Event()
        self.client = UdacityClient("127.0.0.1", port, self._telemetry, self._apply, culture)
        self._thread = Thread(target=self._frames, daemon=True)

    def __enter__(self) -> Self:
        self.client.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()
        self.client.close()

    def _telemetry(self) -> Telemetry | None:
        if self.manual:
            return None
        steering, throttle = self.commands[-1] if self.commands else (0.0, 0.0)
        return Telemetry(25 * steering, max(0.0, throttle), self.speed_mph, self.picture)

    def _apply(self, steering: float, throttle: float) -> None:
        self.commands.append((steering, throttle))

    def _frames(self) -> None:
        while not self._closing.wait(self._frame_s):
            if not self.paused.is_set():
                self._frame()

    def _frame(self) -> None:
        self.client.frame()

    def drives(self, more: int = 10) -> bool:
        """Whether it is told ``more`` commands from now on."""
        goal = self.client.steers + more
        return until(lambda: self.client.steers >= goal)


def until(true: Callable[[], Any], timeout_s: float = 120) -> bool:
    """Wait for ``true()``; False if it does not come true."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def steer_by_speed(frame: Any, t_s: float, speed_mps: float) -> Action:
    """A policy whose decision tells which report it belongs to."""
    return Action(speed_mps * MPH_PER_MPS / 100, 0.2, 0.0)
