"""PNG and JPEG by Pillow: frames in, bytes out, and back."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from nacdrive.common.errors import UserError, quoted

FORMATS = ("PNG", "JPEG")
MAX_SIDE = 8192
"""Pixels of a frame's height or width."""
MAX_PIXELS = 2**24
PNG_LEVEL = 4
PNG_STRATEGY = 3
"""zlib level and strategy (3: run lengths). On CarRacing frames run lengths are the fastest and nearly the smallest:
2.42 kB in 0.25 ms, against 2.53 kB in 0.35 ms for the default strategy at level 4 and 2.41 kB in 0.50 ms at level 6."""


def encode_png(frame: NDArray[np.uint8]) -> bytes:
    """PNG bytes of one RGB frame, uint8 [height, width, 3]; lossless."""
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        raise ValueError(f"a frame is uint8 [height, width, 3], not {frame.dtype} {list(frame.shape)}")
    buffer = BytesIO()
    Image.fromarray(frame).save(buffer, format="PNG", compress_level=PNG_LEVEL, compress_type=PNG_STRATEGY)
    return buffer.getvalue()


def encode_jpeg(frame: NDArray[np.uint8], quality: int = 75) -> bytes:
    """JPEG bytes of one RGB frame, uint8 [height, width, 3]; 75 is the quality of the Udacity simulator."""
    buffer = BytesIO()
    Image.fromarray(frame).save(buffer, format="JPEG", quality=quality)
    return buffer.getvalue()


class ImageError(UserError, ValueError):
    """Bytes that are no picture of a camera."""


def decode_image(data: bytes) -> NDArray[np.uint8]:
    """A frame, uint8 [height, width, 3], of PNG or JPEG bytes; ``ImageError`` if Pillow cannot, or it is too large."""
    image_header(data)
    unreadable = quoted("not a readable image: ", "", OSError, SyntaxError, ValueError, kind=ImageError)
    with unreadable, Image.open(BytesIO(data), formats=FORMATS) as image:
        return np.asarray(eight_bits(image).convert("RGB"))


def eight_bits(image: Image.Image) -> Image.Image:
    """A grey picture of 16 bits a pixel with 8 of them, where Pillow's ``convert`` cuts off at 255; others as is."""
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)) if image.mode.startswith("I;16") else image


def image_header(data: bytes) -> tuple[int, int, str]:
    """Height, width and mode (``RGB``, ...) of a PNG or JPEG, not decoded; ``ImageError`` for none or a large one."""
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            width, height, mode = *image.size, image.mode
    except Image.DecompressionBombError as error:
        raise ImageError("more pixels than any frame") from error
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, TypeError) as error:
        raise ImageError("not a readable image: no PNG or JPEG") from error
    check_size(height, width)
    return height, width, mode


def check_size(height: int, width: int) -> None:
    """Refuse sizes that no camera frame has."""
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE and height * width <= MAX_PIXELS):
        raise ImageError(f"{width} x {height} pixels are no frame")


def decode_frames(frames: Sequence[bytes]) -> NDArray[np.uint8]:
    """All frames of an episode, uint8 [frames, height, width, 3]."""
    first = decode_image(frames[0])
    out = np.empty((len(frames), *first.shape), dtype=np.uint8)
    for i, data in enumerate(frames):
        frame = decode_image(data)
        if frame.shape != first.shape:
            raise ImageError(f"frame {i} is {list(frame.shape)} where frame 0 is {list(first.shape)}")
        out[i] = frame
    return out
