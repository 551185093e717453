"""Policies learn from these pictures, so the scenes of known roads are what they were: corner by corner, in the mean.

python -m tests.envs.udacity_track.test_scene   # writes scenes.json anew, after a change that is meant
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from panda3d import core

from nacdrive.envs.udacity_track.appearance import Appearance, varied_day
from nacdrive.envs.udacity_track.extras import draw_extras
from nacdrive.envs.udacity_track.meshes import VERTEX
from nacdrive.envs.udacity_track.options import RoadOptions
from nacdrive.envs.udacity_track.random_road import draw_road
from nacdrive.envs.udacity_track.scene import build_hood, build_scene
from nacdrive.envs.udacity_track.track import load_track
from nacdrive.envs.udacity_track.traffic import Traffic

KNOWN = Path(__file__).with_name("scenes.json")
WRONG = RoadOptions(missing_marks=0.3, patches=4, parked_cars=3, slow_cars=2)
ROADS = ("lake", "mountain", "1", "2", "5", "7")


def parts(name: str) -> dict[str, list[float]]:
    """Of each part of a road's scene: vertices, and the means of place, colour and texture."""
    rng = np.random.default_rng(7)
    fixed = not name.isdigit()
    track = load_track(name) if fixed else draw_road(int(name), float(int(name) % 3) / 2, 1.0)
    day = Appearance() if fixed else varied_day(rng, 1.0)
    extras = draw_extras(track, RoadOptions() if fixed else WRONG, rng, 0.0)
    world, sky = build_scene(track, day, extras)
    for path in Traffic(track, extras.slow, day).paths:
        path.reparent_to(world)
    scene = {"hood": build_hood(day), "sky": sky} | {f"{i} {p.name}": p for i, p in enumerate(world.get_children())}
    return {key: [round(float(x), 4) for x in summary(part)] for key, part in scene.items()}


def summary(part: core.NodePath) -> list[float]:
    """Corners of triangles, which do not depend on which of them share one; their means and spreads; the textures."""
    corners, textures = [], []
    for path in [part, *part.find_all_matches("**/+GeomNode")]:
        if (texture := path.get_texture()) is not None:
            textures.append(float(np.frombuffer(texture.get_ram_image(), np.uint8).mean()))
        turn = np.array(path.get_mat(part))
        for geom in path.node().get_geoms() if isinstance(path.node(), core.GeomNode) else ():
            data = np.frombuffer(memoryview(geom.get_vertex_data().get_array(0)).cast("B"), VERTEX)
            for primitive in geom.decompose().get_primitives():
                drawn = data[list(primitive.get_vertex_list())]
                corners.append(np.hstack([(drawn["place"] @ turn)[:, :3], drawn["colour"][:, :3], drawn["uv"]]))
    if not corners:
        return [0]
    whole = np.concatenate(corners).astype(float)
    return [len(whole), *whole.mean(axis=0), *whole.std(axis=0), *textures[:1]]


@pytest.mark.parametrize("name", ROADS)
def test_a_known_road_is_built_as_it_was(name: str) -> None:
    known: dict[str, Any] = json.loads(KNOWN.read_text())[name]
    built = parts(name)
    assert list(built) == list(known)
    for part, numbers in built.items():
        assert numbers == pytest.approx(known[part], rel=1e-6, abs=3e-4), part


if __name__ == "__main__":
    lines = [f'"{name}": {json.dumps(parts(name))}'.replace("], ", "],\n ") for name in ROADS]
    KNOWN.write_text("{" + ",\n".join(lines) + "}\n")
