"""A track under one sky as a Panda3D scene, light and shade in its colours; the car's hood before the cameras."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from panda3d.core import DepthOffsetAttrib, NodePath, TransparencyAttrib

from nacdrive.envs.udacity_track import meshes
from nacdrive.envs.udacity_track.appearance import Appearance, Colour, unit
from nacdrive.envs.udacity_track.blocks import boulders, cars, houses
from nacdrive.envs.udacity_track.extras import Extras
from nacdrive.envs.udacity_track.meshes import Quads, as_node, lay_texture, tiled
from nacdrive.envs.udacity_track.road import DIM, STONE, painted, patch
from nacdrive.envs.udacity_track.structures import FOOT, structures
from nacdrive.envs.udacity_track.terrain import Terrain, terrain_of
from nacdrive.envs.udacity_track.track import Array, Track

CLEAR_OF_ROAD = 3.5
"""Metres from the edge of the asphalt within which nothing stands."""
SKY_RADIUS = 100.0
SKY_SIDES = 48
LAST = 1000
"""Place in the order of drawing after everything else."""
FARTHEST = 1 - 1.5 / 2**20
"""Depth, 0 near to 1 far, that is the last but one of the renderer's 2^20; where nothing is drawn it has the last."""
# Forward and up in the car's own metres, with the share of the paint's brightness, from the crest backwards.
HOOD_BANDS = ((1.80, 0.70, 1.15), (1.69, 0.693, 1.05), (1.68, 0.69, 0.15), (1.665, 0.69, 1.25), (1.45, 0.68, 1.25))
HOOD_HALF_WIDTH = 0.86


def build_scene(track: Track, appearance: Appearance, extras: Extras) -> tuple[NodePath, NodePath]:
    """The scene and its sky, which has to follow the camera; about 0.1 s, for drawn roads a third of that."""
    rng = np.random.default_rng(appearance.paint_seed)
    ground = terrain_of(track)
    root = NodePath("scene")
    flat = appearance.exposure * min(1.0, appearance.ambient + (1 - appearance.ambient) * max(0.35, appearance.sun[2]))
    drawn = track.road_seed is not None
    soil = meshes.soil_texture(rng, 0.10)
    laid = paving(track, appearance, rng)
    textures = {
        "asphalt": laid,
        "dim": (laid[0], unit(np.array(laid[1]) * DIM)),
        "cobbles": (meshes.cobbles_texture(rng) if track.bridge.any() or not drawn else soil, STONE),
        "soil": (soil, appearance.earth),
    }
    for name, quads in painted(track, appearance, extras.bare).items():
        part = tiled(root, name, Quads(quads.corners, quads.colours * flat, quads.uv))
        part.set_two_sided(True)
        if name in textures:
            picture, colour = textures[name]
            lay_texture(part, picture, np.array(colour) * flat)
    if extras.stains:
        lay_stains(root, track, extras)
    cast_shadows(root, track, appearance, rng)
    places = ground.corners()
    land = Quads(places, ground.corners(land_colours(ground, appearance, rng)), places[:, :, :2] / 14.0)
    lay_texture(tiled(root, "land", land), soil)
    tiled(root, "water", water_quads(track, ground, appearance), square=240.0)
    plant(root, track, ground, appearance, rng)
    build_up(root, track, ground, appearance, extras, flat, rng)
    # Panda draws states in the order of their addresses, which is another one each time; where two surfaces meet,
    # single pixels depend on it. So the order is said: near things first, shadows right after the road.
    for order, part in enumerate(root.get_children()):
        part.set_bin("fixed", order)
    return root, build_sky(appearance, rng)


def paving(track: Track, appearance: Appearance, rng: np.random.Generator) -> tuple[NDArray[np.uint8], Colour]:
    """Texture and colour of what the road is laid with."""
    if track.style.surface == "cobbles":
        return meshes.cobbles_texture(rng), STONE
    paint, colour = {
        "asphalt": (meshes.asphalt_texture, appearance.asphalt),
        "concrete": (meshes.concrete_texture, appearance.concrete),
        "gravel": (meshes.gravel_texture, appearance.gravel),
    }[track.style.surface]
    return paint(rng, appearance.asphalt_contrast), colour


def lay_stains(root: NodePath, track: Track, extras: Extras) -> None:
    """Patches and stains on the road, dark or light."""
    for name, light in (("dark stains", 0.0), ("light stains", 0.85)):
        if patches := [patch(track, *oval) for oval, dark in extras.stains if dark == (light == 0.0)]:
            group = tiled(root, name, Quads.joined(patches))
            group.set_color(light, light, light, 0.42)
            group.set_transparency(TransparencyAttrib.M_alpha)
            group.set_depth_write(False)
            group.set_two_sided(True)


