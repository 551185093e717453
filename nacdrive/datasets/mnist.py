"""MNIST from its idx files, and its digits as irregular sequences of events (E-MNIST).

The files are those of LeCun, Cortes and Burges; E-MNIST is the event-based protocol of Lechner and Hasani,
"Learning long-term dependencies in irregularly-sampled time series" (2020): the binarised image is read row by row,
and every run of equal pixels is one event of a value and a duration.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError, quoted

MD5 = {
    "train-images": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels": "a25bea736e30d166cdddb491f175f624",
    "t10k-images": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels": "27ae3e4e09519cfbb04c329615203637",
}
"""Checksum of each part, unpacked."""
PIXEL_S = 1.0
"""Seconds that the scan spends on a pixel: durations and time stamps count pixels."""


@dataclass(frozen=True)
class Mnist:
    """The whole data set."""

    train_images: NDArray[np.uint8]  # [60000, 28, 28], 0 is paper and 255 ink
    train_labels: NDArray[np.uint8]  # [60000], the digit
    test_images: NDArray[np.uint8]  # [10000, 28, 28]
    test_labels: NDArray[np.uint8]  # [10000]


@dataclass(frozen=True)
class Events:
    """Images as sequences of events."""

    value: NDArray[np.float32]  # [N, length], 1 where the run is ink, else 0
    duration: NDArray[np.float32]  # [N, length], pixels in the run; 0 where there is padding
    padding: NDArray[np.bool_]  # [N, length], True behind an image's last run

    @property
    def t_s(self) -> NDArray[np.float32]:
        """[N, length] time at which each run ends: what is known of it is known then. Padding repeats the last time."""
        return np.cumsum(self.duration, axis=1, dtype=np.float32)


def load_mnist(folder: Path) -> Mnist:
    """The four idx files of ``folder``, packed or not; ``UserError`` if some are missing, damaged, or not MNIST's."""
    files = {part: part_file(folder, part) for part in MD5}
    if missing := [f"{part}-idx{idx_rank(part)}-ubyte" for part, path in files.items() if path is None]:
        what = f"{folder} lacks {', '.join(missing)} (.gz or unpacked)"
        raise UserError(f"{what}: 'nacdrive data fetch mnist' gets them, or name the folder that holds them.")
    parts = {part: read_part(path, part) for part, path in files.items() if path is not None}
    return Mnist(parts["train-images"], parts["train-labels"], parts["t10k-images"], parts["t10k-labels"])


def idx_rank(part: str) -> int:
    """Number of axes in a part's idx file."""
    return 3 if part.endswith("images") else 1


def part_file(folder: Path, part: str) -> Path | None:
    """The file of one part under any of its usual names, or None."""
    paths = [folder / f"{part}{dot}idx{idx_rank(part)}-ubyte{suffix}" for dot in "-." for suffix in ("", ".gz")]
    return next(filter(Path.is_file, paths), None)


def read_part(path: Path, part: str) -> NDArray[np.uint8]:
    """Unpack, check and decode one idx file: [N, 28, 28] or [N], read-only."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        with quoted(f"{path} cannot be unpacked (", "): delete it and fetch it again.", OSError, EOFError, zlib.error):
            data = gzip.decompress(data)
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if md5 != MD5[part]:
        raise UserError(
            f"{path} is not MNIST's {part}: its unpacked content has md5 {md5}, expected was {MD5[part]}; "
            "delete it and fetch it again."
        )
    return decode_idx(data)


def decode_idx(data: bytes) -> NDArray[np.uint8]:
    """Array in an idx file of unsigned bytes (two zeros, 0x08, rank, big-endian sizes, values)."""
    rank = data[3]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(np.frombuffer(data, ">u4", rank, offset=4))


def events(images: NDArray[np.uint8], threshold: int = 128, length: int = 256) -> Events:
    """Run-length events of binarised images, scanned row by row.

    MNIST's longest image has 105 runs at threshold 128, its average one 53: none loses an event at ``length=256``.
    Of an image [height, width] with more runs than ``length`` the first ones are kept; one with fewer is padded.
    """
    ink = images.reshape(len(images), math.prod(images.shape[1:])) >= threshold
    starts = np.ones_like(ink)
    starts[:, 1:] = ink[:, 1:] != ink[:, :-1]
    row, first = np.nonzero(starts)
    order = np.cumsum(starts, axis=1)[row, first] - 1
    ends = np.append(first[1:], 0)
    ends[np.append(row[1:] != row[:-1], True)] = ink.shape[1]
    kept = order < length
    row, first, order, run = row[kept], first[kept], order[kept], (ends - first)[kept]
    value = np.zeros((len(ink), length), np.float32)
    duration = np.zeros_like(value)
    value[row, order] = ink[row, first]
    duration[row, order] = run * PIXEL_S
    return Events(value, duration, padding=duration == 0)
