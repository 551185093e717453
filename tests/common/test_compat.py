"""Files as earlier versions wrote them are read, each by its own function; those of today pass unchanged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from nacdrive.common import compat
from nacdrive.common.errors import UserError
from nacdrive.common.files import write_json
from nacdrive.common.runs import RUN, check_resumable, plain
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.lap_rules import LAP_RULES
from nacdrive.layers import build
from nacdrive.rl.config import PpoConfig
from nacdrive.rl.imitate_config import FREE_TO_CHANGE, ImitateConfig
from nacdrive.rl.memory_config import NO_MEMORY


def test_ppo_settings_have_their_names_and_all_that_was_fixed() -> None:
    then = compat.ppo_settings({"clip": 0.1, "n_epochs": 3, "gamma": 0.9})
    assert then["clip_range"] == 0.1 and then["epochs"] == 3 and then["gamma"] == 0.9 and "clip" not in then
    assert then["model"] == NO_MEMORY and then["reward_scale"] == 1.0
    assert set(then) <= set(PpoConfig.__dataclass_fields__)
    assert compat.ppo_settings({"memory": "lstm"})["model"] == "lstm"


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


def test_the_best_accuracy_of_a_training_is_its_best_measure() -> None:
    assert compat.training_progress({"best_accuracy": 0.5, "step": 1}) == {"best_measure": 0.5, "step": 1}


def test_time_in_gaps_becomes_time_in_seconds() -> None:
    tensors = {"sequence.nac.time_scale": torch.tensor(2.0), "w": torch.tensor(1.0)}
    assert compat.series_tensors(tensors, 0.5, None)["sequence.nac.time_scale"] == 1.0
    assert compat.series_tensors(tensors, 0.5, "seconds") is tensors
    assert compat.series_tensors(tensors, None, None) is tensors


def test_a_phased_lstm_without_peepholes_and_open_ratio_is_loaded() -> None:
    layer = build("phased-lstm", 3, 2, 4).eval()
    now = layer.state_dict()
    prefix = next(name for name in now if name.endswith("log_tau")).removesuffix("log_tau")
    then = {name: value for name, value in now.items() if not name.endswith(("peephole", "open_logit"))}
    other = build("phased-lstm", 3, 2, 4)
    other.load_state_dict(then)
    loaded = other.state_dict()
    assert (loaded[f"{prefix}peephole"] == 0).all()
    assert torch.allclose(loaded[f"{prefix}open_logit"], torch.tensor(math.log(0.05 / 0.95)))
    same = dict(now)
    compat.phased_lstm_tensors(same, prefix)
    assert all(same[name] is value for name, value in now.items())


def test_an_s4_without_gates_is_loaded_and_gives_as_many_features() -> None:
    layer = build("s4", 3, 2, 4).eval()
    now = layer.state_dict()
    weight = next(name for name in now if name.endswith("out.weight"))
    prefix, width = weight.removesuffix("out.weight"), len(now[weight]) // 2
    assert not compat.is_s4_without_gates(now, prefix, width)
    then = {name: value[:width] if name.startswith(f"{prefix}out.") else value for name, value in now.items()}
    assert compat.is_s4_without_gates(then, prefix, width)
    x, t = torch.randn(1, 4, 3), torch.arange(4.0)[None]
    expected = layer(x, t).shape
    layer.load_state_dict(then)
    assert layer(x, t).shape == expected


def test_cameras_of_which_nothing_is_said_are_straight_on_built_in_tracks_alone() -> None:
    assert compat.camera_mount({"track": "lake"}, "straight", "scene") == "straight"
    assert compat.camera_mount({"track": "lake", "camera_mount": "scene"}, "straight", "scene") == "scene"
    assert compat.camera_mount({}, "straight", "scene") == "scene"


def test_an_evaluation_without_a_rule_or_a_disturbance_of_today_was_the_usual_one() -> None:
    usual = {"noise": CameraNoise().noise, "late": CameraNoise().late}
    then = compat.evaluation({"env": "carracing", "disturbance": {"noise": 0.2}}, LAP_RULES[0], usual)
    assert then == {"env": "carracing", "rule": LAP_RULES[0], "disturbance": {"noise": 0.2, "late": usual["late"]}}
    assert compat.evaluation({"rule": "other"}, LAP_RULES[0], usual) == {"rule": "other"}


def test_metrics_without_an_environment_are_of_carracing() -> None:
    assert compat.evaluated_environment({}) == "CarRacing-v3"
    assert compat.evaluated_environment({"env": "Udacity simulator"}) == "Udacity simulator"


@pytest.mark.parametrize("text", ["[1]", "{}", '{"config": "x"}'])
def test_a_damaged_record_of_a_run_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(UserError, match="damaged"):
        check_resumable(tmp_path, None, ())
