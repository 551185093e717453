"""Files as earlier versions wrote them are read, each by its own function; those of today pass unchanged."""

from __future__ import annotations

import torch

from nacdrive.common import compat
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.start import LAP_RULES


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
