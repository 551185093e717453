"""Quadrilaterals as Panda3D geometry, cut into tiles so that what is out of sight costs nothing; their textures.

Textures are painted as uint8 arrays; grey ones are tinted by the colours of the vertices that they are laid on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray
from panda3d import core

VERTEX = np.dtype([("place", "<f4", 4), ("colour", "<f4", 4), ("uv", "<f4", 2)])
SQUARE = 60.0
"""Metres along the side of the squares of ground in whose order is drawn: by column, then northwards."""
LONG = 3
"""Squares of a column to one tile: a tile costs as much to draw as a hundred vertices that are out of sight."""
HASH_BITS = 44
"""Of the number that stands for a corner while shared ones are looked for; those above it are of its part."""
MIXERS = np.random.default_rng(0).integers(2**63, 2**64 - 1, VERTEX.itemsize // 8, dtype=np.uint64) | np.uint64(1)
SIDE = 128
"""Pixels along the side of a texture."""
Generator = np.random.Generator


@dataclass(frozen=True)
class Quads:
    """Quadrilaterals, corners in turn."""

    corners: NDArray[np.float64]
    """[n, 4, 3] metres."""
    colours: NDArray[np.float64]
    """RGB in 0 .. 1, [n, 4, 3]."""
    uv: NDArray[np.float64]
    """Coordinates in the texture, [n, 4, 2]."""

    @staticmethod
    def joined(parts: list[Quads]) -> Quads:
        return Quads(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("corners", "colours", "uv")))


@cache
def vertex_format() -> core.GeomVertexFormat:
    """Of ``VERTEX``: four floats are read as they lie; three, or bytes of colour, take half as long again."""
    columns = core.GeomVertexArrayFormat()
    columns.add_column(core.InternalName.get_vertex(), 4, core.GeomEnums.NT_float32, core.GeomEnums.C_point)
    columns.add_column(core.InternalName.get_color(), 4, core.GeomEnums.NT_float32, core.GeomEnums.C_point)
    columns.add_column(core.InternalName.get_texcoord(), 2, core.GeomEnums.NT_float32, core.GeomEnums.C_texcoord)
    assert columns.get_stride() == VERTEX.itemsize
    return core.GeomVertexFormat.register_format(core.GeomVertexFormat(columns))


def vertices_of(quads: Quads) -> NDArray[np.void]:
    """``VERTEX`` [n, 4]; colours in steps of 1 / 255."""
    vertices = np.empty((len(quads.corners), 4), dtype=VERTEX)
    vertices["place"][..., :3] = quads.corners
    vertices["place"][..., 3] = 1.0
    vertices["colour"][..., :3] = np.clip(quads.colours * 255, 0, 255).astype(np.uint8) * np.float32(1 / 255)
    vertices["colour"][..., 3] = 1.0
    vertices["uv"] = quads.uv
    return vertices


def geometry(quads: Quads) -> core.Geom:
    """Two triangles per quadrilateral; corners that are alike in everything become one vertex."""
    (made,) = geometries(quads, np.zeros(len(quads.corners), dtype=np.int64))
    return made


def geometries(quads: Quads, parts: NDArray[np.int64]) -> list[core.Geom]:
    """``geometry`` of every part of ``quads``, by the number of the part of each, [n], 0, 0, .. 1, .. in turn."""
    corners = vertices_of(quads).ravel()
    # One sort of numbers in place of one of structures, which takes several times as long.
    words = corners.view(np.uint64).reshape(len(corners), -1)
    hashed = (words * MIXERS).sum(axis=1, dtype=np.uint64)
    hashed = (hashed ^ (hashed >> np.uint64(29))) * MIXERS[0] >> np.uint64(64 - HASH_BITS)
    keys = hashed | np.repeat(parts, 4).astype(np.uint64) << np.uint64(HASH_BITS)
    unique, first, which = np.unique(keys, return_index=True, return_inverse=True)
    if not (words[first[which]] == words).all():
        # Two different corners with one number: rare beyond all bounds, and then none are shared.
        first = which = np.arange(len(corners))
        unique = keys
    kept = corners[first].tobytes()
    indices = which.reshape(-1, 4)[:, [0, 1, 2, 0, 2, 3]].astype(np.uint32)
    count = int(parts[-1]) + 1 if len(parts) else 0
    rows: list[int] = np.searchsorted(unique, np.arange(count + 1, dtype=np.uint64) << np.uint64(HASH_BITS)).tolist()
    cuts: list[int] = np.searchsorted(parts, np.arange(count + 1)).tolist()
    made = []
    for (begin, end), (low, high) in zip(pairwise(rows), pairwise(cuts), strict=True):
        piece = kept[begin * VERTEX.itemsize : end * VERTEX.itemsize]
        made.append(geometry_of(piece, end - begin, (indices[low:high] - begin).tobytes(), 6 * (high - low)))
    return made


def geometry_of(vertices: bytes, rows: int, indices: bytes, count: int) -> core.Geom:
    """Triangles of ``rows`` vertices by ``count`` indices, both as they lie in memory."""
    data = core.GeomVertexData("quads", vertex_format(), core.GeomEnums.UH_static)
    data.unclean_set_num_rows(rows)
    data.modify_array_handle(0).copy_data_from(vertices)
    triangles = core.GeomTriangles(core.GeomEnums.UH_static)
    triangles.set_index_type(core.GeomEnums.NT_uint32)
    triangles.modify_vertices().unclean_set_num_rows(count)
    triangles.modify_vertices().modify_handle().copy_data_from(indices)
    triangles.close_primitive()
    geom = core.Geom(data)
    geom.add_primitive(triangles)
    return geom


def tiled(parent: core.NodePath, name: str, quads: Quads, square: float = SQUARE) -> core.NodePath:
    """Hang ``quads`` under ``parent`` as one node, with a ``Geom`` per tile of ground, each seen or not by itself."""
    node = core.GeomNode(name)
    if len(quads.corners):
        east, north = np.floor(quads.corners[:, :, :2].mean(axis=1) / square).astype(np.int64).T
        order = np.argsort(east * 100_003 + north, kind="stable")
        parts = np.r_[0, np.cumsum(np.diff((east * 100_003 + north // LONG)[order]) != 0)]
        for made in geometries(Quads(quads.corners[order], quads.colours[order], quads.uv[order]), parts):
            node.add_geom(made)
    return parent.attach_new_node(node)


def as_node(name: str, quads: Quads) -> core.NodePath:
    """``quads`` as one node that is seen from both sides."""
    node = core.GeomNode(name)
    node.add_geom(geometry(quads))
    path = core.NodePath(node)
    path.set_two_sided(True)
    return path


def lay_texture(part: core.NodePath, picture: NDArray[np.uint8], tint: NDArray[np.float64] | None = None) -> None:
    """Lay a texture on ``part``: ``picture`` times the colours of the vertices, or times one ``tint`` (RGB).

    A tint is a quarter quicker to draw: the renderer need not blend colours between the vertices.
    """
    if tint is not None:
        picture = picture.copy()
        picture[:, :, :3] = np.clip(picture[:, :, :3] * tint, 0, 255)
        part.set_color(1, 1, 1, 1)
    part.set_texture(make_texture(picture))


def make_texture(picture: NDArray[np.uint8]) -> core.Texture:
    """A texture of ``picture``, sides powers of two: [height, width, 3] repeats, [height, width, 4] is a cut-out."""
    height, width, channels = picture.shape
    made = core.Texture()
    form = core.Texture.F_rgba if channels == 4 else core.Texture.F_rgb
    made.setup_2d_texture(width, height, core.Texture.T_unsigned_byte, form)
    made.set_ram_image(picture[::-1, :, [2, 1, 0, 3][:channels]].tobytes())
    modes = core.SamplerState
    # Averaged over a few pixels, the thin trunks of cut-outs would fade away.
    wrap, smaller, larger = modes.WM_clamp, modes.FT_nearest, modes.FT_nearest
    if channels == 3:
        wrap, smaller, larger = modes.WM_repeat, modes.FT_linear_mipmap_nearest, modes.FT_linear
    made.set_wrap_u(wrap)
    made.set_wrap_v(wrap)
    made.set_minfilter(smaller)
    made.set_magfilter(larger)
    return made


def grain(rng: Generator, blur: float, side: int = SIDE) -> NDArray[np.float32]:
    """Noise that tiles, blurred over ``blur`` pixels, mean 0 and standard deviation 1, [side, side]."""
    noise = rng.standard_normal((side, side), dtype=np.float32)
    if blur > 0:
        edge = int(4 * blur) + 1
        noise = np.asarray(cv2.GaussianBlur(np.pad(noise, edge, mode="wrap"), (0, 0), blur), dtype=np.float32)
        noise = noise[edge:-edge, edge:-edge]
    return np.asarray((noise - noise.mean()) / noise.std())


def grey(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Brightness 0 .. 1 [side, side] -> uint8 [side, side, 3]."""
    return np.repeat(np.clip(values * 255, 0, 255).astype(np.uint8)[:, :, None], 3, axis=2)


