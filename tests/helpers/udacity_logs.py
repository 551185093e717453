"""Tiny logs as the Udacity simulator writes them."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from nacdrive.datasets.images import encode_jpeg

BEGAN = datetime(2018, 7, 16, 17, 11, 43, 382000)


def stamps(count: int, gap_ms: int = 70) -> list[str]:
    times = [BEGAN + timedelta(milliseconds=gap_ms * i) for i in range(count)]
    return [f"{t:%Y_%m_%d_%H_%M_%S}_{t.microsecond // 1000:03d}" for t in times]


def numbers(count: int) -> np.ndarray:
    """[count, 4] steering, throttle, brake and speed in miles per hour, with the digits of a float32."""
    rng = np.random.default_rng(0)
    values = np.stack([rng.uniform(-1, 1, count), rng.uniform(0, 1, count), np.zeros(count), rng.uniform(5, 30, count)])
    return np.array([[float(f"{v:.7G}") for v in row] for row in values.T])


def make_log(
    folder: Path,
    count: int = 4,
    *,
    prefix: str = "C:\\Users\\A B\\new_track\\IMG\\",
    header: str = "",
    blank: str = "",
    decimal: str = ".",
    end: str = "\n",
    rows: np.ndarray | None = None,
) -> Path:
    """A log of ``count`` rows with its images."""
    (folder / "IMG").mkdir(parents=True)
    lines = [header] if header else []
    values = numbers(count) if rows is None else rows
    for i, stamp in enumerate(stamps(count)):
        names = [f"{camera}_{stamp}.jpg" for camera in ("center", "left", "right")]
        for k, name in enumerate(names):
            picture = np.full((160, 320, 3), (10 * i) % 256, np.uint8)
            picture[:, :, k] = 200
            (folder / "IMG" / name).write_bytes(encode_jpeg(picture))
        written = [f"{v:.7G}".replace(".", decimal) for v in values[i]]
        lines.append(f",{blank}".join([*(prefix + name for name in names), *written]))
    (folder / "driving_log.csv").write_bytes((end.join(lines) + end).encode())
    return folder
