"""The whole training, with real recordings, a real network and real DAgger; all of it short."""

import dataclasses
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nacdrive.cli.train import run
from nacdrive.common.errors import UserError
from nacdrive.common.result_folder import release_folders
from nacdrive.datasets.recording import Recording
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.models import load_policy, save_policy
from nacdrive.rollout.dagger import DaggerRound
from nacdrive.rollout.record import record_episodes
from nacdrive.rollout.record_config import RecordConfig
from nacdrive.rollout.train_config import TrainConfig
from nacdrive.rollout.train_policy import TrainCallbacks, collect_round, train_policy
from nacdrive.training.fit import fit
from nacdrive.training.log import read_rows
from tests.helpers.udacity_logs import make_log


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("train") / "recording"
    record_episodes(RecordConfig(expert="geometric", episodes=3, max_frames=80, workers=1, out=out))
    return out


def config_of(recording: Path, out: Path, **more: object) -> TrainConfig:
    short = dict(
        data=(recording,), out=out, model="mha", window=2, expert="geometric", epochs=2, batch_size=2, chunk=8,
        dagger_episodes=2, dagger_epochs=1, max_frames=40, workers=1, checkpoint_steps=1,
    )  # fmt: skip
    return TrainConfig(**{**short, **more})  # type: ignore[arg-type]


def numbers(folder: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_rows(folder / "metrics.jsonl")]


