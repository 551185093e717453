"""The car's bonnet, as the cameras see it along the lower edge of the picture."""

from __future__ import annotations

import numpy as np
from panda3d.core import GeomNode, NodePath

from nacdrive.envs.udacity_track.appearance import Look
from nacdrive.envs.udacity_track.meshes import Quads, geometry

# Forward and up in the car's own metres, with the share of the paint's brightness, from the crest backwards.
BANDS = ((1.80, 0.70, 1.15), (1.69, 0.693, 1.05), (1.68, 0.69, 0.15), (1.665, 0.69, 1.25), (1.45, 0.68, 1.25))
HALF_WIDTH = 0.86


def bonnet(look: Look) -> NodePath:
    """A curved sheet, to be hung under the car."""
    across = np.linspace(-HALF_WIDTH, HALF_WIDTH, 13)
    rows = [np.stack([across, forward - 0.22 * across**2, up - 0.19 * across**2], axis=1) for forward, up, _ in BANDS]
    light = [np.broadcast_to(np.array(look.bonnet) * shade * look.exposure, (13, 3)) for *_, shade in BANDS]
    parts = []
    for k in range(len(BANDS) - 1):
        corners, colours = (np.stack([r[k][:-1], r[k + 1][:-1], r[k + 1][1:], r[k][1:]], axis=1) for r in (rows, light))
        parts.append(Quads(corners, colours, np.zeros((12, 4, 2))))
    node = GeomNode("bonnet")
    node.add_geom(geometry(Quads.joined(parts)))
    path = NodePath(node)
    path.set_two_sided(True)
    return path