def build_up(
    root: NodePath,
    track: Track,
    ground: Terrain,
    appearance: Appearance,
    extras: Extras,
    flat: float,
    rng: np.random.Generator,
) -> None:
    """Guard rails, tunnels, houses, boulders and parked cars."""
    parts = structures(track, appearance, flat)
    if appearance.houses:
        places = free_places(track, ground, appearance.houses, rng, near=False)
        far = ground.at(ground.road_distance, *places[:, :2].T) > track.half_width + 12
        parts.append(houses(places[far], rng, appearance))
    if appearance.boulders:
        parts.append(boulders(free_places(track, ground, appearance.boulders, rng, near=True), rng, appearance))
    if len(extras.cars.places):
        parts.append(cars(extras.cars.places, extras.cars.turns, rng, appearance))
    if parts:
        tiled(root, "built", Quads.joined(parts)).set_two_sided(True)


def land_colours(ground: Terrain, appearance: Appearance, rng: np.random.Generator) -> Array:
    """RGB per point of the grid, [rows, columns, 3]: by slope and patches of sand, grass and earth, lit by the sun."""
    normal = ground.normals()
    steep = np.clip((0.93 - normal[:, :, 2]) / 0.10, 0, 1)[:, :, None]
    patches = np.stack([meshes.grain(rng, 2.5) for _ in range(2)], axis=2)
    rows, columns = ground.height.shape
    patches = np.tile(patches, (rows // meshes.SIDE + 1, columns // meshes.SIDE + 1, 1))[:rows, :columns]
    grassy, earthy = (np.clip(0.5 + 0.8 * patches[:, :, k : k + 1], 0, 1) for k in range(2))
    base = np.array(appearance.sand) * (1 - grassy) + np.array(appearance.grass) * grassy
    beside = np.clip(1 - (ground.road_distance[:, :, None] - 6) / 14, 0, 1)
    base = base * (1 - earthy * beside) + np.array(appearance.earth) * earthy * beside
    base = base * (1 - steep) + np.array(appearance.rock) * steep
    light = appearance.ambient + (1 - appearance.ambient) * 1.25 * np.clip(normal @ np.array(appearance.sun), 0, None)
    return np.asarray(base * appearance.exposure * light[:, :, None])


def water_quads(track: Track, ground: Terrain, appearance: Appearance) -> Quads:
    """The lake's surface under the whole land: it shows where the land is lower."""
    size = 120.0
    row, column = np.nonzero(ground.height < track.water_level)
    low = np.unique(np.c_[ground.east[column], ground.north[row]] // size, axis=0) * size
    square = np.array([(0, 0), (size, 0), (size, size), (0, size)])
    corners = np.concatenate([low[:, None] + square, np.full((len(low), 4, 1), track.water_level)], axis=2)
    colours = np.broadcast_to(np.array(appearance.water) * appearance.exposure, corners.shape)
    return Quads(corners, colours, corners[:, :, :2] / size)


def plant(root: NodePath, track: Track, ground: Terrain, appearance: Appearance, rng: np.random.Generator) -> None:
    """Trees and bushes where no road and no water is."""
    kinds: list[tuple[str, Callable[[np.random.Generator], NDArray[np.uint8]], int, tuple[float, float], float]] = [
        ("pines", meshes.pine_texture, appearance.trees // 3, (6.0, 13.0), 0.42),
        ("dark pines", meshes.pine_texture, appearance.trees // 3, (6.0, 13.0), 0.42),
        ("oaks", meshes.oak_texture, appearance.trees // 3, (5.0, 9.0), 0.6),
        ("bushes", meshes.bush_texture, appearance.bushes, (0.8, 2.2), 2.2),
    ]
    for name, paint, count, (low, high), aspect in kinds:
        places = free_places(track, ground, count, rng, near=name == "bushes")
        heights = rng.uniform(low, high, len(places))
        group = tiled(root, name, crossed(places, heights, heights * aspect / 2, rng))
        lay_texture(group, paint(rng), np.array(appearance.leaves) * appearance.exposure * rng.uniform(0.7, 1.1))
        group.set_transparency(TransparencyAttrib.M_binary)
        group.set_two_sided(True)


def cast_shadows(root: NodePath, track: Track, appearance: Appearance, rng: np.random.Generator) -> None:
    """Shadows of trees on the road: patches at its sides, longest where the sun is low."""
    if not appearance.shadows:
        return
    long = 2.0 + 2.5 / max(0.3, appearance.sun[2])
    patches = []
    for _ in range(appearance.shadows):
        at, offset = int(rng.integers(len(track.line))), float(rng.uniform(-1, 1)) * track.half_width
        patches.append(patch(track, at, offset, float(rng.uniform(1.5, 5)), float(rng.uniform(0.4, 1)) * long))
    group = tiled(root, "shadows", Quads.joined(patches))
    group.set_color(0, 0, 0, appearance.shadow_depth)
    group.set_transparency(TransparencyAttrib.M_alpha)
    group.set_depth_write(False)


def free_places(track: Track, ground: Terrain, count: int, rng: np.random.Generator, *, near: bool) -> Array:
    """At most ``count`` dry points [n, 3] of the land clear of the road; ``near``: most of them along it."""
    along = rng.integers(len(track.line), size=count * 2)
    reach = track.half_width + CLEAR_OF_ROAD + rng.gamma(1.2, 8.0 if near else 22.0, count * 2)
    side = reach * rng.choice((-1, 1), count * 2)
    flat = track.line[along, :2] + track.left[along] * side[:, None]
    distance = ground.at(ground.road_distance, *flat.T)
    height = ground.at(ground.height, *flat.T)
    # On the mound over a tunnel trees would stand in the air or in the vault.
    clear = np.where(track.tunnel[along], FOOT, CLEAR_OF_ROAD)
    good = (distance > track.half_width + clear) & (height > track.water_level + 0.3)
    return np.asarray(np.c_[flat, height - 0.1][good][:count])


def crossed(places: Array, heights: Array, halves: Array, rng: np.random.Generator) -> Quads:
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


def build_sky(appearance: Appearance, rng: np.random.Generator) -> NodePath:
    """A cylinder around the camera, behind everything: bands of colour up to the zenith, far hills on its foot."""
    angle = np.linspace(0, 2 * np.pi, SKY_SIDES + 1)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1) * SKY_RADIUS
    zenith, horizon = (np.array(c) * appearance.exposure for c in (appearance.zenith, appearance.horizon))
    far = 0.55 * horizon + 0.45 * np.array(appearance.rock) * appearance.exposure
    ground = np.array(appearance.grass) * appearance.exposure * 0.8
    phases = rng.uniform(0, 2 * np.pi, 5)
    crest = 3.5 + sum(1.6 / (k + 1) * np.sin((k + 2) * angle + phases[k]) for k in range(5))
    crest[-1] = crest[0]
    level = np.zeros_like(angle)
    parts = [
        band(ring, level - 60, level, ground, ground),
        band(ring, level, crest, far * 0.9, far),
        band(ring, crest, level + 18, horizon, 0.6 * horizon + 0.4 * zenith),
        band(ring, level + 18, level + 60, 0.6 * horizon + 0.4 * zenith, zenith),
        band(ring, level + 60, level + 400, zenith, zenith),
    ]
    path = as_node("sky", Quads.joined(parts))
    # Last, at the greatest depth that is nearer than nothing: only where nothing else is, it costs anything.
    path.set_bin("fixed", LAST)
    path.set_depth_write(False)
    path.set_attrib(DepthOffsetAttrib.make(0, FARTHEST, FARTHEST))
    return path


def band(ring: np.ndarray, low: np.ndarray, high: np.ndarray, below: np.ndarray, above: np.ndarray) -> Quads:
    """A ring of quadrilaterals between two heights (one each per point of ``ring``), with a colour at both."""
    bottom, top = np.c_[ring, low], np.c_[ring, high]
    corners = np.stack([bottom[:-1], bottom[1:], top[1:], top[:-1]], axis=1)
    colours = np.broadcast_to(np.stack([below, below, above, above]), corners.shape)
    return Quads(corners, colours, np.zeros((len(corners), 4, 2)))


def build_hood(appearance: Appearance) -> NodePath:
    """The car's hood as the cameras see it along the lower edge of the picture: a sheet, to be hung under the car."""
    across = np.linspace(-HOOD_HALF_WIDTH, HOOD_HALF_WIDTH, 13)
    rows = [
        np.stack([across, forward - 0.22 * across**2, up - 0.19 * across**2], axis=1) for forward, up, _ in HOOD_BANDS
    ]
    light = [
        np.broadcast_to(np.array(appearance.hood) * shade * appearance.exposure, (13, 3)) for *_, shade in HOOD_BANDS
    ]
    parts = []
    for k in range(len(HOOD_BANDS) - 1):
        corners, colours = (np.stack([r[k][:-1], r[k + 1][:-1], r[k + 1][1:], r[k][1:]], axis=1) for r in (rows, light))
        parts.append(Quads(corners, colours, np.zeros((12, 4, 2))))
    return as_node("hood", Quads.joined(parts))
