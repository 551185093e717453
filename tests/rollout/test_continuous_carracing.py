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
from nacdrive.cli.eval import run as evaluate
from nacdrive.cli.expert import EvalConfig as ExpertEvalConfig
from nacdrive.cli.expert import run_eval
from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.envs.gym_spec import gym_spec_of
from nacdrive.envs.registry import CARRACING
from nacdrive.models import load_policy
from nacdrive.rollout.drive import driver_options
from nacdrive.rollout.eval_config import EvalConfig
from nacdrive.rollout.record import record_episodes
from nacdrive.rollout.record_config import RecordConfig
from nacdrive.rollout.train_config import TrainConfig
from nacdrive.rollout.train_policy import train_policy

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
    with pytest.raises(UserError, match="drives of another rule"):
        evaluate(EvalConfig(**given, rule="all-tiles-95", resume=True))
    evaluate(EvalConfig(**given, resume=True))


def test_an_expert_is_evaluated_under_the_rule_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    run_eval(ExpertEvalConfig(expert="racing-line", episodes=1, rule="all-tiles-95", **FAST))
    printed = capsys.readouterr().out
    assert "rule all-tiles-95" in printed and "1 laps finished" in printed


def test_the_shipped_continuous_expert_sees_its_instruments_whoever_draws() -> None:
    """Without its instruments, which the quick pictures have for it alone, it would take the car for a standing one."""
    given: dict[str, Any] = {"driver": "continuous", "headless": True, "max_frames": 120, "seed": 1_000_002}
    fast, official = (drive(DriveConfig(**given, renderer=renderer))[0] for renderer in ("fast", "official"))
    assert fast.decisions == official.decisions == 60 and fast.wheels_off == 0
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
    with pytest.raises(UserError, match=r"^--rule is for carracing, and --env udacity-track"):
        config(env="udacity-track", rule="all-tiles-95")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the shipped continuous expert decided in two short drives."""
    out = tmp_path_factory.mktemp("continuous") / "recording"
    record_episodes(RecordConfig(expert="continuous", episodes=2, max_frames=40, workers=1, out=out))
    return out


def config_of(recording: Path, out: Path, **more: Any) -> TrainConfig:
    short: dict[str, Any] = {"epochs": 1, "dagger": 1, "dagger_episodes": 1, "max_frames": 40, "workers": 1}
    return TrainConfig(data=(recording,), model="nac-steady", out=out, **(short | more))


@pytest.fixture(scope="module")
def pupil(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy after an epoch, a drive under supervision, and another epoch."""
    return train_policy(config_of(recording, tmp_path_factory.mktemp("continuous") / "run", renderer="fast"))


def test_a_pupil_of_a_continuous_expert_steers_at_its_pace_and_is_supervised_by_it(pupil: Path) -> None:
    policy = load_policy(pupil, expect_task="carracing")
    assert policy.config.continuous and policy.config.pedal and policy.repeat == 2
    assert policy.meta["config"]["expert"] == "continuous", "who labelled the recordings labels the drives too"
    practice = Recording.open(pupil.parent / "dagger-1")
    assert (practice.meta["fps"], practice.meta["expert"]) == (25, "continuous")
    assert practice.meta["recipe"]["renderer"] == "fast", "as --renderer asks"
    episode = practice.load(0)
    assert episode.expert_steering is not None and episode.expert_pedal is not None
    assert np.abs(episode.expert_pedal - (episode.throttle - episode.brake)).max() > 0.05, "it has the pedals too"
    assert (episode.choice == -1).all()


def test_weights_of_choices_are_refused_where_nothing_is_chosen(recording: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--class-weights weighs choices, and .*recording: steering by degrees"):
        train_policy(config_of(recording, tmp_path / "run", class_weights=0.25))
    assert not (tmp_path / "run").exists()


@pytest.mark.nightly
def test_a_continuous_pupil_is_evaluated_beside_its_teacher(pupil: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"episodes": 1, "max_frames": 40, "videos": False, "workers": 1, "out": tmp_path / "e"}
    metrics = evaluate(EvalConfig(model=str(pupil), **given))
    assert metrics["model"]["expert"] == "continuous"
    assert metrics["decisions"] == 20 and metrics["expert_return"]["mean"] > 0
    (result,) = drive(DriveConfig(model=str(pupil), headless=True, max_frames=40, episodes=1, seed=4_000_000))
    assert result.episode_return == pytest.approx(metrics["return"]["mean"])


def test_a_pupil_gets_the_instruments_that_it_learnt_with_whoever_draws(pupil: Path) -> None:
    asked = driver_options(CARRACING, PolicyDriver(load_policy(pupil)))
    assert asked == {"continuous": True, "instruments": True, "colours": True}
    blind = load_policy(pupil)
    blind.config = type(blind.config).from_json({**blind.config.to_json(), "masked_rows": [84, 96]})
    assert driver_options(CARRACING, PolicyDriver(blind)) == {"continuous": True, "colours": True}
    first = {
        renderer: CARRACING.make({**asked, "renderer": renderer}).reset(seed=1_000_000)[0].astype(float)
        for renderer in ("official", "fast")
    }
    assert np.abs(first["official"] - first["fast"]).mean() < 1
    assert np.ptp(first["fast"], axis=2).max() > 50, "the grass is green"


def test_an_expert_of_another_kind_is_refused_before_any_training(recording: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ppo chooses among 5 actions, and the recordings hold steering and pedals"):
        train_policy(config_of(recording, tmp_path / "run", expert="ppo"))
    choices = tmp_path / "choices"
    record_episodes(RecordConfig(expert="geometric", episodes=2, max_frames=40, workers=1, out=choices))
    with pytest.raises(UserError, match="continuous has continuous actions, and the recordings hold choices"):
        train_policy(config_of(choices, tmp_path / "run", expert="continuous"))
    assert TrainConfig(data=(choices,)).expert == "geometric"
    assert TrainConfig(data=(tmp_path / "nothing",)).expert == "ppo"
    assert not (tmp_path / "run").exists()
