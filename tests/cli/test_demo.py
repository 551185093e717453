from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from nacdrive.cli.demo import DemoConfig, stages
from nacdrive.cli.main import dispatch
from nacdrive.common.errors import UserError
from nacdrive.common.files import result_folder, write_json
from nacdrive.common.runs import RUN, run_record


@pytest.mark.nightly
def test_demo_does_the_whole_job_and_keeps_finished_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--episodes", "2", "--epochs", "1", "--dagger", "1", "--dagger-episodes", "1", "--expert", "geometric"]
    line = ["demo", *small, "--fast", "--port", "0"]
    assert dispatch(line) == 0
    printed = capsys.readouterr().out
    assert re.search(r"watch at http://127\.0\.0\.1:\d+", printed)
    assert re.search(r"nac-steady: return -?\d+\.\d on track 4000000; the expert on the same track: 9\d\d\.\d", printed)
    film = Path(re.findall(r"video: +(\S+)", printed)[-1])
    model = Path(re.findall(r"policy: +(\S+)", printed)[-1])
    assert film.stat().st_size > 10_000 and model.is_file()

    made = {path: path.stat().st_mtime_ns for path in Path("runs/demo").rglob("*.parquet")}
    rounds = {path: path.stat().st_mtime_ns for path in Path("runs/demo").rglob("policy-round-*.pt")}
    assert len(made) == 3 and len(rounds) == 2
    line = ["demo", *small, "--fast"]
    assert dispatch([*line, "--headless"]) == 0
    assert all(path.stat().st_mtime_ns == at for path, at in {**made, **rounds}.items()), "nothing was done again"
    assert "watch at" not in capsys.readouterr().out
    # What has learnt from two laps is no demo of three, and stays as it is.
    with pytest.raises(UserError, match="learnt from 2 laps, and --episodes is 3: give another --out, or --overwrite"):
        dispatch([*line, "--headless", "--episodes", "3"])
    with pytest.raises(UserError, match="--epochs 1 instead of 5"):
        dispatch([*line, "--headless", "--epochs", "5"])
    assert all(path.stat().st_mtime_ns == at for path, at in {**made, **rounds}.items())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "nac-stedy"], "unknown model 'nac-stedy'"),
        (["--device", "cuda:99x"], "device"),
        (["--epochs", "0"], "--epochs is 0"),
        (["--dagger", "-1"], "--dagger"),
        (["--episodes", "0"], "--episodes is 0"),
        (["--episodes", "1"], "--episodes is 1: give 2 or more"),
        (["--expert", "pppo"], "pppo"),
        (["--expert", "keyboard"], "unknown expert 'keyboard'"),
    ],
)
def test_mistakes_are_found_before_anything_is_made(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=re.escape(said)):
        dispatch(["demo", "--headless", *options])
    assert not list(tmp_path.iterdir())


def test_other_epochs_are_refused_by_the_option_that_the_demo_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, training, _ = stages(DemoConfig(epochs=1))
    write_json(training.folder / RUN, run_record(training))
    with pytest.raises(UserError, match=r"training was begun with --epochs 1 instead of 5: resume with the same"):
        dispatch(["demo", "--headless", "--epochs", "5"])


def test_another_kind_of_result_gets_no_demo_into_it(tmp_path: Path) -> None:
    write_json(result_folder(tmp_path / "eval") / "evaluation.json", {})
    with pytest.raises(UserError, match=r"holds another kind of result \(no recording is in it\)"):
        dispatch(["demo", "--headless", "--out", str(tmp_path / "eval")])
    assert not (tmp_path / "eval/recording").exists()


def test_a_port_in_use_is_found_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UserError, match="is in use"):
        dispatch(["demo", "--port", str(taken.getsockname()[1])])
    assert not list(tmp_path.iterdir())
