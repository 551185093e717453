"""The map of a shared lap: its road, and its line where the recording does not say it."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from nacdrive.common.paths import shipped
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.recording import Recording
from nacdrive.envs.registry import env_spec
from nacdrive.extras.export.html import map_of

STEPS = 25


@pytest.fixture(scope="module")
def lap() -> Episode:
    """The beginning of a recorded lap that says no places."""
    whole = Recording.open(shipped("recordings") / "carracing-sample").load(0)
    columns = {one.name: getattr(whole, one.name) for one in fields(whole)}
    cut = {name: v[:STEPS] for name, v in columns.items() if isinstance(v, list | np.ndarray)}
    return replace(whole, **cut)


def test_a_lap_that_says_no_places_is_driven_once_more_for_them_and_lies_on_its_road(lap: Episode) -> None:
    assert lap.x_m is None
    line, road = map_of(lap)
    assert line is not None and road is not None and line.shape == (STEPS, 2)
    assert np.linalg.norm(np.diff(line, axis=0), axis=1).sum() == pytest.approx(
        float((lap.speed_mps[:-1] * np.diff(lap.t_s)).sum()), rel=0.15
    )
    left, right = np.array(road)
    assert 100 < len(left) <= 400
    assert np.linalg.norm(left - right, axis=1) == pytest.approx(13.3, abs=0.3)
    apart = np.linalg.norm(line[:, None] - (left + right) / 2, axis=2).min(axis=1)
    assert apart.max() < 6.7


def test_what_becomes_another_drive_has_no_map_and_places_that_are_known_stay(lap: Episode) -> None:
    assert map_of(replace(lap, speed_mps=lap.speed_mps + 1)) == (None, None)
    elsewhere = np.full(STEPS, 5000.0, np.float32)
    line, road = map_of(replace(lap, x_m=elsewhere, y_m=elsewhere))
    assert line is not None and (line == 5000).all() and road is None
    assert map_of(replace(lap, source="my-own:env")) == (None, None)


@pytest.mark.parametrize("track", ["mountain", "random:7"])
def test_a_line_on_a_built_in_track_has_its_road(track: str, lap: Episode) -> None:
    env = env_spec("udacity-track").make({"track": track})
    _, info = env.reset(seed=3)
    edges = env.road_edges()
    env.close()
    assert edges is not None
    meta = {"track": track, "road_difficulty": 0.5, "scene_variety": 0.5} if ":" in track else {"track": track}
    places = {"x_m": np.full(STEPS, info["x_m"]), "y_m": np.full(STEPS, info["y_m"])}
    about = {"source": "udacity", "seed": 3, "choice": np.full(STEPS, -1), "meta": meta}
    _, road = map_of(replace(lap, **places, **about))
    assert road is not None and len(road[0]) <= 400
    assert np.linalg.norm(np.array(road)[:, 0] - edges[:, 0], axis=1).max() < 0.1


def test_one_frame_is_no_line(lap: Episode) -> None:
    columns = {one.name: getattr(lap, one.name) for one in fields(lap)}
    one = replace(lap, **{name: v[:1] for name, v in columns.items() if isinstance(v, list | np.ndarray)})
    assert map_of(one) == (None, None)
