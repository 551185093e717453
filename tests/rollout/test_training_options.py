"""What a training and a recording do where nobody says otherwise, and what does not go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nacdrive.common.errors import UserError
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.seeds import POLICY_RECORDING, POLICY_TEST
from nacdrive.envs.start import Start
from nacdrive.rollout.record_config import RecordConfig
from nacdrive.rollout.train_config import TrainConfig
from nacdrive.training.config import FitConfig


def test_a_fit_is_as_the_shipped_policies_were_unless_told_otherwise() -> None:
    config = FitConfig()
    assert (config.epochs, config.batch_size, config.precision, config.chunk, config.valid_batch) == (
        30,
        8,
        "auto",
        16,
        1,
    )
    assert (config.learning_rate, config.optimizer, config.weight_decay, config.schedule) == (
        1e-3,
        "adamw",
        0.01,
        "cosine",
    )
    assert (config.patience, config.valid_share, config.average, config.clip) == (8, 0.1, 0.99, 1)
    assert (config.soft, config.class_weights, config.augment, config.checkpoint_steps) == (1.0, None, True, 100)


def test_a_policy_is_trained_as_the_shipped_ones_were_unless_told_otherwise() -> None:
    config = TrainConfig(task="carracing")
    assert (config.model, config.dagger, config.dagger_episodes, config.dagger_epochs) == ("nac-steady", 0, 12, 8)
    assert (config.lesson_frames, config.lessons, config.first, config.env, config.beta) == (0, (), None, None, 0.5)
    assert (config.instruments, config.max_frames, config.expert, config.rounds) == (True, 1000, "ppo", 0)
    assert config.window == 12 and TrainConfig(task="carracing", paper_form=True).window == 4
    assert TrainConfig(task="carracing", window=7).window == 7
    assert config.folder == Path("runs/carracing-nac-steady") and config.file_name == "nac_steady.pt"
    assert TrainConfig(task="carracing", out=Path("x")).folder == Path("x")
    taught = TrainConfig(task="carracing", lessons=(Path("a"), Path("b")), first=Path("c.pt"))
    assert taught.rounds == 2 and TrainConfig(task="carracing", dagger=3).rounds == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "auto"}, "--task auto follows from the recordings"),
        ({"task": "carrcing"}, "did you mean 'carracing'"),
        ({"task": "imitation", "data": (Path("x"),), "dagger": 1}, "no environment is known for the task"),
        ({"task": "imitation"}, "has no usual recordings"),
        ({"task": "carracing", "lessons": (Path("x"),)}, "--lessons teach the policy --first"),
        ({"task": "carracing", "lessons": (Path("x"),), "first": Path("y"), "dagger": 1}, "--lessons teach the policy"),
        # Their learning rate would never fall.
        ({"task": "carracing", "schedule": "plateau", "valid_share": 0.0}, "--valid-share 0 keeps no frames aside"),
        (
            {"task": "carracing", "schedule": "steep-plateau", "lessons": (Path("x"),), "first": Path("y")},
            "--lessons keep no frames aside",
        ),
        ({"task": "carracing", "disturbance": CameraNoise(noise=0.1)}, "are of the drives of DAgger"),
        ({"task": "udacity", "dagger": 1, "expert": "ppo"}, "does not know"),
        ({"task": "carracing", "bad_starts": 0.2}, "--bad-starts is of the drives of DAgger"),
        ({"task": "carracing", "renderer": "fast"}, "--renderer is of the drives of DAgger"),
        ({"task": "udacity", "dagger": 1, "renderer": "fast"}, "--renderer is for carracing"),
        (
            {"task": "carracing", "dagger": 1, "between_frames": True, "disturbance": CameraNoise(late=2)},
            "--between-frames is for rare or lost frames",
        ),
    ],
)
def test_options_of_a_training_that_do_not_go_together(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        TrainConfig(**options)


def test_a_recording_is_of_tracks_that_nobody_is_judged_on() -> None:
    config = RecordConfig()
    assert (config.seed, config.max_frames, config.expert, config.by_hand) == (
        POLICY_RECORDING.start,
        1000,
        "ppo",
        False,
    )
    assert (config.every_frame, config.min_return, config.sides, config.log) == (False, None, True, None)
    last = POLICY_TEST.start - config.episodes
    assert RecordConfig(seed=last).seed == last and RecordConfig(seed=POLICY_TEST.stop).seed == POLICY_TEST.stop
    for seed in (last + 1, POLICY_TEST.stop - 1):
        with pytest.raises(UserError, match="reach into those that policies are judged on"):
            RecordConfig(seed=seed)
    assert RecordConfig(driver="racing-line").expert is None
    by_hand = {"expert": "keyboard", "watch": True, "allow_control": True}
    assert RecordConfig(**by_hand).by_hand and RecordConfig(**by_hand).folder.name == "carracing-keyboard"  # type: ignore[arg-type]
    assert RecordConfig(out=Path("x")).folder == Path("x")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expert": "keyboard"}, "go together"),
        ({"expert": "keyboard", "watch": True}, "go together"),
        ({"expert": "keyboard", "allow_control": True}, "go together|--watch"),
        ({"expert": "keyboard", "watch": True, "allow_control": True, "every_frame": True}, "knows no --every-frame"),
        ({"expert": "keyboard", "watch": True, "allow_control": True, "driver": "racing-line"}, "leave --driver out"),
        ({"watch": True, "allow_control": True}, "go together"),
        ({"every_frame": True, "repeat": 2}, "leave --repeat out"),
    ],
)
def test_options_of_a_recording_that_do_not_go_together(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        RecordConfig(**options)


def test_a_start_is_where_it_is_given_in_radians() -> None:
    assert Start().given == Start().place == {}
    start = Start(start_offset=-2.0, start_heading=90.0, start_speed=0.0)
    assert start.given == {"start_offset": -2.0, "start_heading": 90.0, "start_speed": 0.0}
    assert start.place == {"offset": -2.0, "heading": pytest.approx(1.5708, abs=1e-4), "speed": 0.0}
    for options in ({"start_offset": 30.1}, {"start_heading": -181.0}, {"start_speed": 101.0}, {"start_speed": -1.0}):
        with pytest.raises(UserError):
            Start(**options)
    assert Start(start_offset=-30.0, start_heading=180.0, start_speed=100.0).given["start_speed"] == 100
