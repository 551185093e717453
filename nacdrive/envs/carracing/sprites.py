"""What lies over the world in a frame of CarRacing: the car, drawn once for every angle of its wheels; instruments."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import cv2
import numpy as np
import pygame
from gymnasium.envs.box2d import car_dynamics as dynamics
from gymnasium.envs.box2d import car_racing as official
from numpy.typing import NDArray

from nacdrive.envs.carracing.lazy import PANEL_TOP

LOSS = 2
"""Levels that the official down-scaling (SDL's smoothscale) takes from every channel of every pixel."""
LUMA = np.array((0.299, 0.587, 0.114))
"""Grey of a colour, as OpenCV and Pillow have it."""
ANGLE_STEP = 0.01
"""Radians of the front wheels between two pictures of the car."""
TOP, BOTTOM, LEFT, RIGHT = 65, 80, 43, 53
"""Where the car is in a frame: rows and columns."""
WINDOW_PART = 375, 100
"""Of the window before it is flipped: where columns 36 to 59 and rows 83 to 60 of the frame begin."""
HULL_POLYGONS = (dynamics.HULL_POLY1, dynamics.HULL_POLY2, dynamics.HULL_POLY3, dynamics.HULL_POLY4)
WHEEL_POLYGON = [(sx * dynamics.WHEEL_W, sy * dynamics.WHEEL_R) for sx, sy in ((-1, 1), (1, 1), (1, -1), (-1, -1))]
HULL_COLOUR, WHEEL_COLOUR = (204, 0, 0), (0, 0, 0)
WHITE, BLUE, VIOLET, GREEN, RED = (255, 255, 255), (0, 0, 255), (51, 0, 255), (0, 255, 0), (255, 0, 0)
UNIT_W, UNIT_H = official.WINDOW_W / 40, official.WINDOW_H / 40
SCORE_COLUMNS = 12
"""The score lies in the first columns of the instruments: in as many as 125 pixels of the window are."""
PIXEL_W, PIXEL_H = official.WINDOW_W / official.STATE_W, official.WINDOW_H / official.STATE_H
"""Pixels of the window in one of the frame."""
FEWEST = 1e-4
"""An instrument that shows less is not drawn."""


@cache
def as_shown(colour: tuple[float, ...], *, rgb: bool) -> NDArray[np.float64]:
    """A colour [3] as it is in a frame: [3], or [1] in grey."""
    lossy = np.maximum(np.asarray(colour, dtype=np.float64) - LOSS, 0)
    return lossy if rgb else np.array([lossy @ LUMA])


def shares(surface: pygame.Surface) -> NDArray[np.float64]:
    """Shares of white [rows, columns] in the pixels of the frame that a part of the window covers."""
    pixels = pygame.surfarray.array3d(surface)[:, :, 0].T.astype(np.float32) / 255
    size = round(pixels.shape[1] / PIXEL_W), round(pixels.shape[0] / PIXEL_H)
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), dtype=np.float64)


