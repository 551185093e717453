"""The built-in track as a stand-in for the Udacity simulator: real time, telemetry on the wire, keys at the wheel."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import cv2
import numpy as np

from nacdrive.common.units import MPH_PER_MPS
from nacdrive.envs.udacity_track.car import FULL_LOCK, STEP_S
from nacdrive.envs.udacity_track.env import UdacityTrackEnv
from nacdrive.extras.simulator.client import Telemetry, UdacityClient

if TYPE_CHECKING:
    from nacdrive.envs.udacity_track.window import Window

JPEG_QUALITY = 75
MOST_STEPS = 5
"""Steps of the physics in one frame: a machine that is too slow sees the drive in slow motion, not in leaps."""
KEY_RATE = 3.0
"""Steering per second while a key is held and after it is let go, as Unity's keyboard axes do it."""


class Keys(NamedTuple):
    """What a person's keys ask for; throttle is -1 to brake or reverse, turn -1 to the left."""

    manual: bool = False
    """W or S is held: the person drives, and the simulator reports no telemetry."""
    throttle: float = 0.0
    turn: float = 0.0

    @staticmethod
    def of(pressed: set[str]) -> Keys:
        """From the names of the keys that are held; arrows count as W, A, S and D."""
        pairs = {"w", "up"}, {"s", "down"}, {"d", "right"}, {"a", "left"}
        up, down, right, left = (bool(pressed & names) for names in pairs)
        return Keys(up or down, float(up) - float(down), float(right) - float(left))


class UdacitySimulator:
    """Advances the car of ``env``, which was reset, with the clock, and answers the server at ``host`` and ``port``
    once for each of its commands, in the numbers of ``culture``; ``say`` is told, in one line, of what happens. At a
    ``window`` a person watches and may drive.
    """

    def __init__(
        self,
        env: UdacityTrackEnv,
        host: str,
        port: int,
        culture: str = "en-US",
        say: Callable[[str], None] = print,
        window: Window | None = None,
    ) -> None:
        self.env, self.say, self.window = env, say, window
        self.client = UdacityClient(host, port, self._telemetry, self._command, culture)
        self.off_road = 0
        self.offsets: list[float] = []
        """Metres from the middle of the road, one per frame in motion."""
        self._steering = self._throttle = self._hand = 0.0
        self._keys = Keys()
        self._picture: tuple[int, bytes] = (-1, b"")
        self._was_off, self._laps, self._connections = False, 0, 0

    def run(self, seconds: float | None = None) -> None:
        """Drive for ``seconds``, or until the window is closed, or Ctrl-C."""
        begun = due = time.monotonic()
        with self.client:
            while not self.closed and (seconds is None or time.monotonic() - begun < seconds):
                steps = 1 + max(0, int((time.monotonic() - due) / STEP_S))
                due += steps * STEP_S
                self.frame(min(MOST_STEPS, steps))
                time.sleep(max(0.0, due - time.monotonic()))

    @property
    def closed(self) -> bool:
        return self.window is not None and self.window.closed

    def frame(self, steps: int = 1) -> None:
        """One picture's worth of the drive: ``steps`` of 0.02 s, then the server's commands are answered."""
        if self.window is not None:
            self.window.show(self.env.look())
            self._keys = Keys.of(self.window.pressed())
        for _ in range(steps):
            self._advance()
        self.client.frame()
        self._tell()

    def _advance(self) -> None:
        wanted, most = self._keys.turn, KEY_RATE * STEP_S
        self._hand += max(-most, min(most, wanted - self._hand))
        if self._keys.manual:
            self.env.advance(self._hand, self._keys.throttle)
        else:
            self.env.advance(self._steering, self._throttle)
        if self.env.is_lost():
            place = f"{self.env.track_position.s:.0f} m of the lap"
            self.say(f"{self.env.t_s:.0f} s: the car was lost at {place} and is put back on the road")
            self.env.put_back()
        off = self.env.wheels_off() > 0
        self.off_road += off and not self._was_off
        self._was_off = off
        if self.env.car.speed > 1:
            self.offsets.append(abs(self.env.track_position.offset))

    def _command(self, steering: float, throttle: float) -> None:
        self._steering, self._throttle = steering, throttle

    def _telemetry(self) -> Telemetry | None:
        if self._keys.manual:
            return None
        return Telemetry(
            steering_angle_deg=self._steering * FULL_LOCK,
            throttle=max(0.0, self._throttle),
            speed_mph=self.env.car.speed * MPH_PER_MPS,
            jpeg=self._jpeg(),
        )

    def _jpeg(self) -> bytes:
        """The front camera now; drawn once per instant, however often it is asked for."""
        if self._picture[0] != self.env.steps:
            blue_first = cv2.cvtColor(self.env.look(), cv2.COLOR_RGB2BGR)
            _, coded = cv2.imencode(".jpg", blue_first, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
            self._picture = self.env.steps, coded.tobytes()
        return self._picture[1]

    def _tell(self) -> None:
        if self.client.connections != self._connections:
            self._connections = self.client.connections
            self.say(f"connected to {self.client.host}:{self.client.port}")
        laps = int(self.env.track_position.driven / self.env.track_position.length)
        if laps > self._laps:
            self._laps = laps
            self.say(f"{self.env.t_s:.0f} s: lap {laps} done; " + self.summary())

    def summary(self) -> str:
        position = self.env.track_position
        mean = float(np.mean(self.offsets)) if self.offsets else 0.0
        return (
            f"{position.driven / position.length:.2f} laps, a wheel off the road {self.off_road} times, "
            f"put back {self.env.interventions} times, {mean:.2f} m from the middle on average"
        )