def asphalt_texture(rng: Generator, contrast: float) -> NDArray[np.uint8]:
    """Coarse stones in tar; ``contrast`` is the standard deviation of the brightness."""
    stones = 0.85 * grain(rng, 0.8) + 0.5 * grain(rng, 2.0) + 0.3 * grain(rng, 10.0)
    return grey(0.74 + contrast * stones)


def soil_texture(rng: Generator, contrast: float) -> NDArray[np.uint8]:
    """Earth, grass or rock, as tinted."""
    return grey(0.82 + contrast * (0.5 * grain(rng, 1.0) + 0.6 * grain(rng, 4.0) + 0.6 * grain(rng, 14.0)))


def concrete_texture(rng: Generator, contrast: float) -> NDArray[np.uint8]:
    """Slabs with dark joints, one across every texture."""
    slab = (0.84 + 0.5 * contrast * (0.6 * grain(rng, 0.8) + 0.6 * grain(rng, 12.0))).astype(np.float32)
    slab[:2] *= 0.62
    slab[:, :1] *= 0.75
    return grey(slab)


def gravel_texture(rng: Generator, contrast: float) -> NDArray[np.uint8]:
    """Loose stones."""
    return grey(0.72 + 1.3 * contrast * (0.9 * grain(rng, 1.1) + 0.3 * grain(rng, 3.0)) + 0.05 * grain(rng, 16.0))


