"""Ticks as bytes: a small JSON header, then the frame (PNG, JPEG), the saliency (grey bytes), the neurons (float32).

Layout of one message: ``uint32 n`` (little endian), ``n`` bytes of JSON padded with spaces to a multiple of four,
then the parts one after another, each padded to a multiple of four so that a browser can view them in place.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv

JPEG_QUALITY = 90
LOSSLESS_PIXELS = 160 * 160
"""Frames of at most so many pixels travel as PNG, every pixel as the network got it; larger ones as JPEG."""
LARGEST_SIDE = 640
"""Wider frames are halved until they fit: the page shows them no larger."""
ROAD_POINTS = 400
"""Of each edge of a road, at most."""
EXACT_VALUES = 512
"""Neuron arrays up to this size travel as float32; larger ones as bytes between their own minimum and maximum."""


@dataclass(frozen=True)
class Packed:
    """The parts of a Tick that are the same for every viewer, encoded once."""

    lane: int
    seq: int
    row: Sequence[float | int | None] | None
    """The Tick's numbers, in the order of ``COLUMNS``; None where the page has them already."""
    parts: tuple[dict[str, Any], ...]
    body: bytes


def road_json(env: DrivingEnv) -> list[Any] | None:
    """Edges of the road of the environment's episode as plain JSON: two closed lines of places in metres."""
    edges = env.road_edges()
    return None if edges is None else edges[:, :: -(-edges.shape[1] // ROAD_POINTS)].round(1).tolist()


def pack(tick: Tick, seq: int, row: Sequence[float | int | None] | None = None, lane: int = 0) -> Packed:
    """Encode frame, saliency, scores, neurons and why of ``tick``."""
    parts: list[dict[str, Any]] = []
    blobs: list[bytes] = []

    def add(name: str, kind: str, blob: bytes, shape: tuple[int, ...], **more: Any) -> None:
        parts.append({"name": name, "kind": kind, "bytes": len(blob), "shape": list(shape), **more})
        blobs.append(blob + bytes(-len(blob) % 4))

    kind, image, size = encode_frame(tick.frame)
    add("frame", kind, image, size)
    if tick.saliency is not None:
        # It is smooth, and the page smooths it.
        grey = as_bytes(halved(np.asarray(tick.saliency, dtype=np.float32), 64), 0.0, 1.0)
        add("saliency", "u8", grey.tobytes(), grey.shape, lo=0.0, hi=1.0)
    for name, decided in (("logits", tick.policy or tick.action), ("expert_logits", tick.expert)):
        if decided is not None and decided.logits is not None:
            scores = np.ascontiguousarray(decided.logits, "<f4")
            add(name, "f32", scores.tobytes(), scores.shape)
    if tick.why is not None:
        add("why", "json", json.dumps(tick.why, allow_nan=False, separators=(",", ":")).encode(), ())
    for name, values in tick.neurons.items():
        array = np.ascontiguousarray(values, "<f4")
        if array.size <= EXACT_VALUES:
            add(f"neurons.{name}", "f32", array.tobytes(), array.shape)
        else:
            lo, hi = bounds(array)
            add(f"neurons.{name}", "u8", as_bytes(array, lo, hi).tobytes(), array.shape, lo=lo, hi=hi)
    return Packed(lane, seq, row, tuple(parts), b"".join(blobs))


def message(header: dict[str, Any], packed: Sequence[Packed]) -> bytes:
    """One message: ``header`` (what this viewer has not seen) and the shared parts of the Ticks that are shown."""
    ticks = [{"lane": one.lane, "seq": one.seq, "row": one.row} for one in packed]
    parts = [{**part, "lane": one.lane} for one in packed for part in one.parts]
    head = json.dumps({**header, "ticks": ticks, "parts": parts}, allow_nan=False, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 4)
    return b"".join((struct.pack("<I", len(head)), head, *(one.body for one in packed)))


def encode_frame(frame: NDArray[np.uint8]) -> tuple[str, bytes, tuple[int, int]]:
    """Kind ("png" or "jpeg"), bytes, and (height, width) of ``frame`` on the wire."""
    image = halved(np.asarray(frame), LARGEST_SIDE)
    kind = "png" if image.shape[0] * image.shape[1] <= LOSSLESS_PIXELS else "jpeg"
    options = [] if kind == "png" else [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]
    _, encoded = cv2.imencode(f".{kind}", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)
    return kind, encoded.tobytes(), (int(image.shape[0]), int(image.shape[1]))


def halved(image: NDArray[Any], largest: int) -> NDArray[Any]:
    """``image`` at half its size, and again, until no side is larger than ``largest``."""
    while max(image.shape[:2]) > largest:
        image = cv2.resize(image, (image.shape[1] // 2, image.shape[0] // 2), interpolation=cv2.INTER_AREA)
    return image


def bounds(array: NDArray[np.float32]) -> tuple[float, float]:
    """Smallest and largest finite value, never equal."""
    known = array[np.isfinite(array)]
    lo, hi = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    return (lo, hi) if hi > lo else (lo, lo + 1.0)


def as_bytes(array: NDArray[np.float32], lo: float, hi: float) -> NDArray[np.uint8]:
    """``array`` scaled from ``lo`` .. ``hi`` to 0 .. 255; what is not a number becomes ``lo``."""
    scaled = np.nan_to_num((array - lo) * (255.0 / (hi - lo)), nan=0.0, posinf=255.0, neginf=0.0)
    return np.asarray(np.clip(scaled + 0.5, 0, 255), np.uint8)
