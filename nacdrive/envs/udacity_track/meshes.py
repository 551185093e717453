"""From arrays of quadrilaterals to Panda3D geometry, cut into tiles so that what is out of sight costs nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from panda3d.core import (
    Geom,
    GeomEnums,
    GeomNode,
    GeomTriangles,
    GeomVertexData,
    GeomVertexFormat,
    NodePath,
    SamplerState,
    Texture,
)

VERTEX = np.dtype([("place", "<f4", 3), ("colour", "u1", 4), ("uv", "<f4", 2)])
TILE = 60.0
"""Metres along the side of one tile."""


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
        """All of them in one."""
        return Quads(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("corners", "colours", "uv")))


def geometry(quads: Quads) -> Geom:
    """Two triangles per quadrilateral; corners that are alike in everything become one vertex."""
    count = len(quads.corners)
    vertices = np.zeros((count, 4), dtype=VERTEX)
    vertices["place"] = quads.corners
    vertices["colour"][..., :3] = np.clip(quads.colours * 255, 0, 255)
    vertices["colour"][..., 3] = 255
    vertices["uv"] = quads.uv
    kept, which = np.unique(vertices.view(f"V{VERTEX.itemsize}").ravel(), return_inverse=True)
    data = GeomVertexData("quads", GeomVertexFormat.get_v3c4t2(), GeomEnums.UH_static)
    data.unclean_set_num_rows(len(kept))
    data.modify_array_handle(0).copy_data_from(kept.tobytes())
    indices = which.reshape(count, 4)[:, [0, 1, 2, 0, 2, 3]].astype(np.uint32).ravel()
    triangles = GeomTriangles(GeomEnums.UH_static)
    triangles.set_index_type(GeomEnums.NT_uint32)
    triangles.modify_vertices().unclean_set_num_rows(len(indices))
    triangles.modify_vertices().modify_handle().copy_data_from(indices.tobytes())
    triangles.close_primitive()
    geom = Geom(data)
    geom.add_primitive(triangles)
    return geom


def tiled(parent: NodePath, name: str, quads: Quads, tile: float = TILE) -> NodePath:
    """Hang ``quads`` under ``parent``, one node per square of ground, and return the node above them."""
    group = parent.attach_new_node(name)
    squares = np.floor(quads.corners[:, :, :2].mean(axis=1) / tile).astype(np.int64)
    keys = squares[:, 0] * 100_003 + squares[:, 1]
    order = np.argsort(keys, kind="stable")
    cuts = np.flatnonzero(np.diff(keys[order])) + 1
    for chosen in np.split(order, cuts):
        if len(chosen):
            node = GeomNode(name)
            node.add_geom(geometry(Quads(quads.corners[chosen], quads.colours[chosen], quads.uv[chosen])))
            group.attach_new_node(node)
    return group


def paper(part: NodePath, picture: NDArray[np.uint8], tint: NDArray[np.float64] | None = None) -> None:
    """Lay a texture on ``part``: ``picture`` times the colours of the vertices, or times one ``tint`` (RGB).

    A tint is a quarter quicker to draw: the renderer need not blend colours between the vertices.
    """
    if tint is not None:
        picture = picture.copy()
        picture[:, :, :3] = np.clip(picture[:, :, :3] * tint, 0, 255)
        part.set_color(1, 1, 1, 1)
    part.set_texture(texture(picture))


def texture(picture: NDArray[np.uint8]) -> Texture:
    """A texture of ``picture``, sides powers of two: [height, width, 3] repeats, [height, width, 4] is a cut-out."""
    height, width, channels = picture.shape
    made = Texture()
    form = Texture.F_rgba if channels == 4 else Texture.F_rgb
    made.setup_2d_texture(width, height, Texture.T_unsigned_byte, form)
    order = [2, 1, 0, 3][:channels]
    made.set_ram_image(np.ascontiguousarray(picture[::-1, :, order]).tobytes())
    cut_out = channels == 4
    wrap = SamplerState.WM_clamp if cut_out else SamplerState.WM_repeat
    made.set_wrap_u(wrap)
    made.set_wrap_v(wrap)
    # Averaged over a few pixels, thin trunks would fade away.
    made.set_minfilter(SamplerState.FT_nearest if cut_out else SamplerState.FT_linear_mipmap_nearest)
    made.set_magfilter(SamplerState.FT_nearest if cut_out else SamplerState.FT_linear)
    return made
