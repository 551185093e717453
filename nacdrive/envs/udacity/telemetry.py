"""What the simulator reports and what it is answered, in the numbers' form of its operating system's culture.

The simulator writes numbers with .NET's ``ToString("N4")`` and reads them with ``float.Parse``, both under the culture
of the operating system. In a comma culture "0.25" is read as 25, or not at all, so answers use its own separator.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from nacdrive.common.units import MPS_PER_MPH

WIDTH, HEIGHT = 320, 160
STEERING_LOCK_DEG = 25.0
"""Angle of the wheels at full steering."""
LARGEST_NUMBER = 1e30
"""A recording has no room for larger ones."""
MOST_SCANS = 4
"""Of a picture; a thumbnail in it has some of its own."""
LARGEST_IMAGE = 4 << 20
"""Characters of base64; the simulator's pictures have about 15 000."""
# N4 always has four decimals, whatever stands before them; the sign is a minus or U+2212, in front or behind.
N4 = re.compile(r"[^0-9]*[0-9].*?([^0-9\ud800-\udfff])[0-9]{4}[^0-9]*", re.DOTALL)
FOREIGN = {"cte": "Term 2, PID", "ptsx": "Term 2, MPC", "sensor_fusion": "Term 3"}


class BadTelemetryError(Exception):
    """A report that cannot be driven by; half a sentence about why."""


class ForeignTelemetryError(Exception):
    """A report of another simulator; half a sentence about which."""


@dataclass(frozen=True)
class Report:
    """One telemetry in nacdrive's units, its picture not yet decoded."""

    steering: float
    """-1 left .. 1 right."""
    throttle: float
    """0 .. 1."""
    speed_mps: float
    separator: str
    """Decimal separator of the simulator's numbers."""
    image: str
    """Base64 of a JPEG."""


def read(data: Any) -> Report:
    """Read a telemetry; ``BadTelemetryError`` if it is none, ``ForeignTelemetryError`` if it is not that of Term 1."""
    if not isinstance(data, Mapping):
        raise BadTelemetryError(f"its telemetry is no object but {type(data).__name__}")
    for key, name in FOREIGN.items():
        if key in data:
            raise ForeignTelemetryError(f"it is the simulator of {name}, and nacdrive drives that of Term 1")
    numbers = {name: data.get(name) for name in ("steering_angle", "throttle", "speed")}
    if any(isinstance(value, int | float) for value in numbers.values()):
        what = "it sends numbers where the simulator of Term 1 sends strings"
        raise ForeignTelemetryError(f"{what}: nacdrive does not know it")
    angle, throttle, speed = (number(name, value) for name, value in numbers.items())
    image = data.get("image")
    if not isinstance(image, str):
        raise BadTelemetryError("its telemetry has no camera image")
    separator = N4.fullmatch(str(numbers["steering_angle"]))
    return Report(angle / STEERING_LOCK_DEG, throttle, speed * MPS_PER_MPH, separator[1] if separator else ".", image)


def number(name: str, text: Any) -> float:
    """The value of a number in N4 form under any culture; plain decimals of other programs are read too."""
    if not isinstance(text, str):
        raise BadTelemetryError(f"its telemetry has no {name}")
    # A number longer than a double's digits is no number of the simulator's.
    try:
        if len(text) <= 32 and N4.fullmatch(text):
            value = int("".join(re.findall("[0-9]", text))) / (-1e4 if "-" in text or "\u2212" in text else 1e4)
        else:
            value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) < LARGEST_NUMBER:
        raise BadTelemetryError(f"its {name} is no number: '{text[:32]}'")
    return value


def picture(image: str) -> tuple[NDArray[np.uint8], bytes]:
    """Decode base64 JPEG or PNG: uint8 [160, 320, 3], RGB, and its own bytes; ``BadTelemetryError`` for any other."""
    if len(image) > LARGEST_IMAGE:
        raise BadTelemetryError(f"its camera image has {len(image) / 1e6:.1f} MB")
    try:
        data = base64.b64decode(image, validate=True)
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as opened:
            if opened.size != (WIDTH, HEIGHT):
                width, height = opened.size
                raise BadTelemetryError(f"its camera image is {width} x {height} and not {WIDTH} x {HEIGHT}")
            scans = data.count(b"\xff\xda") if opened.format == "JPEG" else 1
            if opened.info.get("progressive") or scans > MOST_SCANS:
                # Twenty thousand tiny scans take a second to decode; the simulator's pictures have one.
                raise BadTelemetryError("its camera image is a progressive JPEG, and a plain one is expected")
            return np.array(opened.convert("RGB")), data
    except (Image.DecompressionBombError, OSError, SyntaxError, ValueError) as error:
        # ValueError: no base64, or a PNG whose texts unpack to too much.
        raise BadTelemetryError("its camera image cannot be decoded") from error


def answer(steering: float, throttle: float, separator: str) -> dict[str, str]:
    """The argument of ``steer``: steering and throttle (negative: brake) in -1 .. 1, as strings it can read."""
    texts = (f"{min(1.0, max(-1.0, value)):.6f}" for value in (steering, throttle))
    angle, pedal = (text.replace(".", separator) for text in texts)
    return {"steering_angle": angle, "throttle": pedal}
