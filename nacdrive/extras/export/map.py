"""Of a recorded lap what a map shows: the road, and the line where the recording does not say it."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import Episode
from nacdrive.drivers.base import Rerun
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.registry import spec_of_source
from nacdrive.rollout.drive import Drive, LoadedDrive
from nacdrive.rollout.rollout import rollout
from nacdrive.viz.recorded import driven_actions
from nacdrive.web.protocol import road_json

ROAD_OPTIONS = ("road_difficulty", "scene_variety")
"""Options of an environment on which its roads depend, beside track and seed."""
SAME_MPS = 0.05
"""Up to this difference two speeds are one."""


def map_of(episode: Episode) -> tuple[NDArray[np.floating] | None, list[Any] | None]:
    """Places of the car [steps, 2] in metres and the road as of ``road_json``, each None where it cannot be known."""
    line = None
    if episode.x_m is not None and episode.y_m is not None:
        line = np.stack([episode.x_m, episode.y_m], axis=1)
    spec = spec_of_source(episode.source)
    if spec is None or spec.realtime or (line is not None and not np.isfinite(line).any()):
        return line, None
    again = Rerun(driven_actions(episode))
    options = {name: episode.meta.get(name) for name in ROAD_OPTIONS}
    drive = Drive(spec.name, options=options | ({"renderer": "fast"} if spec.honours("renderer") else {}))
    repeat = round((spec.frames_per_second or 1) * float(np.median(np.diff(episode.t_s))))
    try:
        env = LoadedDrive(drive, driver=again, repeat=repeat).make_env(episode.seed, track=episode.meta.get("track"))
    except UserError:
        return line, None
    with closing(env):
        if line is None:
            line = line_driven_again(env, again, episode)
        else:
            env.reset(seed=episode.seed)
        return line, road_json(env) if line is not None and lies_on_road(line, env) else None


def line_driven_again(env: DrivingEnv, again: Rerun, episode: Episode) -> NDArray[np.floating] | None:
    """Places of the car when it does what it did; None where it becomes another drive."""
    ticks = list(rollout(env, again, episode.seed))
    speeds = np.array([tick.speed_mps for tick in ticks], dtype=float)
    if len(ticks) != len(episode) or not np.allclose(speeds, episode.speed_mps, atol=SAME_MPS):
        return None
    return np.array([(tick.x_m, tick.y_m) for tick in ticks], dtype=float)


def lies_on_road(line: NDArray[np.floating], env: DrivingEnv) -> bool:
    """Whether it is the road of this line: a recording may be of another version or of options that it does not say."""
    edges = env.road_edges()
    if edges is None:
        return False
    known = line[np.isfinite(line).all(axis=1)]
    apart = np.linalg.norm(known[:, None] - edges.mean(axis=0), axis=2).min(axis=1)
    return bool(np.median(apart) < np.linalg.norm(edges[0] - edges[1], axis=1).mean())
