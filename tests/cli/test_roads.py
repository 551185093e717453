"""Random roads on the command line: driven, recorded, looked at; what makes no sense is said in one sentence."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from nacdrive.cli.drive import DriveConfig, load
from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.envs.udacity_track.options import RoadOptions
from nacdrive.extras.simulator.road_gallery import BRIDGE, ROAD, TUNNEL, WATER, gallery
from nacdrive.extras.simulator.verb import RoadsConfig, UdacityConfig, run_roads
from nacdrive.rollout.drive import Drive, LoadedDrive
from nacdrive.rollout.eval_config import EvalConfig
from nacdrive.rollout.evaluate import evaluate
from nacdrive.rollout.record import record_episodes
from nacdrive.rollout.record_config import RecordConfig


def test_a_sheet_shows_each_road_from_above_and_from_its_car(tmp_path: Path) -> None:
    path = tmp_path / "roads.png"
    run_roads(RoadsConfig(out=path, count=3, seed=5, columns=2))
    sheet = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
    np.testing.assert_array_equal(sheet, gallery(range(5, 8), 2))
    assert sheet.shape[1] == 2 * 326 and len(np.unique(sheet.reshape(-1, 3), axis=0)) > 2000
    for colour in (BRIDGE, TUNNEL, WATER):  # of roads 5 and 7
        assert (np.abs(sheet.astype(int) - colour).max(axis=2) < 6).any()
    road, edge = ((np.abs(sheet.astype(int) - colour).max(axis=2) < 6).sum() for colour in (ROAD, (60, 60, 60)))
    assert 0 < edge < road, "an edge of a pixel on either side, and the road between"
    with pytest.raises(UserError, match="--overwrite"):
        run_roads(RoadsConfig(out=path, count=1))


@pytest.mark.parametrize(
    ("config", "options", "said"),
    [
        (RoadsConfig, {"count": 0}, "--count is 0"),
        (RoadsConfig, {"count": 191, "columns": 1}, "a JPEG holds 190 roads one below the other"),
        (RoadsConfig, {"out": Path("roads.gif")}, r"ends in \.jpg"),
        (RoadsConfig, {"seed": -1}, "--seed is -1"),
        (UdacityConfig, {"track": "laek"}, "did you mean 'lake'"),
        (UdacityConfig, {"track": "random:x"}, "whole number"),
        (UdacityConfig, {"road": RoadOptions(scene_variety=0.3)}, "--scene-variety is for random roads"),
        (EvalConfig, {"env": "udacity", "track": "random:1e3"}, "whole number"),
        (EvalConfig, {"env": "udacity", "track": "randm"}, "did you mean 'random'"),
        (EvalConfig, {"env": "udacity", "road": RoadOptions(road_difficulty=0.3)}, "--road-difficulty is for random"),
        (EvalConfig, {"road": RoadOptions(parked_cars=3)}, "--parked-cars is for udacity-track"),
        (DriveConfig, {"env": "udacity-track", "track": "random:-3"}, "whole number"),
        (DriveConfig, {"env": "udacity", "road": RoadOptions(patches=3)}, "--patches is for udacity-track"),
        (RecordConfig, {"roads": 3}, "--roads is for udacity-track"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_sentence(config: type, options: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said) as found:
        config(**options)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(("env", "repeat"), [("carracing", 4), ("udacity-track", 4)])
def test_a_policy_is_watched_at_the_pace_at_which_it_is_judged(env: str, repeat: int) -> None:
    config = DriveConfig(env=env, headless=True)
    loaded = load(config)
    watched = loaded.make_env(config.first_seed)
    try:
        assert watched.step_s == pytest.approx(repeat / 50)
    finally:
        watched.close()
    assert LoadedDrive(Drive(env), driver=loaded.driver).repeat == repeat


def test_so_many_roads_are_recorded_as_were_asked_and_not_mixed_with_others(tmp_path: Path) -> None:
    folder = tmp_path / "roads"
    asked = {"env": "udacity", "out": folder, "track": "random", "max_frames": 8, "workers": 1, "sides": False}
    config = RecordConfig(**asked, roads=2, episodes=3, road=RoadOptions(road_difficulty=0.2))
    record_episodes(config)
    recording = Recording.open(folder)
    meta = [recording.load(index).meta for index in range(3)]
    assert [m["track"] for m in meta] == ["random:3000000", "random:3000001", "random:3000000"]
    assert all(m["road_difficulty"] == 0.2 for m in meta)
    for other in ({"track": "lake"}, {"track": "random", "roads": 3}, {"track": "random", "roads": 2}):
        with pytest.raises(UserError) as said:  # the last lacks the difficulty
            record_episodes(RecordConfig(**{**asked, **other}, episodes=4, resume=True))
        assert "\n" not in str(said.value)
    assert len(Recording.open(folder)) == 3


def test_unseen_roads_are_driven_once_each_and_told_apart_from_others(tmp_path: Path) -> None:
    config = EvalConfig(
        env="udacity", driver="geometric", expert="none", track="random", episodes=2, videos=False, max_frames=20,
        road=RoadOptions(road_difficulty=0.0),
    )  # fmt: skip
    assert config.folder.name == "eval-udacity-random-geometric-road_difficulty-0"
    spec = config.driven(None)
    assert spec.options["laps"] == 1.0 and spec.options["road_difficulty"] == 0.0
    metrics = evaluate(spec, range(config.seed, config.seed + 2), tmp_path, tracks=("random",), workers=0, films=False)
    assert metrics["tracks"]["random"]["drives"] == 2
    with pytest.raises(UserError, match="another road_difficulty"):
        harder = EvalConfig(
            env="udacity", driver="geometric", expert="none", track="random", max_frames=20,
            road=RoadOptions(road_difficulty=1.0),
        ).driven(None)  # fmt: skip
        evaluate(harder, range(1), tmp_path, tracks=("random",), workers=0, films=False)
    one = EvalConfig(env="udacity", track="random:7").driven(None)
    evaluate(
        EvalConfig(env="udacity", driver="geometric", expert="none", max_frames=20, track="random:7").driven(None),
        range(1), tmp_path / "one", tracks=("random:7",), workers=0, films=False,
    )  # fmt: skip
    assert one.options["laps"] == 1.0 and (tmp_path / "one" / "random-7.jsonl").exists()