def same_weights(one: Path, two: Path) -> bool:
    a, b = load_policy(one).network.state_dict(), load_policy(two).network.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def whole(recording: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training with a round of DAgger that nothing interrupted."""
    return train_policy(config_of(recording, tmp_path_factory.mktemp("train") / "whole", dagger=1))


def test_a_training_leaves_a_policy_that_drives_and_says_how_it_was_made(whole: Path) -> None:
    policy = load_policy(whole, expect_task="carracing")
    assert whole.name == "mha.pt"
    assert (policy.repeat, policy.config.window) == (4, 2)
    assert policy.meta["config"]["dagger"] == 1
    assert policy.meta["episodes"] == 5
    assert {"torch", "nacdrive"} <= policy.meta["versions"].keys()
    json.dumps(policy.meta, allow_nan=False)
    assert [row["round"] for row in numbers(whole.parent)] == [0, 0, 1, 1]
    assert (whole.parent / "dagger-1" / "recording.json").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window": 100_000}, r"--window is 100000, and the longest episode has 20 decisions"),
        ({"first": "nac_steady.pt", "model": "nac-exact", "window": None}, "learns on, has nac-steady: leave it out"),
        ({"first": "nac_steady.pt", "model": "nac-steady", "window": 4}, r"--window is 4, .* has \d+: leave it out"),
        ({"first": "nac_steady.pt", "model": "nac-steady", "window": 12}, r"--window is 12, .* leave it out"),
        (
            {"first": "nac_steady.pt", "model": "nac-steady", "window": None, "paper_form": True},
            r"--paper-form is True, and .* has False: leave it out",
        ),
        (
            {"first": "nac_steady_continuous.pt", "model": "nac-steady", "window": None, "between_frames": True},
            r"--between-frames is True, and .* has False: leave it out",
        ),
        (
            {"first": "nac_steady.pt", "model": "nac-steady", "window": None, "instruments": False},
            r"--no-instruments is True, and .* has False: leave it out",
        ),
        ({"window": 1, "between_frames": True}, "--between-frames needs a memory, not --model dense or --window 1"),
        (
            {"model": "dense", "window": None, "between_frames": True},
            "needs a memory, not --model dense or --window 1: leave it out",
        ),
    ],
)
def test_a_network_that_cannot_be_or_that_the_first_policy_is_not_is_refused_before_the_work(
    recording: Path, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    options = {name: Path(value) if name == "first" else value for name, value in options.items()}
    with pytest.raises(UserError, match=words):
        train_policy(config_of(recording, tmp_path / "out", **options))
    assert not (tmp_path / "out").exists()


def test_a_run_is_not_overwritten_by_accident(recording: Path, whole: Path) -> None:
    config = config_of(recording, whole.parent, dagger=1)
    with pytest.raises(UserError, match="--resume, --overwrite"):
        train_policy(config)
    with pytest.raises(UserError, match="--window 2 instead of 3"):
        train_policy(dataclasses.replace(config, window=3, resume=True))


@pytest.mark.parametrize("stop_at", [pytest.param((0, 3), marks=pytest.mark.nightly), (1, 1)])
def test_a_resumed_training_gives_the_numbers_of_an_uninterrupted_one(
    recording: Path, whole: Path, tmp_path: Path, stop_at: tuple[int, int]
) -> None:
    def stop(update) -> None:  # type: ignore[no-untyped-def]
        if (update.progress.round, update.progress.total_steps) == stop_at:
            raise KeyboardInterrupt

    config = config_of(recording, tmp_path / "run", dagger=1)
    with pytest.raises(KeyboardInterrupt):
        train_policy(config, TrainCallbacks(on_step=stop))
    path = train_policy(dataclasses.replace(config, resume=True))
    assert numbers(tmp_path / "run") == numbers(whole.parent)
    assert same_weights(path, whole)


def test_a_training_is_not_resumed_on_recordings_that_have_grown(recording: Path, tmp_path: Path) -> None:
    mine = shutil.copytree(recording, tmp_path / "mine")
    manifest = json.loads((mine / "recording.json").read_text())
    (mine / manifest["episodes"].pop()["file"]).unlink()
    (mine / "recording.json").write_text(json.dumps(manifest))
    config = config_of(mine, tmp_path / "run")

    def stop(update) -> None:  # type: ignore[no-untyped-def]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_policy(config, TrainCallbacks(on_step=stop))
    again = dataclasses.replace(config, resume=True)
    shutil.copytree(recording, mine, dirs_exist_ok=True)
    with pytest.raises(UserError, match=r"run was begun with other data of .*mine: .* another --out, or --overwrite"):
        train_policy(again)
    # One that was begun without a fingerprint is resumed.
    run = tmp_path / "run" / "run.json"
    run.write_text(json.dumps({k: v for k, v in json.loads(run.read_text()).items() if k != "data"}))
    with pytest.raises(KeyboardInterrupt):
        train_policy(again, TrainCallbacks(on_step=stop))


def test_no_episode_is_learnt_from_in_one_round_and_validated_on_in_another(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = []

    def note(network, task, train, valid, *rest, **more):  # type: ignore[no-untyped-def]
        rounds.append(({s.name for s in train}, {s.name for s in valid}))
        return fit(network, task, train, valid, *rest, **more)

    monkeypatch.setattr("nacdrive.rollout.train_policy.fit", note)
    train_policy(config_of(recording, tmp_path / "run", dagger=2, dagger_episodes=3, epochs=1, max_frames=16))
    learnt, kept = (set().union(*sides) for sides in zip(*rounds, strict=True))
    assert len(rounds) == 3
    assert len(learnt) + len(kept) == 9
    assert not learnt & kept


def test_a_complete_run_says_that_other_epochs_change_nothing(recording: Path, whole: Path) -> None:
    config = config_of(recording, whole.parent, dagger=1, resume=True)
    assert same_weights(train_policy(config), whole)
    with pytest.raises(UserError, match="is complete, trained with --epochs 2"):
        train_policy(dataclasses.replace(config, epochs=6))


def test_who_learns_on_keeps_its_layer_and_window_in_name_and_record_and_that_rewards_taught_it(
    recording: Path, whole: Path, tmp_path: Path
) -> None:
    first, before = tmp_path / "first.pt", load_policy(whole)
    save_policy(before, first, {**before.meta, "reinforced": {"iteration": 3}})
    config = config_of(recording, tmp_path / "out", first=first, model=TrainConfig.model, window=None, epochs=1)
    target = train_policy(config)
    assert target.name == "mha.pt"
    meta = load_policy(target).meta
    assert (meta["config"]["model"], meta["config"]["window"], meta["reinforced"]) == ("mha", 2, {"iteration": 3})


def test_a_resumed_run_has_the_lessons_that_it_has_learnt(recording: Path, whole: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "here/one", tmp_path / "other"
    for lesson in (one, other):
        shutil.copytree(recording, lesson)
    config = config_of(recording, tmp_path / "here/out", first=whole, lessons=(one,), lesson_frames=16, epochs=1)
    train_policy(config)
    config = dataclasses.replace(config, resume=True)
    for lessons in ((other,), (other, one)):
        with pytest.raises(UserError, match=r"out has learnt .*one up to round 1: give --lessons that begin so, or"):
            train_policy(dataclasses.replace(config, lessons=lessons))
    release_folders()
    # Moved as a whole, it learns one more.
    moved = (tmp_path / "here").rename(tmp_path / "there")
    config = dataclasses.replace(config, out=moved / "out", lessons=(moved / "one", other))
    assert load_policy(train_policy(config)).meta["round"] == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"expert": "geometrik"}, "did you mean 'geometric'"),
        ({"expert": "missing/ppo.pt"}, "no expert at"),
        ({"task": "udacity", "expert": "ppo"}, "--expert ppo does not know udacity-track"),
        ({"max_frames": 0}, "--max-frames is 0"),
        ({"seed": -1}, "--seed is -1"),
        ({"seed": 10**23}, "--seed is 1"),
        ({"dagger_episodes": 1001}, "--dagger-episodes is 1001"),
        ({"beta": float("nan")}, "--beta is nan"),
    ],
)
def test_mistakes_about_dagger_are_found_before_the_work(
    recording: Path, tmp_path: Path, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        train_policy(config_of(recording, tmp_path / "run", dagger=1, **options))
    assert not (tmp_path / "run").exists()


def test_in_each_round_of_dagger_the_last_rounds_policy_drives_and_the_expert_half_as_often_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[DaggerRound] = []
    monkeypatch.setattr("nacdrive.rollout.train_policy.collect", lambda dagger, *more, **options: rounds.append(dagger))
    monkeypatch.setattr("nacdrive.rollout.train_policy.learning_task", lambda config: SimpleNamespace(load=list))
    config = TrainConfig(task="carracing", dagger=3, beta=0.8)
    for round_ in (1, 2, 3):
        collect_round(config, tmp_path, round_, TrainCallbacks(), ())
    assert [one.drive.beta for one in rounds] == [0.8, 0.4, 0.2]
    assert [one.drive.model for one in rounds] == [tmp_path / f"policy-round-{k}.pt" for k in range(3)]
    assert [one.round for one in rounds] == [1, 2, 3], "each round drives seeds of its own"


def test_an_expert_of_another_pace_is_found_before_the_work(tmp_path: Path) -> None:
    fine = tmp_path / "fine"
    options = {"expert": "geometric", "episodes": 2, "max_frames": 12, "workers": 1, "every_frame": True}
    record_episodes(RecordConfig(out=fine, **options))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="decides every 4 frames and the policy every 1"):
        train_policy(config_of(fine, tmp_path / "run", dagger=1))
    assert not (tmp_path / "run").exists()


def test_a_training_without_validation_says_so(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config_of(recording, tmp_path / "run", valid_share=0.0, epochs=1))["valid_loss"] is None
    printed = capsys.readouterr()
    assert "inf" not in printed.err and "without validation" in printed.err and "no frames kept aside" in printed.out


@pytest.mark.nightly
def test_train_goes_from_a_log_to_a_policy_that_has_driven(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.zeros((244, 4))
    rows[:, 0] = 0.5 * np.sign(np.sin(np.arange(244) / 20))
    rows[:, 3] = 20
    log = make_log(tmp_path / "log", 244, rows=rows)
    config = TrainConfig(
        task="udacity", model="nac-steady", data=(log,), window=2, epochs=1, valid_share=0.5, dagger=1,
        dagger_episodes=2, max_frames=20, workers=1, out=tmp_path / "run", precision="bfloat16",
    )  # fmt: skip
    assert run(config)["model"] == tmp_path / "run" / "nac_steady.pt"
    policy = load_policy(tmp_path / "run" / "nac_steady.pt", expect_task="udacity")
    assert policy.config.gap_s == pytest.approx(0.07, abs=0.01)
    assert policy.meta["round"] == 1
    assert policy.meta["valid_mae"] < 0.8
    assert [row["round"] for row in numbers(tmp_path / "run")] == [0, 1]
    assert "valid_mae" in numbers(tmp_path / "run")[0]
    assert "validation MAE" in capsys.readouterr().out
    driven = Recording.open(tmp_path / "run" / "dagger-1", source="udacity")
    assert driven.meta["expert"] == "geometric"
    assert len(driven) == 2


@pytest.mark.nightly
def test_a_killed_training_resumes_to_the_same_policy(recording: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    flags = (
        f"train --data {recording} --out {out} --model mha --window 2 --expert geometric --epochs 2 --batch 2 "
        "--chunk 8 --dagger 1 --dagger-episodes 2 --dagger-epochs 1 --max-frames 40 --workers 1 --checkpoint-steps 1"
    )
    command = [sys.executable, "-c", "from nacdrive.cli.main import main; main()", *shlex.split(flags)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 120
    while not list(out.glob("checkpoint-*.pt")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "mha.pt").exists()
    done = subprocess.run([*command, "--resume"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert same_weights(out / "mha.pt", whole)
    assert numbers(out) == numbers(whole.parent)


def test_a_mistyped_model_suggests_the_nearest(recording: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'nac-steady'"):
        train_policy(config_of(recording, tmp_path / "run", model="nac-stedy"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"window": 0}, "--window is 0"),
        ({"epochs": 0}, "--epochs is 0"),
        ({"beta": 1.5}, "--beta"),
        ({"task": "carracng"}, "did you mean"),
        ({"disturbance": CameraNoise(noise=0.1)}, "give --dagger"),
    ],
)
def test_options_out_of_range_are_told(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        TrainConfig(**options)  # type: ignore[arg-type]


def test_a_task_without_an_environment_is_learnt_from_recordings_alone(tmp_path: Path) -> None:
    assert TrainConfig(task="imitation", data=(tmp_path,)).expert is None
    with pytest.raises(UserError, match="no environment is known for the task 'imitation': name one with --env"):
        TrainConfig(task="imitation", data=(tmp_path,), dagger=1)
    with pytest.raises(UserError, match="unknown task 'carracin': did you mean 'carracing'"):
        TrainConfig(task="carracin")
