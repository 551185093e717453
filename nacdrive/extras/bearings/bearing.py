"""One bearing: its vibration, snapshot by snapshot, read from the user's files when asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError


@dataclass(frozen=True)
class Bearing:
    """Snapshots of one bearing in the order in which they were taken."""

    name: str
    """As its data set calls it, such as ``Bearing1_4``."""
    condition: str
    dataset: str
    """``pronostia``, ``xjtu-sy`` or ``hust``."""
    files: tuple[Path, ...]
    snapshot_s: NDArray[np.float64]
    """[N] time of each snapshot in seconds since the first."""
    rate_hz: float
    samples: int
    read_file: Callable[[Path], NDArray[np.float32]]
    """Reads a file as [rows, axes]."""
    starts: NDArray[np.int64] | None = None
    """[N] row at which each snapshot begins in its file; None where a file is a snapshot."""
    temperature_c: NDArray[np.float32] | None = None
    """[N] temperature in degrees Celsius, the last value measured before each snapshot; None where not recorded."""

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> NDArray[np.float32]:
        """Vibration of one snapshot in g, [samples, axes]."""
        path = self.files[index]
        values = self.read_file(path)
        start = 0 if self.starts is None else int(self.starts[index])
        if len(values) < start + self.samples or (self.starts is None and len(values) != self.samples):
            raise UserError(
                f"{path} has {len(values)} rows where {start + self.samples} belong (as in {self.files[0].name}): "
                "fetch it again, or move it away."
            )
        return values[start : start + self.samples]
