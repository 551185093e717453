"""A window on the drive, and the keyboard beside it."""

from __future__ import annotations

import os
import time

import cv2
import numpy as np
from numpy.typing import NDArray

# Panda3D's own windows stay black with the software renderer on some X servers; pygame's come with gymnasium.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import pygame

from nacdrive.common.errors import quoted

SIZE = 960, 480
UNSEEN = ("dummy", "offscreen")
"""SDL's drivers that open no window."""
NAMES = ("w", "a", "s", "d", "up", "down", "left", "right", "escape")
KEYS = {name: getattr(pygame, f"K_{name.upper() if len(name) > 1 else name}") for name in NAMES}


class Window:
    """A window that shows the pictures it is given, three times as large; one at a time in a process."""

    def __init__(self, pace_s: float = 0.0) -> None:
        """``pace_s``: the least time of a ``show``, for a drive at its real speed; ``UserError`` without a display."""
        with quoted("no window can be opened here (", "): drive without one, or log in to a desktop.", pygame.error):
            pygame.display.quit()
            self.surface = pygame.display.set_mode(SIZE)
            # Without a display SDL draws into memory, and nobody would see it.
            if pygame.display.get_driver() in UNSEEN:
                pygame.display.quit()
                raise pygame.error("there is no display")
        pygame.display.set_caption("nacdrive")
        self.pace_s = pace_s
        self.closed = False
        """True once somebody has closed the window or pressed Escape."""
        self._next = time.monotonic()

    def show(self, frame: NDArray[np.uint8]) -> None:
        """Show ``frame``, uint8 [height, width, 3] RGB; read the keyboard; wait for the pace."""
        large = cv2.resize(frame, SIZE, interpolation=cv2.INTER_LINEAR)
        pygame.surfarray.blit_array(self.surface, large.transpose(1, 0, 2))
        pygame.display.flip()
        for event in pygame.event.get():
            self.closed |= event.type == pygame.QUIT
        self.closed |= "escape" in self.pressed()
        self._next = max(self._next + self.pace_s, time.monotonic())
        time.sleep(max(0.0, self._next - time.monotonic()))

    def pressed(self) -> set[str]:
        held = pygame.key.get_pressed()
        return {name for name, code in KEYS.items() if held[code]}

    def close(self) -> None:
        pygame.display.quit()
