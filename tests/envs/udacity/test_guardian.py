"""The guardian reads a stream from its middle, as any simulator writes it."""

from __future__ import annotations

import json
import os
import random
import struct

import pytest

from nacdrive.envs.udacity.engines import apply_mask
from nacdrive.envs.udacity.guardian import newest_speed
from nacdrive.extras.simulator.websocket_sharp import FRAGMENT


def frames(text: str, fragment: int = FRAGMENT) -> bytes:
    """A message as websocket-sharp writes it."""
    data, written = text.encode(), b""
    for start in range(0, len(data), fragment):
        payload, mask = data[start : start + fragment], os.urandom(4)
        first = (1 if start == 0 else 0) | (0x80 if start + fragment >= len(data) else 0)
        size = len(payload)
        head = struct.pack("!BB", first, 0x80 | size) if size < 126 else struct.pack("!BBH", first, 0xFE, size)
        written += head + mask + apply_mask(payload, mask)
    return written


def telemetry(speed: str) -> str:
    data = {"steering_angle": "0.0000", "throttle": "0.0000", "speed": speed, "image": "/9j/" + "x" * 14_000}
    return '42["telemetry",' + json.dumps(data, separators=(",", ":")) + "]"


@pytest.mark.parametrize(
    ("text", "speed"), [("12.3456", 12.3456), ("12,3456", 12.3456), ("12/3456", 12.3456), ("0.0000", 0.0), ("17", 17.0)]
)
def test_the_newest_speed_is_found_wherever_the_reading_begins(text: str, speed: float) -> None:
    stream = frames(telemetry("29.0000")) + frames("2") + frames(telemetry(text)) + frames("3")
    for start in random.Random(0).sample(range(14_000), 20):
        assert newest_speed(stream[start:])[0] == speed


def test_a_speed_counts_once_and_one_that_is_cut_off_counts_when_the_rest_has_come() -> None:
    stream = frames(telemetry("8.0000"))
    speed, rest = newest_speed(stream)
    assert speed == 8.0 and newest_speed(rest) == (None, rest)
    speed, kept = newest_speed(stream[-20:] + stream[:30])
    assert speed is None and newest_speed(kept + stream[30:])[0] == 8.0


def test_a_person_at_the_wheel_needs_no_brake() -> None:
    assert newest_speed(frames('42["telemetry",null]'))[0] == 0.0


def test_noise_has_no_speed() -> None:
    assert newest_speed(os.urandom(200_000))[0] is None
    assert newest_speed(frames(telemetry("1.0000"), 1 << 15)[:50])[0] is None
