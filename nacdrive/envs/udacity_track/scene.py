"""The course of one seed as a Panda3D scene: road, land, water, trees, sky; light and shade are in the colours."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from panda3d.core import NodePath, TransparencyAttrib

from nacdrive.envs.udacity_track import textures
from nacdrive.envs.udacity_track.appearance import Look
from nacdrive.envs.udacity_track.meshes import Quads, paper, tiled
from nacdrive.envs.udacity_track.road import STONE, painted, patch
from nacdrive.envs.udacity_track.sky import sky
from nacdrive.envs.udacity_track.terrain import Land, land
from nacdrive.envs.udacity_track.track import Course

CLEAR_OF_ROAD = 3.5
"""Metres from the edge of the asphalt within which nothing stands."""


def build_scene(course: Course, look: Look) -> tuple[NodePath, NodePath]:
    """The scene and its sky, which has to follow the camera; about 0.1 s."""
    rng = np.random.default_rng(look.paint_seed)
    ground = land(course.name)
    root = NodePath("scene")
    flat = look.exposure * min(1.0, look.ambient + (1 - look.ambient) * max(0.35, look.sun[2]))
    soil = textures.soil(rng, 0.10)
    papers = {
        "asphalt": (textures.asphalt(rng, look.asphalt_contrast), look.asphalt),
        "cobbles": (textures.cobbles(rng), STONE),
        "soil": (soil, look.earth),
    }
    for name, quads in painted(course, look).items():
        part = tiled(root, name, Quads(quads.corners, quads.colours * flat, quads.uv))
        part.set_two_sided(True)
        if name in papers:
            picture, colour = papers[name]
            paper(part, picture, np.array(colour) * flat)
    cast_shadows(root, course, look, rng)
    paper(tiled(root, "land", land_quads(ground, look, rng)), soil)
    tiled(root, "water", water_quads(course, ground, look), tile=240.0)
    plant(root, course, ground, look, rng)
    # Panda draws states in the order of their addresses, which is another one each time; where two surfaces meet,
    # single pixels depend on it. So the order is said: near things first, shadows right after the road.
    for order, part in enumerate(root.get_children()):
        part.set_bin("fixed", order)
    return root, sky(look, rng)


def land_quads(ground: Land, look: Look, rng: np.random.Generator) -> Quads:
    """The land, coloured by slope and by patches of sand, grass and earth, lit by the sun."""
    colours = land_colours(ground, look, rng)
    east, north = np.meshgrid(ground.east, ground.north)
    places = np.stack([east, north, ground.height], axis=2)

    def corners(values: NDArray[np.float64]) -> NDArray[np.float64]:
        four = values[:-1, :-1], values[:-1, 1:], values[1:, 1:], values[1:, :-1]
        return np.stack(four, axis=2).reshape(-1, 4, values.shape[2])

    return Quads(corners(places), corners(colours), corners(places[:, :, :2] / 14.0))


def land_colours(ground: Land, look: Look, rng: np.random.Generator) -> NDArray[np.float64]:
    """RGB per point of the grid, [rows, columns, 3]."""
    normal = ground.normals()
    steep = np.clip((0.93 - normal[:, :, 2]) / 0.10, 0, 1)[:, :, None]
    patches = np.stack([textures.grain(rng, 2.5) for _ in range(2)], axis=2)
    rows, columns = ground.height.shape
    patches = np.tile(patches, (rows // textures.SIDE + 1, columns // textures.SIDE + 1, 1))[:rows, :columns]
    grassy, earthy = (np.clip(0.5 + 0.8 * patches[:, :, k : k + 1], 0, 1) for k in range(2))
    base = np.array(look.sand) * (1 - grassy) + np.array(look.grass) * grassy
    beside = np.clip(1 - (ground.road_distance[:, :, None] - 6) / 14, 0, 1)
    base = base * (1 - earthy * beside) + np.array(look.earth) * earthy * beside
    base = base * (1 - steep) + np.array(look.rock) * steep
    light = look.ambient + (1 - look.ambient) * 1.25 * np.clip(normal @ np.array(look.sun), 0, None)
    lit: NDArray[np.float64] = base * look.exposure * light[:, :, None]
    return lit


def water_quads(course: Course, ground: Land, look: Look) -> Quads:
    """The lake's surface under the whole land: it shows where the land is lower."""
    size = 120.0
    wet = ground.height < course.water_level
    found = set()
    for row, column in zip(*np.nonzero(wet), strict=True):
        found.add((int(ground.east[column] // size), int(ground.north[row] // size)))
    low = np.array(sorted(found), dtype=float).reshape(-1, 2) * size
    square = np.array([(0, 0), (size, 0), (size, size), (0, size)])
    corners = np.concatenate([low[:, None] + square, np.full((len(low), 4, 1), course.water_level)], axis=2)
    colours = np.broadcast_to(np.array(look.water) * look.exposure, corners.shape)
    return Quads(corners, colours, corners[:, :, :2] / size)


def plant(root: NodePath, course: Course, ground: Land, look: Look, rng: np.random.Generator) -> None:
    """Trees and bushes where no road and no water is."""
    kinds: list[tuple[str, Callable[[np.random.Generator], NDArray[np.uint8]], int, tuple[float, float], float]] = [
        ("pines", textures.pine, look.trees // 3, (6.0, 13.0), 0.42),
        ("dark pines", textures.pine, look.trees // 3, (6.0, 13.0), 0.42),
        ("oaks", textures.oak, look.trees // 3, (5.0, 9.0), 0.6),
        ("bushes", textures.bush, look.bushes, (0.8, 2.2), 2.2),
    ]
    for name, paint, count, (low, high), aspect in kinds:
        places = free_places(course, ground, count, rng, near=name == "bushes")
        heights = rng.uniform(low, high, len(places))
        group = tiled(root, name, crossed(places, heights, heights * aspect / 2, rng))
        paper(group, paint(rng), np.array(look.leaves) * look.exposure * rng.uniform(0.7, 1.1))
        group.set_transparency(TransparencyAttrib.M_binary)
        group.set_two_sided(True)


def cast_shadows(root: NodePath, course: Course, look: Look, rng: np.random.Generator) -> None:
    """Shadows of trees on the road: patches at its sides, longest where the sun is low."""
    if not look.shadows:
        return
    long = 2.0 + 2.5 / max(0.3, look.sun[2])
    patches = []
    for _ in range(look.shadows):
        at, offset = int(rng.integers(len(course.line))), float(rng.uniform(-1, 1)) * course.half_width
        patches.append(patch(course, at, offset, float(rng.uniform(1.5, 5)), float(rng.uniform(0.4, 1)) * long))
    group = tiled(root, "shadows", Quads.joined(patches))
    group.set_color(0, 0, 0, look.shadow_depth)
    group.set_transparency(TransparencyAttrib.M_alpha)
    group.set_depth_write(False)


def free_places(
    course: Course, ground: Land, count: int, rng: np.random.Generator, *, near: bool
) -> NDArray[np.float64]:
    """At most ``count`` dry points [n, 3] of the land clear of the road; ``near``: most of them along it."""
    along = rng.integers(len(course.line), size=count * 2)
    reach = course.half_width + CLEAR_OF_ROAD + rng.gamma(1.2, 8.0 if near else 22.0, count * 2)
    side = reach * rng.choice((-1, 1), count * 2)
    flat = course.line[along, :2] + course.left[along] * side[:, None]
    distance = ground.road_distance_at(*flat.T)
    height = ground.height_at(*flat.T)
    good = (distance > course.half_width + CLEAR_OF_ROAD) & (height > course.water_level + 0.3)
    free: NDArray[np.float64] = np.c_[flat, height - 0.1][good][:count]
    return free


def crossed(
    places: NDArray[np.float64],
    heights: NDArray[np.float64],
    halves: NDArray[np.float64],
    rng: np.random.Generator,
) -> Quads:
    """Two upright pictures at right angles for each place: a tree from every side."""
    turn = rng.uniform(0, np.pi, len(places))
    parts = []
    for angle in (turn, turn + np.pi / 2):
        across = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=1) * halves[:, None]
        up = np.c_[np.zeros((len(places), 2)), heights]
        corners = np.stack([places - across, places + across, places + across + up, places - across + up], axis=1)
        uv = np.broadcast_to(np.array([(0, 0), (1, 0), (1, 1), (0, 1)], dtype=float), (len(places), 4, 2))
        parts.append(Quads(corners, np.ones_like(corners), uv))
    return Quads.joined(parts)