@cache
def car_sprite(step: int, *, rgb: bool) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """The car with its front wheels at ``step * ANGLE_STEP``: (share of the world that stays, in 256ths; what is added,
    times 256), both uint16 [rows, columns, channels].

    Drawn with pygame at the window's size, as the official environment does it, and averaged down.
    """
    zoom = official.ZOOM * official.SCALE * dynamics.SIZE

    def cover(shapes: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        # 24 columns and 24 rows of the frame, which are whole pixels of the window too.
        surface = pygame.Surface((250, 200))
        for shape in shapes:
            path = shape * zoom + (official.WINDOW_W / 2, official.WINDOW_H / 4) - WINDOW_PART
            pygame.draw.polygon(surface, color=WHITE, points=path.tolist())
        return shares(pygame.transform.flip(surface, False, True))[TOP - 60 : BOTTOM - 60, LEFT - 36 : RIGHT - 36, None]

    turned = []
    for place in dynamics.WHEELPOS:
        angle = step * ANGLE_STEP * (place[1] > 0)
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        turned.append(np.array(WHEEL_POLYGON, float) @ turn + place)
    wheels, hull = cover(turned), cover([np.array(polygon, float) for polygon in HULL_POLYGONS])
    # The hull is drawn over the wheels.
    keep = (1 - wheels) * (1 - hull)
    wheel, body = (as_shown(colour, rgb=rgb) for colour in (WHEEL_COLOUR, HULL_COLOUR))
    add = wheel * wheels * (1 - hull) + body * hull
    stays, added = np.rint(keep * 256).astype(np.uint16), np.rint(add * 256).astype(np.uint16)
    stays.setflags(write=False)
    added.setflags(write=False)
    return np.broadcast_to(stays, add.shape), added


def draw_car(view: NDArray[np.uint8], front_angle: float, *, rgb: bool) -> None:
    """Draw the car into ``view`` [rows, columns, channels] as it is once the zoom of the first second is over."""
    keep, add = car_sprite(round(front_angle / ANGLE_STEP), rgb=rgb)
    place = view[TOP:BOTTOM, LEFT:RIGHT]
    place[:] = (place * keep + add) >> 8


def covered(low: float, high: float, unit: float, count: int) -> tuple[int, NDArray[np.float64]]:
    """How much of the frame's pixels lies from ``low`` to ``high``, pixels of the window, which are filled too.

    ``unit`` pixels of the window are one of the ``count`` of the frame. Returns the first pixel that is touched, and
    the shares of it and the following ones.
    """
    # pygame fills the pixels of the outline too.
    begin, end = max(int(low), 0) / unit, min((int(high) + 1) / unit, count)
    first = int(begin)
    last = max(first, math.ceil(end) - 1)
    shares = np.ones(last - first + 1)
    shares[0] -= begin - first
    shares[-1] -= last + 1 - end
    return first, np.maximum(shares, 0)


def score_font() -> pygame.font.Font:
    """The font of the score; it lasts until somebody's ``pygame.quit``."""
    pygame.font.init()
    return pygame.font.Font(pygame.font.get_default_font(), 42)


@cache
def score_picture(text: str, *, rgb: bool) -> NDArray[np.uint8]:
    """The score in white on black, as it is in a frame: uint8 [rows, columns, channels]."""
    return draw_score(score_font(), text, rgb=rgb)


def draw_score(font: pygame.font.Font, text: str, *, rgb: bool) -> NDArray[np.uint8]:
    """``score_picture`` with a font that has drawn the digits before: of many scores, in a third of the time."""
    surface = pygame.Surface((125, 100))
    drawn = font.render(text, True, WHITE, (0, 0, 0))
    place = drawn.get_rect()
    place.center = (60, 50)  # of the instruments; (60, 750) of the window
    surface.blit(drawn, place)
    return np.rint(shares(surface)[..., None] * as_shown(WHITE, rgb=rgb)).astype(np.uint8)


def draw_instruments(frame: NDArray[np.uint8], car: Any, reward: float, *, rgb: bool) -> None:
    """Draw speed, wheels, steering, turning and score into the lowest rows of ``frame`` [96, 96, channels]."""
    frame[PANEL_TOP:] = 0
    velocity_x, velocity_y = car.hull.linearVelocity
    speed = float(np.hypot(velocity_x, velocity_y))
    colours = (BLUE, BLUE, VIOLET, VIOLET)
    bars: list[tuple[int, float, float, tuple[int, int, int], bool]] = [(5, speed, 0.02, WHITE, True)]
    bars += [(7 + i, car.wheels[i].omega, 0.01, colours[i], True) for i in range(4)]
    bars.append((20, car.wheels[0].joint.angle, -10.0, GREEN, False))
    bars.append((30, car.hull.angularVelocity, -0.8, RED, False))
    for place, measured, scale, colour, upright in bars:
        if abs(measured) <= FEWEST:
            continue
        value = scale * measured
        if upright:
            left, right = place * UNIT_W, (place + 1) * UNIT_W
            top, bottom = sorted((official.WINDOW_H - UNIT_H * (1 + value), official.WINDOW_H - UNIT_H))
        else:
            left, right = sorted((place * UNIT_W, (place + value) * UNIT_W))
            top, bottom = official.WINDOW_H - 4 * UNIT_H, official.WINDOW_H - 2 * UNIT_H
        column, across = covered(left, right, PIXEL_W, official.STATE_W)
        row, down = covered(max(top, PANEL_TOP * PIXEL_H), bottom, PIXEL_H, official.STATE_H)
        area = frame[row : row + len(down), column : column + len(across)]
        lit = down[:, None, None] * across[:, None] * as_shown(colour, rgb=rgb)
        np.maximum(area, (lit[: len(area)] + 0.5).astype(np.uint8), out=area)
    frame[PANEL_TOP:, :SCORE_COLUMNS] = score_picture(f"{reward:04.0f}", rgb=rgb)
