"""HUST: MATLAB files of one accelerometer, one per bearing type, load and seeded fault; nothing runs to failure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError
from nacdrive.extras.bearings.bearing import Bearing

RATE_HZ = 51_200.0
SNAPSHOT = 51_200
"""Samples of a snapshot: each recording of about ten seconds is cut into seconds."""
LOADS = {"00": "0 W", "02": "200 W", "04": "400 W"}
FAULTS = ("N", "I", "O", "B", "IO", "IB", "OB")
"""Healthy, inner race, outer race, ball, and their pairs: the order in which a bearing's files are put."""
FILE_NAME = re.compile(r"(N|IO|OI|IB|BI|OB|BO|I|O|B)([4-8])(00|02|04)\.mat", re.IGNORECASE)


def recordings_of(paths: Iterable[Path]) -> dict[tuple[str, str], list[Path]]:
    """Files named such as ``B500.mat`` by (bearing type, load), healthy first."""
    groups: dict[tuple[str, str], dict[int, Path]] = defaultdict(dict)
    for path in paths:
        match = FILE_NAME.fullmatch(path.name)
        if match:
            order = next(i for i, fault in enumerate(FAULTS) if sorted(match[1].upper()) == sorted(fault))
            groups[f"620{match[2]}", LOADS[match[3]]][order] = path
    return {key: [files[order] for order in sorted(files)] for key, files in groups.items()}


def open_hust(name: str, condition: str, paths: list[Path]) -> Bearing:
    """All recordings of one bearing type at one load, cut into snapshots; times count recorded seconds, not wear."""
    whole = {path: range(0, len(read_mat(path)) - SNAPSHOT + 1, SNAPSHOT) for path in paths}
    files = [path for path, starts in whole.items() for _ in starts]
    return Bearing(
        name=name,
        condition=condition,
        dataset="hust",
        files=tuple(files),
        snapshot_s=np.arange(len(files), dtype=np.float64) * SNAPSHOT / RATE_HZ,
        rate_hz=RATE_HZ,
        samples=SNAPSHOT,
        read_file=read_mat,
        starts=np.array([start for starts in whole.values() for start in starts], np.int64),
    )


@lru_cache(maxsize=1)
def read_mat(path: Path) -> NDArray[np.float32]:
    """Signal of a MATLAB file, [samples, 1]: its variable ``data``, or else its longest one. Remembers the last file.

    The variable ``fs`` of the published files is the speed of the shaft, not the sampling rate.
    """
    from scipy.io import loadmat

    try:
        content: dict[str, Any] = loadmat(path)
    except NotImplementedError as error:
        raise UserError(
            f"{path} is a MATLAB 7.3 file: save it as version 7 (in MATLAB: save('FILE.mat', '-v7'))."
        ) from error
    except Exception as error:  # a damaged file makes loadmat raise nearly anything
        raise UserError(f"{path} cannot be read as a MATLAB file ({error}): fetch it again.") from error
    arrays = {k: a for k, a in content.items() if isinstance(a, np.ndarray) and a.dtype.kind in "fiu"}
    longest = max(arrays.values(), key=np.size, default=np.zeros(0))
    signal = arrays.get("data", longest).astype(np.float32).ravel()
    if len(signal) < SNAPSHOT:
        raise UserError(f"{path} holds no signal of a second or more: it is no HUST recording.")
    bad = np.flatnonzero(~np.isfinite(signal))
    if len(bad):
        raise UserError(f"{path} sample {bad[0] + 1} is no finite number: fetch the file again.")
    return signal[:, None]
