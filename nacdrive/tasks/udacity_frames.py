"""Camera images as the policy's convolutions see them, prepared once and kept as bytes."""

from __future__ import annotations

from collections.abc import Iterable

import cv2
import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError

HEIGHT, WIDTH = 160, 320
CROP = (60, HEIGHT - 25)
"""Rows that are kept: neither sky nor bonnet."""
SEEN = (66, 200)
"""Rows and columns that the convolutions see."""


def prepare(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[160, 320, 3] RGB -> [66, 200, 3] YUV: the quick twin of ``policies.preprocess``, within one grey level."""
    cut = cv2.resize(frame[CROP[0] : CROP[1]], SEEN[::-1], interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.cvtColor(cut, cv2.COLOR_RGB2YUV), dtype=np.uint8)


def prepared(images: Iterable[bytes], where: str) -> NDArray[np.uint8]:
    """Encoded images -> uint8 [N, 66, 200, 3] YUV.

    Raises:
        UserError: if one cannot be decoded or has another size than the simulator's; ``where`` it is from.
    """
    out = []
    for i, data in enumerate(images):
        frame = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
        if frame is None or frame.shape != (HEIGHT, WIDTH, 3):
            what = "cannot be decoded" if frame is None else f"is {frame.shape[1]}x{frame.shape[0]}"
            raise UserError(
                f"image {i} of {where} {what}: the simulator records {WIDTH}x{HEIGHT} pixels; leave that drive out."
            )
        out.append(prepare(np.asarray(frame, dtype=np.uint8)))
    return np.stack(out)
