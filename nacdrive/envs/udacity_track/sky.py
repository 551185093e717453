"""The sky: a cylinder around the camera, drawn first and behind everything, with far hills painted on its foot."""

from __future__ import annotations

import numpy as np
from panda3d.core import GeomNode, NodePath

from nacdrive.envs.udacity_track.appearance import Look
from nacdrive.envs.udacity_track.meshes import Quads, geometry

RADIUS = 100.0
SIDES = 48


def sky(look: Look, rng: np.random.Generator) -> NodePath:
    """Bands of colour from the ground to the zenith; it has to be moved with the camera."""
    angle = np.linspace(0, 2 * np.pi, SIDES + 1)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1) * RADIUS
    zenith, horizon = (np.array(c) * look.exposure for c in (look.zenith, look.horizon))
    far = 0.55 * horizon + 0.45 * np.array(look.rock) * look.exposure
    ground = np.array(look.grass) * look.exposure * 0.8
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
    node = GeomNode("sky")
    node.add_geom(geometry(Quads.joined(parts)))
    path = NodePath(node)
    path.set_bin("background", 0)
    path.set_depth_write(False)
    path.set_depth_test(False)
    path.set_two_sided(True)
    return path


def band(ring: np.ndarray, low: np.ndarray, high: np.ndarray, below: np.ndarray, above: np.ndarray) -> Quads:
    """A ring of quadrilaterals between two heights (one each per point of ``ring``), with a colour at both."""
    bottom, top = np.c_[ring, low], np.c_[ring, high]
    corners = np.stack([bottom[:-1], bottom[1:], top[1:], top[:-1]], axis=1)
    colours = np.broadcast_to(np.stack([below, below, above, above]), corners.shape)
    return Quads(corners, colours, np.zeros((len(corners), 4, 2)))
