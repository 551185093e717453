"""What files of strangers may ask for: no path out of their folder, no picture or column larger than it says."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from nacdrive.common.errors import UserError
from nacdrive.common.files import read_json
from nacdrive.datasets.images import decode_image, encode_png

MAX_SIDE = 8192
"""Pixels of a frame's height or width."""
MAX_PIXELS = 2**24
"""Pixels of a frame."""
MAX_FRAMES = 10**8
"""Frames of a data set."""
MAX_EPISODE_BYTES = 2**32
"""Encoded images of an episode, which is held in memory as a whole."""
MAX_JSON_BYTES = 2**26
"""Of a JSON file; one box of 8192 x 8192 would be larger, a data set's own are a few megabytes."""
MAX_COLUMN_BYTES = 2**32
"""Of one column in one row group, uncompressed."""
MAX_LIST = 4096
"""Numbers in a row of a column."""


def within(folder: Path, name: str) -> Path:
    """The file ``name`` of a data set in ``folder``.

    Raises:
        UserError: if it is missing, no file, or a link that leads out of the folder.
    """
    path = folder / name
    if not path.is_file():
        raise UserError(f"{path} is missing: get the whole data set again.")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{path} is a link that leads out of {folder}: copy the data set with its files (cp -rL).")
    return path


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file of a sane length.

    Raises:
        UserError: if the file is missing, too long, damaged or holds something else.
    """
    if path.is_file() and path.stat().st_size > MAX_JSON_BYTES:
        raise UserError(f"{path} is longer than {MAX_JSON_BYTES >> 20} MiB, which no description of a data set is.")
    found = read_json(path)
    if not isinstance(found, dict):
        raise UserError(f"{path} holds no JSON object: it is damaged or another kind of file.")
    return found


def parse_object(text: Any) -> dict[str, Any]:
    """A JSON object from a text.

    Raises:
        ValueError: if it is none.
    """
    try:
        found = json.loads(text)
    except (RecursionError, TypeError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(found, dict):
        raise ValueError(f"{str(text)[:40]!r} is no JSON object")
    return found


def open_parquet(path: Path) -> pq.ParquetFile:
    """A Parquet file whose columns are no larger than their rows can ask for.

    Raises:
        UserError: if it is truncated, damaged or another kind of file, or says that it holds absurdly much.
    """
    try:
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
    except (pa.ArrowException, OSError, ValueError) as error:
        raise damaged_parquet(path, error) from error
    return file


def damaged_parquet(path: Path, error: Exception) -> UserError:
    """The sentence for a Parquet file that cannot be read to its end."""
    return UserError(f"{path} is truncated or damaged, or no Parquet file ({first_line(error)}): get it again.")


def first_line(error: BaseException) -> str:
    """What an error of a library says, cut short."""
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


def image_header(data: bytes) -> tuple[int, int, str]:
    """Height, width and mode (``RGB``, ...) of a PNG or JPEG image, without decoding it.

    Raises:
        ValueError: if it is neither, or too large for a frame.
    """
    try:
        with Image.open(BytesIO(data), formats=("PNG", "JPEG")) as image:
            width, height, mode = *image.size, image.mode
    except Image.DecompressionBombError as error:
        raise ValueError("more pixels than any frame") from error
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, TypeError) as error:
        raise ValueError("no PNG or JPEG image") from error
    check_size(height, width)
    return height, width, mode


def check_size(height: int, width: int) -> None:
    """Refuse sizes that no camera frame has.

    Raises:
        ValueError: for such a size.
    """
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE and height * width <= MAX_PIXELS):
        raise ValueError(f"{width} x {height} pixels are no frame")


def as_rgb(data: bytes, size: tuple[int, int]) -> bytes:
    """A PNG or JPEG image of ``size`` (height, width) as it is, if it is RGB; any other as a PNG of the same pixels.

    Raises:
        ValueError: if it is none, of another size, or cannot be decoded to its end.
    """
    height, width, mode = image_header(data)
    if (height, width) != size:
        raise ValueError(f"{width} x {height} pixels instead of {size[1]} x {size[0]}")
    pixels: NDArray[np.uint8] = decode_image(data)
    return data if mode == "RGB" else encode_png(pixels)
