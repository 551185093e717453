"""Features that were computed before: kept beside the data, or in the user's cache where that cannot be written."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.files import atomic_path
from nacdrive.common.paths import cache_folder
from nacdrive.extras.bearings.bearing import Bearing

FOLDER = ".nacdrive"


class Kept:
    """Features of one bearing by one recipe."""

    def __init__(self, bearing: Bearing, recipe: Mapping[str, Any]) -> None:
        """Find the place: another one when a file of ``bearing`` has another size or time, or of another ``recipe``."""
        files = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in dict.fromkeys(bearing.files)]
        key = [dict(recipe), bearing.dataset, bearing.name, bearing.condition, files, bearing.rate_hz]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        name = f"features-{bearing.name}-{digest}.npz"
        self.snapshots = len(bearing)
        self.beside = bearing.files[0].parent / FOLDER / name
        self.cached = cache_folder() / "features" / name

    def read(self) -> NDArray[np.float32] | None:
        for path in (self.beside, self.cached):
            try:
                with np.load(path) as content:
                    values: NDArray[np.float32] = content["features"]
            except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
                continue
            if values.ndim == 3 and len(values) == self.snapshots:
                return values
        return None

    def write(self, values: NDArray[np.float32]) -> None:
        """Keep features; says so where they cannot lie beside the data."""
        try:
            write_npz(self.beside, values)
        except OSError:
            print(
                f"{self.beside.parent.parent} cannot be written: features are kept in {self.cached.parent}",
                file=sys.stderr,
            )
            write_npz(self.cached, values)


def write_npz(path: Path, values: NDArray[np.float32]) -> None:
    """Write features atomically."""
    with atomic_path(path) as partial, partial.open("wb") as handle:
        np.savez_compressed(handle, features=values)
