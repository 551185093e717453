"""The whole training, with real recordings, a real network and real practice; all of it short."""

import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.models import load_policy
from nacdrive.rollout.record import record_episodes
from nacdrive.rollout.record_config import RecordConfig
from nacdrive.rollout.train_config import TrainConfig
from nacdrive.rollout.train_policy import Watcher, teach
from nacdrive.training.fit import fit
from nacdrive.training.log import read_rows


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("teach") / "recording"
    record_episodes(RecordConfig(expert="geometric", episodes=3, max_frames=80, workers=1, out=out))
    return out


def config_of(recording: Path, out: Path, **more: object) -> TrainConfig:
    short = dict(
        data=(recording,), out=out, model="mha", window=2, expert="geometric", epochs=2, batch=2, chunk=8,
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
    return teach(config_of(recording, tmp_path_factory.mktemp("teach") / "whole", dagger=1))


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


def test_a_run_is_not_overwritten_by_accident(recording: Path, whole: Path) -> None:
    config = config_of(recording, whole.parent, dagger=1)
    with pytest.raises(UserError, match="--resume, --overwrite"):
        teach(config)
    with pytest.raises(UserError, match="--window 2 instead of 3"):
        teach(dataclasses.replace(config, window=3, resume=True))


@pytest.mark.parametrize("stop_at", [(0, 3), (1, 1)])
def test_a_resumed_training_gives_the_numbers_of_an_uninterrupted_one(
    recording: Path, whole: Path, tmp_path: Path, stop_at: tuple[int, int]
) -> None:
    def stop(update) -> None:  # type: ignore[no-untyped-def]
        if (update.progress.round, update.progress.total_steps) == stop_at:
            raise KeyboardInterrupt

    config = config_of(recording, tmp_path / "run", dagger=1)
    with pytest.raises(KeyboardInterrupt):
        teach(config, Watcher(on_step=stop))
    path = teach(dataclasses.replace(config, resume=True))
    assert numbers(tmp_path / "run") == numbers(whole.parent)
    assert same_weights(path, whole)


def test_no_episode_is_learnt_from_in_one_round_and_validated_on_in_another(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = []

    def note(network, task, train, valid, *rest, **more):  # type: ignore[no-untyped-def]
        rounds.append(({s.name for s in train}, {s.name for s in valid}))
        return fit(network, task, train, valid, *rest, **more)

    monkeypatch.setattr("nacdrive.rollout.train_policy.fit", note)
    teach(config_of(recording, tmp_path / "run", dagger=2, dagger_episodes=3))
    learnt, kept = (set().union(*sides) for sides in zip(*rounds, strict=True))
    assert len(rounds) == 3
    assert len(learnt) + len(kept) == 9
    assert not learnt & kept


@pytest.mark.slow
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
        teach(config_of(recording, tmp_path / "run", model="nac-stedy"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"window": 0}, "--window is 0"),
        ({"epochs": 0}, "--epochs is 0"),
        ({"beta": 1.5}, "--beta"),
        ({"task": "carracng"}, "did you mean"),
    ],
)
def test_options_out_of_range_are_told(options: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        TrainConfig(**options)  # type: ignore[arg-type]
