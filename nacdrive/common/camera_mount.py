"""How the Udacity simulator's cameras hang in the car, and the way to turn their pictures upright.

Source: the Euler angles of the cameras in ``LakeTrackAutonomous.unity`` and ``JungleTrackAutonomous.unity``. They look
down by 9.5 degrees, which is meant, and a little to the right with a little roll, which is not. Training mirrors
pictures, so a network cannot learn to make up for that: it would steer too far to the left.

Turning is done in whole numbers, by places in 32nds of a pixel, so that OpenCV, torch, ONNX, C and JavaScript give the
same bytes. How a camera hangs is a fact of the recording; whether pictures are turned, one of the policy.
"""

from __future__ import annotations

import math
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray

SCENE, STRAIGHT = "scene", "straight"
"""``scene``: as in the simulator's scenes; ``straight``: without yaw and roll."""
WIDTH, HEIGHT = 320, 160
FIELD_OF_VIEW = 60.0
"""Degrees, vertical."""
PITCH = -9.5
"""Degrees; below 0 it looks down."""
YAW = 0.723
"""Degrees to the right."""
ROLL = 1.201
"""Degrees by which the camera's right side is raised: in the picture the world's right side is lower."""
STEPS = 32
"""Parts of a pixel to which places in a picture are rounded, so that every language gets the same bytes."""


def hpr(mount: str) -> tuple[float, float, float]:
    """Heading, pitch and roll of a camera in Panda3D's degrees: to the left, up, right side down."""
    return (-YAW, PITCH, -ROLL) if mount == SCENE else (0.0, PITCH, 0.0)


def rotation(heading: float, pitch: float, roll: float) -> NDArray[np.float64]:
    """[3, 3] from the camera's axes (right, forward, up) to the car's: roll first, then pitch, then heading."""
    h, p, r = (math.radians(angle) for angle in (heading, pitch, roll))
    about_up = np.array([[math.cos(h), -math.sin(h), 0], [math.sin(h), math.cos(h), 0], [0, 0, 1]])
    about_right = np.array([[1, 0, 0], [0, math.cos(p), -math.sin(p)], [0, math.sin(p), math.cos(p)]])
    about_forward = np.array([[math.cos(r), 0, math.sin(r)], [0, 1, 0], [-math.sin(r), 0, math.cos(r)]])
    return np.asarray(about_up @ about_right @ about_forward)


@lru_cache(maxsize=1)
def homography() -> NDArray[np.float64]:
    """[3, 3]: pixel (column, row, 1) of the upright picture -> pixel of the crooked one, up to a factor."""
    focal = HEIGHT / 2 / math.tan(math.radians(FIELD_OF_VIEW / 2))
    # Column, row -> right, forward, up; a pixel's middle has whole numbers.
    ray = np.array([[1, 0, -(WIDTH - 1) / 2], [0, 0, focal], [0, -1, (HEIGHT - 1) / 2]])
    to_crooked = rotation(*hpr(SCENE)).T @ rotation(*hpr(STRAIGHT))
    matrix = np.array([[focal, (WIDTH - 1) / 2, 0], [0, (HEIGHT - 1) / 2, -focal], [0, 1, 0]]) @ to_crooked @ ray
    return np.asarray(matrix / matrix[2, 2])


def places(first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Columns and rows of the crooked picture, in 32nds of a pixel, at which rows [first, last) of the upright one lie.

    Both are [last - first, 320]. What lies outside is taken from the edge.
    """
    (a, b, c), (d, e, f), (g, h, i) = homography()
    rows, columns = np.mgrid[first:last, 0:WIDTH].astype(np.float64)
    depth = g * columns + h * rows + i
    across = np.floor((a * columns + b * rows + c) / depth * STEPS + 0.5).clip(0, (WIDTH - 1) * STEPS)
    down = np.floor((d * columns + e * rows + f) / depth * STEPS + 0.5).clip(0, (HEIGHT - 1) * STEPS)
    return across.astype(np.int64), down.astype(np.int64)


@lru_cache(maxsize=4)
def _maps(first: int, last: int) -> tuple[NDArray[np.int16], NDArray[np.uint16]]:
    """``places`` as ``cv2.remap`` takes them quickest."""
    across, down = places(first, last)
    whole = np.stack([across // STEPS, down // STEPS], axis=2).astype(np.int16)
    return whole, (down % STEPS * STEPS + across % STEPS).astype(np.uint16)


def upright(frame: NDArray[np.uint8], first: int = 0, last: int = HEIGHT) -> NDArray[np.uint8]:
    """Rows [first, last) of a picture [160, 320, 3] of the crooked camera as a straight one would have seen them.

    Between pixels it interpolates linearly, in whole numbers: the same bytes as ``models.driving.Upright``.
    """
    whole, part = _maps(first, last)
    return np.asarray(cv2.remap(frame, whole, part, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE), dtype=np.uint8)
