"""CarRacing by steering and pedals, at another pace, under the other rule of the lap: in every verb that drives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import nacdrive.envs  # noqa: F401
from nacdrive.cli.drive import DriveConfig, drive
from nacdrive.cli.eval import EvalConfig, evaluate
from nacdrive.cli.expert import EvalConfig as ExpertEvalConfig
from nacdrive.cli.expert import run_eval
from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.envs.gym_spec import gym_spec_of
from nacdrive.rollout.record import record_episodes
from nacdrive.rollout.record_config import RecordConfig

FAST: dict[str, Any] = {"renderer": "fast"}


def test_a_recording_keeps_steering_and_pedals_and_says_how_it_was_driven(tmp_path: Path) -> None:
    config = RecordConfig(
        expert="racing-line", episodes=1, max_frames=40, repeat=4, rule="all-tiles-95", out=tmp_path / "r", workers=1
    )
    result = record_episodes(config)
    recording = Recording.open(result.folder)
    recipe = recording.meta["recipe"]
    assert recipe["continuous"] and recipe["rule"] == "all-tiles-95" and recipe["repeat"] == 4
    assert recording.meta["fps"] == 12.5
    episode = recording.load(0)
    assert len(episode) == 10 and episode.meta["rule"] == "all-tiles-95"
    assert (episode.choice == -1).all() and (episode.throttle > 0).all() and np.ptp(episode.throttle) > 0
    assert episode.expert_steering is not None
    np.testing.assert_array_equal(episode.expert_steering, episode.steering)

    spec = gym_spec_of(recording.meta)
    assert spec is not None and spec[1] == 2
    env = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(spec[0]))
    env.reset(seed=episode.seed)
    for at in range(len(episode)):
        pedals = episode.steering[at], episode.throttle[at], episode.brake[at]
        _, reward, *_ = env.step(np.array(pedals, dtype=np.float32))
        assert reward == pytest.approx(episode.reward[at], abs=1e-5)
    env.close()
    with pytest.raises(UserError, match="rule"):
        record_episodes(
            RecordConfig(
                expert="racing-line", episodes=2, max_frames=40, repeat=4, out=tmp_path / "r", workers=1, resume=True
            )
        )


def test_an_evaluation_says_its_rule_and_does_not_mix_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given: dict[str, Any] = {"driver": "geometric", "expert": "none", "episodes": 2, "max_frames": 40, "videos": False}
    given |= {"workers": 1, "out": tmp_path / "e", **FAST}
    metrics = evaluate(EvalConfig(**given))
    assert metrics["rule"] == metrics["model"]["rule"] == "gymnasium-1.4"
    assert "rule gymnasium-1.4" in capsys.readouterr().out
    # One of before there was a choice is of Gymnasium's rule.
    path = tmp_path / "e" / "evaluation.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "rule"}))
    with pytest.raises(UserError, match="evaluation of another rule"):
        evaluate(EvalConfig(**given, rule="all-tiles-95", resume=True))
    evaluate(EvalConfig(**given, resume=True))


def test_an_expert_is_evaluated_under_the_rule_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    run_eval(ExpertEvalConfig(expert="racing-line", episodes=1, rule="all-tiles-95", **FAST))
    told = capsys.readouterr().out
    assert "rule all-tiles-95" in told and "1 laps finished" in told


def test_the_shipped_continuous_expert_sees_its_instruments_whoever_draws() -> None:
    """Without its instruments, which the quick pictures have for it alone, it would take the car for a standing one."""
    given: dict[str, Any] = {"driver": "continuous", "headless": True, "max_frames": 120, "seed": 1_000_002}
    fast, official = (drive(DriveConfig(**given, renderer=renderer))[0] for renderer in ("fast", "official"))
    assert fast.decisions == official.decisions == 60 and fast.grass_share == 0
    assert fast.mean_speed_mps == pytest.approx(official.mean_speed_mps, rel=0.01) and fast.mean_speed_mps > 25


def test_a_drive_takes_pace_and_rule(capsys: pytest.CaptureFixture[str]) -> None:
    config = DriveConfig(
        driver="racing-line", repeat=2, rule="all-tiles-95", headless=True, max_frames=40, episodes=1, **FAST
    )
    (result,) = drive(config)
    assert result.decisions == 20 and result.expert_agreement is None
    assert "the expert decides every 4 frames, racing-line every 2" in capsys.readouterr().out


def test_a_pace_that_a_driver_was_not_trained_at_is_refused(tmp_path: Path) -> None:
    for call in (
        lambda: run_eval(ExpertEvalConfig(expert="ppo", episodes=1, repeat=2, **FAST)),
        lambda: record_episodes(RecordConfig(expert="ppo", episodes=1, repeat=2, out=tmp_path / "r")),
        lambda: drive(DriveConfig(driver="ppo", repeat=2, headless=True)),
    ):
        with pytest.raises(UserError, match="--repeat is 2, and ppo was trained to decide every 4 frames"):
            call()
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("config", [EvalConfig, DriveConfig, RecordConfig, ExpertEvalConfig])
def test_a_rule_is_refused_where_there_is_none(config: Any) -> None:
    with pytest.raises(UserError, match=r"^--rule is for carracing, and nacdrive .*--env udacity-track"):
        config(env="udacity-track", rule="all-tiles-95")
