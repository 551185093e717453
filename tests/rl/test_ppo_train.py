from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nacdrive.common.errors import UserError
from nacdrive.common.runs import usable_cores
from nacdrive.rl.config import PpoConfig
from nacdrive.rl.train import BEST, CHECKPOINT, CURVE, LOG, SB3, read_checkpoint, train
from tests.helpers.expert_cases import tiny


class StopError(BaseException):
    pass


def stop_at(decisions: int) -> Any:
    def show(progress: Any) -> None:
        if progress.decisions >= decisions:
            raise StopError

    return show


def log_without_clock(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    for line in lines:
        del line["seconds"], line["frames_per_s"]
        line.get("eval", {}).pop("seconds", None)
    return lines


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(tiny(), folder)
    return folder


def test_run_leaves_policy_model_log_and_record(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    assert {BEST, SB3, CURVE, CHECKPOINT, LOG, "last.pt", "run.json", "policies", "tensorboard"} <= names
    lines = log_without_clock(whole)
    assert [line["decisions"] for line in lines] == [128, 256, 384]
    assert "eval" in lines[-1] and lines[-1]["approx_kl"] >= 0
    assert json.loads((whole / "run.json").read_text())["config"]["seed"] == 3


def test_resumed_run_gives_the_same_numbers_as_an_uninterrupted_one(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    config = tiny()
    with pytest.raises(StopError):
        train(config, folder, show=stop_at(256))
    train(config, folder, resume=True)
    ours, theirs = read_checkpoint(folder / CHECKPOINT), read_checkpoint(whole / CHECKPOINT)
    for part in ("policy", "average"):
        assert all(torch.equal(value, theirs[part][name]) for name, value in ours[part].items())
    assert ours["laps"] == theirs["laps"] and torch.equal(ours["torch_rng"], theirs["torch_rng"])
    assert log_without_clock(folder) == log_without_clock(whole)


def test_finished_run_can_be_resumed_and_stays_as_it_is(whole: Path) -> None:
    before = (whole / BEST).read_bytes()
    assert train(tiny(), whole, resume=True) == whole / BEST
    assert (whole / BEST).read_bytes() == before


def test_other_settings_are_refused_on_resume(whole: Path) -> None:
    with pytest.raises(UserError, match=r"--gamma 0\.99 instead of 0\.5"):
        train(tiny(gamma=0.5), whole, resume=True)


def test_folder_in_use_is_refused(whole: Path) -> None:
    with pytest.raises(UserError, match="--resume, --overwrite"):
        train(tiny(), whole)


def test_resume_without_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"checkpoint to resume from.* without --resume"):
        train(tiny(), tmp_path / "new", resume=True)


@pytest.mark.nightly
def test_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, written = Path.write_bytes, []

    def write(self: Path, data: Any) -> int:
        if CHECKPOINT in self.name:
            written.append(self)
            if len(written) == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
        return good(self, data)

    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(UserError, match="no space left"):
        train(tiny(), tmp_path / "run")
    assert read_checkpoint(tmp_path / "run" / CHECKPOINT)["decisions"] == 128
    assert not list((tmp_path / "run").glob("*.partial"))


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 damaged"])
def test_damaged_checkpoint_gives_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CHECKPOINT).write_bytes(content)
    with pytest.raises(UserError, match="checkpoint"):
        read_checkpoint(tmp_path / CHECKPOINT)


def test_other_file_is_no_checkpoint(policy: Path) -> None:
    with pytest.raises(UserError, match="no ppo checkpoint of nacdrive"):
        read_checkpoint(policy)


@pytest.mark.nightly
def test_continuous_actions_train_and_evaluate(tmp_path: Path) -> None:
    best = train(tiny(actions="continuous", timesteps=256), tmp_path / "run")
    from nacdrive.drivers import load_expert

    with pytest.raises(UserError, match="continuous actions"):
        load_expert(best)
    assert load_expert(best, discrete_only=False).needs.continuous


def test_unknown_environment_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'carracing'"):
        PpoConfig(env="car-racing")


@pytest.mark.parametrize("name", ["timesteps", "n_envs"])
def test_numbers_below_one_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=" is 0: give 1 to"):
        PpoConfig(**{name: 0})


def test_no_number_of_workers_is_one_for_each_core() -> None:
    assert PpoConfig(workers=0).processes(1000) == usable_cores()


def test_schedules_are_linear_and_the_late_shaping_begins_where_it_should() -> None:
    config = PpoConfig()
    assert config.lr_at(1.0) == pytest.approx(3e-4) and config.lr_at(0.0) == pytest.approx(6e-6)
    assert config.entropy_at(0.5) == pytest.approx(0.0055)
    assert config.shaping(0.44).speed == 0 and config.shaping(0.45).speed > 0


@pytest.mark.nightly
def test_a_run_stopped_before_its_first_checkpoint_begins_anew_on_resume(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(StopError):
        train(tiny(), folder, show=stop_at(128))
    (folder / CHECKPOINT).unlink(missing_ok=True)
    assert (folder / "run.json").exists()
    with pytest.raises(UserError, match="resume with the same options"):
        train(tiny(gamma=0.5), folder, resume=True)
    train(tiny(), folder, resume=True)
    assert read_checkpoint(folder / CHECKPOINT)["decisions"] == read_checkpoint(whole / CHECKPOINT)["decisions"]


@pytest.mark.nightly
def test_a_line_of_the_log_torn_by_a_crash_is_dropped(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(tiny(timesteps=256), folder)
    with (folder / LOG).open("a") as log:
        log.write('{"seconds": 3.2, "deci')
    train(tiny(timesteps=256), folder, resume=True)
    assert all(json.loads(line)["decisions"] for line in (folder / LOG).read_text().splitlines())


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"seed": 10**23}, {"gamma": float("nan")}, {"clip_range": -1.0},
                                   {"learning_rate": (float("inf"), 0.0)}, {"target_kl": float("nan")}])  # fmt: skip
def test_numbers_that_no_training_can_use_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"--{next(iter(wrong)).replace('_', '-')} is"):
        tiny(**wrong)