def cobbles_texture(rng: Generator) -> NDArray[np.uint8]:
    """Rows of stones with light joints, as on the bridge."""
    rows, columns = 8, 8
    picture = np.full((SIDE, SIDE), 0.95, dtype=np.float32)
    height, width = SIDE // rows, SIDE // columns
    for row in range(rows):
        for column in range(columns + 1):
            x = column * width - (row % 2) * width // 2
            shade = float(rng.uniform(0.5, 0.85))
            cv2.rectangle(picture, (x + 1, row * height + 1), (x + width - 2, row * height + height - 2), shade, -1)
    return grey(picture + 0.06 * grain(rng, 1.0))


def bush_texture(rng: Generator) -> NDArray[np.uint8]:
    """Stalks from the ground, RGBA [64, 128, 4]."""
    picture = np.zeros((64, 128, 4), dtype=np.uint8)
    for _ in range(150):
        x = int(rng.integers(6, 122))
        high = int((1 - ((x - 64) / 70) ** 2) * rng.uniform(20, 60))
        green = int(rng.integers(70, 150))
        cv2.line(picture, (x, 63), (x + int(rng.integers(-4, 5)), 63 - high), (green - 12, green, 34, 255), 3)
    return picture


def crown(rng: Generator, *, centres: int, top: float, bottom: float, spread: float, trunk: float) -> NDArray[np.uint8]:
    """A tree, RGBA [128, 64, 4]: leaves around a trunk, darker below; lengths are shares of height and width."""
    high, wide = 128, 64
    picture = np.zeros((high, wide, 4), dtype=np.uint8)
    half = max(1, int(trunk * wide / 2))
    cv2.rectangle(picture, (wide // 2 - half, int(top * high) + 8), (wide // 2 + half, high - 1), (74, 58, 42, 255), -1)
    for share in np.sort(rng.uniform(0, 1, centres))[::-1]:
        y = int((top + 0.06 + share * (bottom - top)) * high)
        reach = spread * wide * (0.35 + 0.65 * np.sin(np.pi * min(1.0, share * 0.75 + 0.2)))
        x = int(wide / 2 + rng.uniform(-reach, reach))
        light = float(rng.uniform(0.55, 1.0)) * (1.0 - 0.35 * share)
        for _ in range(3):
            at = x + int(rng.integers(-4, 5)), y + int(rng.integers(-4, 5))
            tone = light * float(rng.uniform(0.75, 1.15))
            colour = (int(122 * tone), int(128 * tone), int(66 * tone), 255)
            cv2.ellipse(picture, at, (int(rng.integers(4, 10)), int(rng.integers(3, 7))), 0, 0, 360, colour, -1)
    picture[0] = 0
    return picture


# A tall tree with a bare trunk, and a round one.
pine_texture = partial(crown, centres=26, top=0.05, bottom=0.62, spread=0.34, trunk=0.09)
oak_texture = partial(crown, centres=34, top=0.12, bottom=0.78, spread=0.40, trunk=0.11)
