"""What a PPO agent sees of a frame: its size, its colours, and how many frames at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

ROWS = 84
"""Rows of CarRacing's frame above the instruments."""
SIDE = 48
STACK = 4
SCORE_COLUMNS = 12
"""The score stands in the first columns of the instruments and tells nothing of how to drive."""
INSTRUMENT_PIXELS = 12 * (96 - SCORE_COLUMNS)


@dataclass(frozen=True)
class View:
    """Frames as an agent gets them; the defaults are those of nacdrive's own agents on CarRacing."""

    frames: int = STACK
    """How many of them, oldest first."""
    height: int = SIDE
    width: int = SIDE
    colour: bool = False
    """Three channels of each instead of one of grey."""
    rows: int | None = ROWS
    """Of the frame that are seen, from above; None for all."""
    zeros: bool = False
    """At the start of an episode the frames before it are black (``VecFrameStack``) instead of the first one again."""
    instruments: bool = False
    """The instruments of CarRacing, of which a small picture would lose too much, follow pixel by pixel below the road:
    rows 84 to 95 of the frame without the score, cut into rows of the small one's width (48)."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """[channels, height, width] of an observation."""
        below = INSTRUMENT_PIXELS // self.width if self.instruments else 0
        return self.frames * (3 if self.colour else 1), self.height + below, self.width

    def small(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """uint8 [height, width, 3] RGB or [height, width] grey -> [channels of one frame, height, width]."""
        seen: NDArray[Any] = frame[: self.rows]
        if seen.ndim == 3 and not self.colour:
            seen = cv2.cvtColor(seen, cv2.COLOR_RGB2GRAY)
        elif seen.ndim == 2 and self.colour:
            seen = cv2.cvtColor(seen, cv2.COLOR_GRAY2RGB)
        if seen.shape[:2] != (self.height, self.width):
            seen = np.asarray(cv2.resize(seen, (self.width, self.height), interpolation=cv2.INTER_AREA))
        if self.instruments:
            panel = frame[ROWS:, SCORE_COLUMNS:]
            grey = cv2.cvtColor(np.ascontiguousarray(panel), cv2.COLOR_RGB2GRAY) if panel.ndim == 3 else panel
            seen = np.concatenate([seen, np.reshape(grey, (-1, self.width))])
        return np.asarray(np.moveaxis(seen, 2, 0) if self.colour else seen[None], dtype=np.uint8)


class FrameStack:
    """The last small frames, oldest first; at the start of an episode as the view has it."""

    def __init__(self, view: View | None = None) -> None:
        self.view = view or View()
        self.frames = np.zeros(self.view.shape, dtype=np.uint8)
        self._empty = True

    def reset(self) -> None:
        self._empty = True

    def push(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Add a frame; returns the stack uint8 ``view.shape``, valid until the next push."""
        small = self.view.small(frame)
        each = len(small)
        if self._empty:
            self.frames[:] = 0 if self.view.zeros else np.tile(small, (self.view.frames, 1, 1))
            self._empty = False
        else:
            self.frames[:-each] = self.frames[each:]
        self.frames[-each:] = small
        return self.frames
