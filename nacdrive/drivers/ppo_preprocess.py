"""From a frame of CarRacing to what the expert's network sees: grey, 48 x 48, the last four decisions."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

SIDE = 48
STACK = 4
ROWS = 84
"""Rows of the frame above the instruments."""


def downscale(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8 [96, 96, 3] RGB or [84.., 96] grey -> uint8 [48, 48] grey, without the instruments."""
    grey = cv2.cvtColor(frame[:ROWS], cv2.COLOR_RGB2GRAY) if frame.ndim == 3 else frame[:ROWS]
    return np.asarray(cv2.resize(grey, (SIDE, SIDE), interpolation=cv2.INTER_AREA), dtype=np.uint8)


class FrameStack:
    """The last four small frames, oldest first; at the start of an episode all four are the first frame."""

    def __init__(self) -> None:
        self.frames = np.zeros((STACK, SIDE, SIDE), dtype=np.uint8)
        self._empty = True

    def reset(self) -> None:
        """Forget the episode."""
        self._empty = True

    def push(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Add a frame; returns the stack uint8 [4, 48, 48], valid until the next push."""
        small = downscale(frame)
        if self._empty:
            self.frames[:] = small
            self._empty = False
        else:
            self.frames[:-1] = self.frames[1:]
            self.frames[-1] = small
        return self.frames
