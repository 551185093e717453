from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nacdrive.cli.replay import kept_in
from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.tick import Tick
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.rollout.evaluate import Evaluation, evaluate
from nacdrive.rollout.results import ResultsFile, Row
from nacdrive.rollout.workers import Course, Job
from nacdrive.viz.report import page


def evaluation(model: Path, episodes: int = 3, films: bool = False, **more: Any) -> Evaluation:
    return Evaluation(Course(model, "geometric", renderer="fast", **more), 4_000_000, episodes, films)


def without_times(rows: list[Row]) -> list[Row]:
    return [{k: v for k, v in row.items() if not k.startswith(("decision_ms", "late"))} for row in rows]


def test_metrics_report_and_videos(model_file: Path, tmp_path: Path) -> None:
    heard: list[Job] = []
    ticks: list[Tick] = []
    metrics = evaluate(
        evaluation(model_file, films=True),
        tmp_path,
        workers=0,
        listeners=[ticks.append],
        progress=lambda job, row: heard.append(job),
    )
    assert metrics == json.loads((tmp_path / "metrics.json").read_text())
    assert [row["seed"] for row in metrics["episodes"]] == [4_000_000, 4_000_001, 4_000_002]
    returns = [row["episode_return"] for row in metrics["episodes"]]
    assert metrics["return"]["mean"] == pytest.approx(sum(returns) / 3)
    assert metrics["expert_return"]["mean"] > 800
    share = metrics["return"]["mean"] / metrics["expert_return"]["mean"]
    assert metrics["expert_fraction"]["value"] == pytest.approx(share)
    assert 0 <= metrics["expert_agreement"] <= 1
    assert {job.who for job in heard[:6]} == {"policy", "expert"} and len(heard) == 9
    assert sum(tick.done for tick in ticks) == 3, "who watches sees the policy, not the expert that it is compared with"

    films = metrics["films"]
    ranked = sorted(metrics["episodes"], key=lambda row: row["episode_return"])
    assert [films[name]["seed"] for name in ("worst", "median", "best")] == [row["seed"] for row in ranked]
    assert all((tmp_path / film["file"]).stat().st_size > 10_000 for film in films.values())
    assert not any("filmed_return" in film for film in films.values()), "a drive for a video is the same drive"

    # The filmed drives are kept, and replay opens the folder of the evaluation.
    drives = Recording.open(kept_in(tmp_path))
    assert [info.seed for info in drives.episodes] == [4_000_000, 4_000_001, 4_000_002]
    for info, row in zip(drives.episodes, metrics["episodes"], strict=True):
        assert info.episode_return == pytest.approx(row["episode_return"]) and info.steps == row["decisions"]
    assert (drives.load(0).expert_choice >= 0).all() and drives.meta["fps"] == 12.5

    html = (tmp_path / "report.html").read_text()
    assert not re.search(r'(src|href)="(https?:)?//', html) and "<script" not in html
    assert all(film["file"] in html for film in films.values())

    # More tracks: only the new ones are driven, and the videos follow the new ranking.
    again: list[float] = []
    more = evaluate(
        evaluation(model_file, episodes=4), tmp_path, workers=0, listeners=[lambda tick: again.append(tick.seed)]
    )
    assert set(again) == {4_000_003}
    assert more["episodes"][:3] == metrics["episodes"]


@pytest.mark.slow
def test_processes_give_the_rows_of_one_process(model_file: Path, tmp_path: Path) -> None:
    alone = evaluate(evaluation(model_file), tmp_path / "alone", workers=0)
    both = evaluate(evaluation(model_file), tmp_path / "both", workers=2)
    assert without_times(alone["episodes"]) == without_times(both["episodes"])
    assert without_times(alone["expert_episodes"]) == without_times(both["expert_episodes"])


def test_two_evaluations_are_not_mixed(model_file: Path, tmp_path: Path) -> None:
    evaluate(evaluation(model_file, episodes=1), tmp_path, workers=0)
    with pytest.raises(UserError, match="another disturbance"):
        evaluate(evaluation(model_file, 1, disturbance=CameraNoise(noise=0.1)), tmp_path, workers=0)
    other = tmp_path / "other.pt"
    other.write_bytes(model_file.read_bytes() + b"x")
    with pytest.raises(UserError, match="another model file"):
        evaluate(evaluation(other, 1), tmp_path, workers=0)


def test_without_an_expert(model_file: Path, tmp_path: Path) -> None:
    course = Course(model_file, None, renderer="fast")
    metrics = evaluate(Evaluation(course, 4_000_000, 1, films=False), tmp_path, workers=0)
    assert metrics["expert_return"] is None and metrics["expert_agreement"] is None
    assert "expert" not in metrics["episodes"][0]["ending"] and (tmp_path / "report.html").exists()


def test_a_line_torn_by_a_crash_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = ResultsFile(path)
    rows.add({"seed": 1, "episode_return": 5})
    rows.add({"seed": 2, "episode_return": 6})
    path.write_text(path.read_text()[:-9])
    rows = ResultsFile(path)
    assert list(rows.rows) == [1]
    rows.add({"seed": 2, "episode_return": 7})
    assert ResultsFile(path).rows == {1: {"seed": 1, "episode_return": 5}, 2: {"seed": 2, "episode_return": 7}}


def test_names_in_a_report_are_escaped(model_file: Path, tmp_path: Path) -> None:
    metrics = evaluate(Evaluation(Course(model_file, None, renderer="fast"), 4_000_000, 1, False), tmp_path, workers=0)
    metrics["model"]["file"] = "<script>alert(1)</script>.pt"
    metrics["run"]["command"] = "nacdrive eval --model '<b>' & co"
    metrics["episodes"][0] |= {"failure": "<img src=x>", "ending": "<i>"}
    html = page(metrics)
    assert not re.search("<script|<b>'|<img|<i>", html) and "&lt;script&gt;" in html


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_evaluation_goes_on(number: signal.Signals, model_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [str(Path(sys.executable).with_name("nacdrive")), "eval", "--model", str(model_file), "--out", str(out)]
    command += ["--expert", "none", "--renderer", "fast", "--episodes", "16", "--workers", "2", "--no-videos"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    rows = out / "episodes.jsonl"
    deadline = time.monotonic() + 300
    while not (rows.exists() and rows.read_text().count("\n") >= 3) and time.monotonic() < deadline:
        time.sleep(0.05)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    process.send_signal(number)
    _, said = process.communicate(timeout=120)
    if number == signal.SIGINT:
        assert process.returncode == 130 and "Traceback" not in said and "stopped" in said
    done = rows.read_text().count("\n")
    assert 3 <= done < 16
    time.sleep(1)
    assert not [child for child in children if alive(int(child))], "no process is left behind"
    assert subprocess.run([*command, "--resume"], capture_output=True).returncode == 0
    seeds = [json.loads(line)["seed"] for line in rows.read_text().splitlines()]
    assert sorted(seeds) == list(range(4_000_000, 4_000_016))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie is dead; only nobody has asked yet.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
