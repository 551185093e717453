"""Files as earlier versions wrote them are read, each by its own function; those of today pass unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nacdrive.common import compat
from nacdrive.common.errors import UserError
from nacdrive.common.files import write_json
from nacdrive.common.runs import RUN, check_resumable, plain
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.start import LAP_RULES
from nacdrive.rl.config import ImitateConfig
from nacdrive.rl.imitate import FREE_TO_CHANGE


def test_a_run_begun_under_other_names_of_options_is_resumed_with_the_same_values_alone(
    tmp_path: Path,
) -> None:
    old = {"lr": [1e-3, 2e-5], "teacher": "racing-line", "memory": "none", "batch_size": 256, "rounds": 8}
    write_json(tmp_path / RUN, {"config": old})
    with pytest.raises(UserError, match="--expert racing-line instead of geometric"):
        check_resumable(tmp_path, ImitateConfig(expert="geometric"), FREE_TO_CHANGE)
    with pytest.raises(UserError, match="--learning-rate"):
        check_resumable(tmp_path, ImitateConfig(learning_rate=(1e-3, 1e-5)), FREE_TO_CHANGE)
    check_resumable(tmp_path, ImitateConfig(rounds=9), FREE_TO_CHANGE)
    assert compat.run_options({"batch": 8, "model": "gru"}) == {"batch_size": 8, "model": "gru"}
    today = plain(ImitateConfig())
    assert compat.run_options(today) == today


def test_time_in_gaps_becomes_time_in_seconds() -> None:
    tensors = {"sequence.nac.time_scale": torch.tensor(2.0), "w": torch.tensor(1.0)}
    assert compat.series_tensors(tensors, 0.5, None)["sequence.nac.time_scale"] == 1.0
    assert compat.series_tensors(tensors, 0.5, "seconds") is tensors
    assert compat.series_tensors(tensors, None, None) is tensors


def test_cameras_of_which_nothing_is_said_are_straight_on_built_in_tracks_alone() -> None:
    assert compat.camera_mount({"track": "lake"}, "straight", "scene") == "straight"
    assert compat.camera_mount({"track": "lake", "camera_mount": "scene"}, "straight", "scene") == "scene"
    assert compat.camera_mount({}, "straight", "scene") == "scene"


def test_an_evaluation_without_a_rule_or_a_disturbance_of_today_was_the_usual_one() -> None:
    usual = {"noise": CameraNoise().noise, "late": CameraNoise().late}
    then = compat.evaluation({"env": "carracing", "disturbance": {"noise": 0.2}}, LAP_RULES[0], usual)
    assert then == {"env": "carracing", "rule": LAP_RULES[0], "disturbance": {"noise": 0.2, "late": usual["late"]}}
    assert compat.evaluation({"rule": "other"}, LAP_RULES[0], usual) == {"env": "carracing", "rule": "other"}


def test_a_row_with_the_old_names_alone_gets_the_present_ones() -> None:
    row = compat.row({"seed": 1, "tiles_visited": 0.5, "grass_share": 0.25})
    assert row == {"seed": 1, "tiles_visited": 0.5, "grass_share": 0.25, "progress": 0.5, "wheels_off": 0.25}
    today = {"seed": 1, "progress": 0.5, "wheels_off": 0.25}
    assert compat.row(today) == today


def test_metrics_without_an_environment_are_of_carracing() -> None:
    assert compat.evaluated_environment({}) == "CarRacing-v3"
    assert compat.evaluated_environment({"env": "Udacity simulator"}) == "Udacity simulator"


@pytest.mark.parametrize("text", ["[1]", "{}", '{"config": "x"}'])
def test_a_damaged_record_of_a_run_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UserError, match="damaged"):
        check_resumable(tmp_path, None, ())
