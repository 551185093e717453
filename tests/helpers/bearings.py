"""Small files in the published formats of the bearing data sets. Made up: no result on them is one of a data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ROWS = 64


def pronostia(
    folder: Path,
    name: str = "Bearing1_1",
    snapshots: int = 4,
    *,
    sign: str = ",",
    newline: str = "\n",
    start_s: float = 9 * 3600,
    temperature: bool = False,
) -> Path:
    """``acc_*.csv`` of ``ROWS`` rows every ten seconds; channel values tell snapshot, row and axis."""
    target = folder / name
    target.mkdir(parents=True)
    for i in range(snapshots):
        lines = [[*clock(start_s + 10 * i), 1e4, i + row / 1000, -i - row / 1000] for row in range(ROWS)]
        write(target / f"acc_{i + 1:05d}.csv", lines, sign, newline)
    if temperature:
        for i in range(2):
            lines = [[*clock(start_s + 15 + 15 * i + s), 0, 40 + i + s / 10] for s in range(15)]
            write(target / f"temp_{i + 1:05d}.csv", lines, ";", "\r\n")
    return target


def xjtu(folder: Path, name: str = "Bearing1_1", snapshots: int = 12, *, header: bool = True) -> Path:
    """``1.csv`` ... in a folder of the condition, with the published header."""
    target = folder / "35Hz12kN" / name
    target.mkdir(parents=True)
    for i in range(snapshots):
        lines: list[list[object]] = [[i + row / 1000, -i] for row in range(ROWS)]
        if header:
            lines.insert(0, ["Horizontal_vibration_signals", "Vertical_vibration_signals"])
        write(target / f"{i + 1}.csv", lines, ",", "\r\n")
    return target


def hust(folder: Path, name: str, samples: int) -> Path:
    """A ``.mat`` file of one signal whose values count its samples."""
    from scipy.io import savemat

    path = folder / name
    signal = np.arange(samples, dtype=np.float64)[:, None]
    savemat(path, {"data": signal, "rpm": -np.ones((samples + 1, 1)), "fs": 24.07})
    return path


def clock(seconds: float) -> list[object]:
    """Hour, minute, second."""
    whole = int(seconds) % 86_400
    return [whole // 3600, whole // 60 % 60, whole % 60]


def write(path: Path, lines: list[list[object]], sign: str, newline: str) -> None:
    path.write_bytes("".join(sign.join(map(str, line)) + newline for line in lines).encode())
