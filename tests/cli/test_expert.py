from __future__ import annotations

import json
from pathlib import Path

import pytest

from nacdrive.cli.main import dispatch
from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.common.runs import usable_cores
from nacdrive.rollout.drive import Drive
from nacdrive.rollout.eval_config import EvalConfig

AGENT = shipped("agents") / "carracing/ppo"


@pytest.mark.nightly
def test_eval_prints_versions_interval_and_worst_and_writes_videos(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--expert", "geometric", "--episodes", "2", "--renderer", "fast", "--out", str(tmp_path / "eval")]
    assert dispatch(["expert", "eval", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "CarRacing, gymnasium" in printed and "95 % interval" in printed and "worst: 15000" in printed
    metrics = json.loads((tmp_path / "eval" / "metrics.json").read_text())
    assert len(metrics["episodes"]) == 2 and metrics["return"]["mean"] > 800
    assert metrics["run"]["versions"]["gymnasium"] and (tmp_path / "eval" / "report.html").exists()
    assert all((tmp_path / "eval" / film["file"]).stat().st_size > 10_000 for film in metrics["films"].values())
    with pytest.raises(UserError, match="already holds"):
        dispatch(["expert", "eval", *arguments])


@pytest.mark.parametrize(("asked", "processes"), [("1", 0), ("3", 3), ("0", usable_cores())])
def test_one_worker_is_this_process_and_none_named_is_one_for_each_core(
    asked: str, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, object] = {}

    def stop(*_: object, **options: object) -> None:
        given.update(options)
        raise UserError("far enough")

    monkeypatch.setattr("nacdrive.rollout.evaluate.evaluate", stop)
    with pytest.raises(UserError, match="far enough"):
        dispatch(["expert", "eval", "--expert", "geometric", "--episodes", "2", "--workers", asked])
    assert given["workers"] == processes


@pytest.mark.parametrize("env", ["carracing", "udacity-track"])
def test_an_expert_keeps_the_speed_that_it_keeps_in_eval(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drives: list[Drive] = []

    def stop(drive: Drive, *_: object, **options: object) -> None:
        drives.append(drive)
        raise UserError("far enough")

    monkeypatch.setattr("nacdrive.rollout.evaluate.evaluate", stop)
    with pytest.raises(UserError, match="far enough"):
        dispatch(["expert", "eval", "--env", env, "--expert", "geometric", "--episodes", "1"])
    in_eval = EvalConfig(env=env, driver="geometric", expert="none").driven(None)
    assert drives[0].speed_mph == in_eval.speed_mph == {"carracing": None, "udacity-track": 20.0}[env]


def test_export_does_not_overwrite_by_accident(tmp_path: Path) -> None:
    (tmp_path / "p.pt").write_text("mine")
    with pytest.raises(UserError, match="--overwrite"):
        dispatch(["expert", "export", "--source", "a.zip", "--out", str(tmp_path / "p.pt")])
    assert (tmp_path / "p.pt").read_text() == "mine"


@pytest.mark.skipif(not (AGENT / "ppo.zip").exists(), reason="the SB3 model is not shipped in a wheel")
def test_an_agent_of_ours_sees_grey_without_being_told_to(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="whose agents all see grey: leave out --grey"):
        dispatch(["expert", "export", str(AGENT / "ppo.zip"), "--grey", "--out", str(tmp_path / "p.pt")])


def test_export_of_a_missing_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        dispatch(["expert", "export", "--source", str(tmp_path / "a.zip"), "--out", str(tmp_path / "p.pt")])


def test_train_refuses_an_unknown_environment_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'carracing'"):
        dispatch(["expert", "train", "--env", "CarRacing-v3", "--out", str(tmp_path / "run")])


def test_eval_asks_who_drives_where_nobody_is_named() -> None:
    with pytest.raises(UserError, match="nobody is named who drives: give --expert"):
        dispatch(["expert", "eval", "None"])


def test_unknown_device_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no device 'gpuu'"):
        dispatch(["expert", "train", "--device", "gpuu", "--out", str(tmp_path / "run")])


@pytest.mark.nightly
def test_train_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    few = ["--timesteps", "512", "--n-envs", "2", "--eval-episodes", "1"]
    assert dispatch(["expert", "train", *few, "--out", str(out)]) == 0
    assert (out / "best.pt").exists() and "best policy" in capsys.readouterr().out
