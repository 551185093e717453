"""Files of strangers: no path out of their folder, no picture or column larger than it says, nacdrive's own units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from nacdrive.common.errors import UserError, first_line, quoted
from nacdrive.datasets.episode_file import UNITS
from nacdrive.datasets.images import decode_image, encode_png, image_header
from nacdrive.datasets.staging import header_of

MAX_FRAMES = 10**8
MAX_EPISODE_BYTES = 2**32
"""Encoded images of an episode, which is held in memory as a whole."""
MAX_COLUMN_BYTES = 2**32
"""Of one column in one row group, uncompressed."""
MAX_LIST = 4096
"""Numbers in a row of a column."""
ACTION_NAMES = {
    "steering": ("steering", "steer", "steering_angle", "steering_wheel"),
    "throttle": ("throttle", "gas", "gas_pedal", "accelerator"),
    "brake": ("brake", "brake_pedal", "braking"),
}
"""What others call the three numbers of an action, in small letters."""
OURS = "nacdrive.json"
"""The file in which nacdrive keeps, in a data set of others, what only a recording says of itself."""
OURS_VERSION = 1


def own_part(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What only a recording says of itself, for ``own_header`` to read in a data set of others."""
    return {"version": OURS_VERSION, "recording": header_of(meta), "units": UNITS}


def strangers_header(folder: Path, source: str, fps: float, kind: str) -> dict[str, Any]:
    """The header of a recording that is made of somebody else's data set of a ``kind``."""
    return {"source": source, "fps": fps, "expert": kind, "recipe": {"imported": folder.resolve().name, "format": kind}}


def own_header(path: Path, ours: Any) -> dict[str, Any]:
    """What a recording says of itself in ``path``, in a data set that nacdrive wrote."""
    version, header = (ours.get(name) if isinstance(ours, dict) else None for name in ("version", "recording"))
    if isinstance(version, int) and version > OURS_VERSION:
        raise UserError(f"{path} is of a nacdrive version {version}: install a newer nacdrive.")
    if not isinstance(version, int) or not isinstance(header, dict) or not isinstance(header.get("source"), str):
        alone = ", or delete it to import the data set as a stranger's" if path.name == OURS else ""
        raise UserError(f"{path} is damaged in what nacdrive wrote there: get it again{alone}.")
    return header


def within(folder: Path, name: str) -> Path:
    """The file ``name`` of a data set in ``folder``."""
    path = folder / name
    if not path.is_file():
        raise UserError(f"{path} is missing: get the whole data set again.")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{path} is a link that leads out of {folder}: copy the data set with its files (cp -rL).")
    return path


def open_parquet(path: Path) -> pq.ParquetFile:
    """A Parquet file whose columns are no larger than their rows can ask for."""
    with damaged_parquet(path, ValueError):
        # Without pre_buffer, which would hold the whole file.
        limits = {"thrift_string_size_limit": 2**27, "thrift_container_size_limit": 2**22}
        file = pq.ParquetFile(path, pre_buffer=False, **limits)
        metadata = file.metadata
        for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
            for column in (group.column(i) for i in range(group.num_columns)):
                too_many = column.num_values > MAX_LIST * max(group.num_rows, 1)
                if too_many or column.total_uncompressed_size > MAX_COLUMN_BYTES:
                    raise UserError(f"{path} holds more in '{column.path_in_schema}' than a recording can: not read.")
        # Names that are no text are found here, too.
        assert file.schema_arrow is not None
    return file


def damaged_parquet(path: Path, *kinds: type[Exception]) -> AbstractContextManager[None]:
    """What a Parquet file that cannot be read to its end raises, also one of these ``kinds``, becomes a sentence."""
    before = f"{path} is truncated or damaged, or no Parquet file ("
    kinds = pa.ArrowException, OSError, *kinds
    return quoted(before, "): get it again.", *kinds, say=lambda error: first_line(error)[:160])


def as_rgb(data: bytes, size: tuple[int, int]) -> bytes:
    """A PNG or JPEG image of ``size`` (height, width) as it is, if it is RGB; any other as a PNG of the same pixels.
    ``ValueError`` if it is none, of another size, or cannot be decoded to its end.
    """
    height, width, mode = image_header(data)
    if (height, width) != size:
        raise ValueError(f"{width} x {height} pixels instead of {size[1]} x {size[0]}")
    pixels: NDArray[np.uint8] = decode_image(data)
    return data if mode == "RGB" else encode_png(pixels)


def columns_of_action(names: Sequence[str]) -> dict[str, int] | None:
    """Our name -> place of each number of an action with these names; None if none steers or one is unknown."""
    columns: dict[str, int] = {}
    for index, name in enumerate(names):
        ours = next((ours for ours, known in ACTION_NAMES.items() if name.lower() in known), None)
        if ours is None or ours in columns:
            return None
        columns[ours] = index
    return columns if "steering" in columns else None


def split_actions(rows: NDArray[Any], columns: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """Steering, throttle and brake [frames] of [frames, width] (or [frames]) actions; 0 where there is none."""
    rows = rows.reshape(len(rows), -1)
    if rows.shape[1] != len(columns):
        raise ValueError(f"has actions of {rows.shape[1]} numbers instead of {len(columns)}")
    zero = np.zeros(len(rows), np.float32)
    return {name: rows[:, columns[name]] if name in columns else zero for name in ACTION_NAMES}


def check_range(steering: NDArray[Any], throttle: NDArray[Any], brake: NDArray[Any]) -> None:
    """Refuse actions in other units."""
    for name, values, low in (("steering", steering, -1), ("throttle", throttle, 0), ("brake", brake, 0)):
        # Written so that NaN is refused too.
        if not ((values >= low) & (values <= 1)).all():
            raise ValueError(
                f"has a {name} from {float(np.min(values)):g} to {float(np.max(values)):g}, and {low} .. 1 is asked for"
            )


def clock(t_s: NDArray[Any], fps: float) -> NDArray[np.float64]:
    """Strictly increasing times in seconds: those given, or where they stand still or run back, even ones."""
    times = np.asarray(t_s, dtype=np.float64)
    if np.isfinite(times).all() and (np.diff(times) > 0).all():
        return times
    return np.arange(len(times), dtype=np.float64) / fps
