from __future__ import annotations

import re
from pathlib import Path

import pytest

from nacdrive.cli.main import dispatch


@pytest.mark.slow
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
    assert dispatch([*line, "--headless"]) == 0
    assert all(path.stat().st_mtime_ns == at for path, at in {**made, **rounds}.items()), "nothing was done again"
    assert "watch at" not in capsys.readouterr().out
