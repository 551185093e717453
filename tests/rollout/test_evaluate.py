"""Evaluations of real policies in real simulators; drives are cut short to be quick."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nacdrive.cli.eval import on_tracks, write_laps
from nacdrive.cli.eval import run as evaluate_verb
from nacdrive.cli.replay import ReplayConfig, open_run
from nacdrive.common.errors import UserError
from nacdrive.common.files import result_folder
from nacdrive.common.paths import find_model
from nacdrive.common.statistics import proportion
from nacdrive.datasets.recording import Recording, kept_in
from nacdrive.drivers.tick import Tick
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.models import save_policy
from nacdrive.rollout.drive import Drive
from nacdrive.rollout.eval_config import EvalConfig
from nacdrive.rollout.evaluate import EvalJob, RolloutWorker, claim, drive_jobs, evaluate, identify, track_numbers
from nacdrive.rollout.results import (
    MOST_POINTS,
    EpisodeMetrics,
    EpisodeResult,
    ResultsFile,
    Row,
    row_of,
)
from nacdrive.viz.report import page, write_report
from tests.helpers.ticks import make_tick
from tests.helpers.udacity_logs import make_log
from tests.helpers.udacity_policy import udacity_policy

FIRST = 4_000_000
FAST = {"renderer": "fast"}
SHORT = {"laps": 0.01, "repeat": 10}


def seeds(count: int) -> range:
    return range(FIRST, FIRST + count)


def carracing(model: Path, **more: Any) -> Drive:
    return Drive("carracing", model, **{"expert": "geometric", "options": FAST, **more})


@pytest.fixture
def udacity_file(tmp_path: Path) -> Path:
    path = tmp_path / "udacity.pt"
    save_policy(udacity_policy(window=2), path)
    return path


@pytest.fixture(params=["carracing", "udacity-track"])
def spec(request: pytest.FixtureRequest, model_file: Path, udacity_file: Path) -> Drive:
    """A short evaluation in every built-in environment."""
    if request.param == "carracing":
        return carracing(model_file, options={**FAST, "max_frames": 40})
    return Drive("udacity-track", udacity_file, expert="geometric", options=SHORT, speed_mph=20.0)


def without_times(rows: list[Row]) -> list[Row]:
    return [{k: v for k, v in row.items() if not k.startswith(("decision_ms", "late"))} for row in rows]


def test_metrics_report_and_videos(model_file: Path, tmp_path: Path) -> None:
    jobs: list[EvalJob] = []
    ticks: list[Tick] = []
    spec = carracing(model_file, options={**FAST, "max_frames": 88})
    metrics = evaluate(
        spec,
        seeds(3),
        tmp_path,
        workers=0,
        listeners=[ticks.append],
        progress=lambda job, row: jobs.append(job),
    )
    assert metrics == json.loads((tmp_path / "metrics.json").read_text())
    assert [row["seed"] for row in metrics["episodes"]] == [4_000_000, 4_000_001, 4_000_002]
    returns = [row["episode_return"] for row in metrics["episodes"]]
    assert metrics["return"]["mean"] == pytest.approx(sum(returns) / 3)
    assert metrics["expert_return"]["mean"] > metrics["return"]["mean"]
    share = metrics["return"]["mean"] / metrics["expert_return"]["mean"]
    assert metrics["expert_fraction"]["value"] == pytest.approx(share)
    assert 0 <= metrics["expert_agreement"] <= 1
    assert [job.who for job in jobs[:6]] == ["expert", "policy"] * 3, "who watches is told beside what the expert did"
    assert len(jobs) == 9
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
    labels = open_run(tmp_path, ReplayConfig(data=(tmp_path,)))[0].labels
    assert [label.expert_return for label in labels] == [row["episode_return"] for row in metrics["expert_episodes"]]

    html = (tmp_path / "report.html").read_text()
    lead = re.search(
        r'<p class="lead">(.*?)</p><video class="lead" autoplay loop muted playsinline controls src="(.*?)"', html
    )
    assert lead is not None and lead[1].startswith(f"{model_file.name} finishes a lap in 0 of 3 drives, with ")
    assert lead[2] == films["best"]["file"]
    elsewhere = re.findall(r'(?:src|href)="((?:https?:)?//[^"]*)"', html)
    assert all(link.startswith("http://127.0.0.1:8090/") for link in elsewhere) and "<script" not in html
    assert html.count('class="map"') == 3 and html.count("in the <a href") == 6, (
        "each filmed drive and its worst second"
    )
    assert all(film["file"] in html for film in films.values())

    # Beside its film, a page to send, and the report leads to its worst second there; of what can be one.
    write_laps(model_file, tmp_path, metrics)
    write_report(tmp_path, metrics)
    assert "as a page to send" not in (tmp_path / "report.html").read_text()
    worst = {**metrics, "films": {"worst": films["worst"]}}
    write_laps(find_model("nac_steady.pt", "carracing"), tmp_path, worst)
    write_report(tmp_path, worst)
    (sent,) = re.findall(r'href="([^"]+\.html)#ep=1&amp;t=[\d.]+">as a page', (tmp_path / "report.html").read_text())
    assert sent == films["worst"]["file"].replace(".mp4", ".html") and "</html>" in (tmp_path / sent).read_text()

    # Stopped before the drive beside a film was written, it films that one again.
    jobs.clear()
    kept = kept_in(tmp_path) / films["worst"]["drive"]
    kept.unlink()
    evaluate(spec, seeds(3), tmp_path, workers=0, progress=lambda job, row: jobs.append(job))
    assert kept.is_file() and [job.seed for job in jobs if job.film is not None] == [films["worst"]["seed"]]

    # More tracks: only the new ones are driven, and the videos follow the new ranking.
    again: list[float] = []
    more = evaluate(
        spec,
        seeds(4),
        tmp_path,
        workers=0,
        films=False,
        listeners=[lambda tick: again.append(tick.seed)],
    )
    assert set(again) == {4_000_003}
    assert more["episodes"][:3] == metrics["episodes"]


@pytest.mark.nightly
@pytest.mark.parametrize("spec", ["carracing", "udacity-track"], indirect=True)
def test_every_environment_gets_a_report_videos_and_drives_for_replay(spec: Drive, tmp_path: Path) -> None:
    tracks = spec.env_spec.tracks
    out = tmp_path / "out"
    metrics = evaluate(spec, seeds(1), out, workers=0)
    assert len(metrics["episodes"]) == len(metrics["expert_episodes"]) == len(tracks)
    assert metrics["expert_return"]["mean"] == pytest.approx(
        np.mean([row["episode_return"] for row in metrics["expert_episodes"]])
    )
    assert len(list(out.glob("*.mp4"))) == len(tracks)
    html = (out / "report.html").read_text()
    assert all(film["file"] in html for film in metrics["films"].values())
    drives = Recording.open(kept_in(out), source=spec.env_spec.source)
    assert len(drives) == len(tracks)
    assert [info.steps for info in drives.episodes] == [row["decisions"] for row in metrics["episodes"]]
    if any(tracks):
        assert set(metrics["tracks"]) == set(metrics["expert_tracks"]) == set(tracks)
        assert all(track in html for track in tracks)


@pytest.mark.parametrize("spec", ["carracing", pytest.param("udacity-track", marks=pytest.mark.nightly)], indirect=True)
def test_processes_give_the_rows_of_one_process(spec: Drive, tmp_path: Path) -> None:
    alone = evaluate(spec, seeds(2), tmp_path / "alone", workers=0, films=False)
    both = evaluate(spec, seeds(2), tmp_path / "both", workers=2, films=False)
    assert without_times(alone["episodes"]) == without_times(both["episodes"])
    assert without_times(alone["expert_episodes"]) == without_times(both["expert_episodes"])


def test_two_evaluations_are_not_mixed(model_file: Path, tmp_path: Path) -> None:
    spec = carracing(model_file, options={**FAST, "max_frames": 20})
    evaluate(spec, seeds(1), tmp_path, workers=0, films=False)
    for other, what in (
        (dataclasses.replace(spec, camera=CameraNoise(noise=0.1)), "another disturbance"),
        (dataclasses.replace(spec, options={"renderer": "official", "max_frames": 20}), "another renderer"),
        # Agreement is with who rode along.
        (dataclasses.replace(spec, expert="racing-line"), "another expert"),
    ):
        with pytest.raises(UserError, match=f"drives of {what}"):
            evaluate(other, seeds(1), tmp_path, workers=0, films=False)
    changed = tmp_path / "other.pt"
    changed.write_bytes(model_file.read_bytes() + b"x")
    with pytest.raises(UserError, match="another model file"):
        evaluate(dataclasses.replace(spec, model=changed), seeds(1), tmp_path, workers=0, films=False)


def test_an_evaluation_on_tracks_is_resumed_and_does_not_mix_with_another(udacity_file: Path, tmp_path: Path) -> None:
    spec = Drive("udacity-track", udacity_file, options=SHORT, speed_mph=20.0)
    driven: list[tuple[str, int]] = []
    options: dict[str, Any] = {"workers": 0, "films": False}
    options["progress"] = lambda job, row: driven.append((job.track, job.seed))
    out = tmp_path / "out"
    evaluate(spec, range(2), out, tracks=["lake"], **options)
    metrics = evaluate(spec, range(2), out, **options)
    lake, mountain = [("lake", 0), ("lake", 1)], [("mountain", 0), ("mountain", 1)]
    assert driven == [*lake, lake[0], lake[1], *mountain], "what is there already is told first"
    assert len((out / "lake.jsonl").read_text().splitlines()) == 2
    assert metrics["tracks"]["lake"]["drives"] == 2
    assert len(metrics["drives"]) == len(metrics["episodes"]) == 4
    assert json.loads((out / "metrics.json").read_text())["tracks"] == metrics["tracks"]
    with pytest.raises(UserError, match="another speed_mph"):
        evaluate(dataclasses.replace(spec, speed_mph=9.0), range(1), out, **options)


def test_the_experts_drives_can_be_shared_among_evaluations(model_file: Path, tmp_path: Path) -> None:
    spec = carracing(model_file, options={**FAST, "max_frames": 20})
    driven: list[str] = []
    for name in ("one", "two"):
        options: dict[str, Any] = {"workers": 0, "films": False, "expert_folder": tmp_path / "experts"}
        evaluate(spec, seeds(1), tmp_path / name, progress=lambda job, row: driven.append(job.who), **options)
    rows = list((tmp_path / "experts").glob("expert_*.jsonl"))
    assert len(rows) == 1 and len(rows[0].read_text().splitlines()) == 1


def test_without_an_expert(model_file: Path, tmp_path: Path) -> None:
    spec = carracing(model_file, expert=None, options={**FAST, "max_frames": 60})
    metrics = evaluate(spec, seeds(1), tmp_path, workers=0, films=False)
    assert metrics["expert_return"] is None and metrics["expert_agreement"] is None
    assert "expert" not in metrics["episodes"][0]["ending"] and (tmp_path / "report.html").exists()


def test_an_expert_or_a_driver_of_ones_own_is_evaluated_like_a_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_driver.py").write_text(
        "from nacdrive.envs.carracing.env import to_action\n"
        "class Straight:\n"
        "    name = 'straight'\n"
        "    def reset(self, env): pass\n"
        "    def act(self, frame, info): return to_action(3)\n"
    )
    monkeypatch.chdir(tmp_path)
    options = {**FAST, "max_frames": 60}
    jobs = [EvalJob("policy", 0, FIRST)]
    ((_, expert),) = drive_jobs(Drive("carracing", driver="geometric", options=options), jobs, workers=0)
    own = Drive("carracing", driver="my_driver:Straight", options=options)
    metrics = evaluate(own, seeds(1), tmp_path / "out", workers=1, films=False)
    assert expert["decisions"] == metrics["episodes"][0]["decisions"] == 15
    assert metrics["episodes"][0]["actions"] == [0, 0, 0, 15, 0]
    assert len(metrics["model"]["sha256"]) == 64, "the module's file tells one version of a driver from another"


def test_the_camera_is_disturbed_for_the_policy_alone(model_file: Path) -> None:
    black = CameraNoise(blackout=1.0)
    spec = carracing(model_file, camera=black, options={**FAST, "max_frames": 40})
    ticks: list[Tick] = []
    worker = RolloutWorker(spec, [ticks.append])
    worker.drive(EvalJob("policy", 0, FIRST))
    assert not any(tick.frame.any() for tick in ticks)
    with_noise = worker.drive(EvalJob("expert", 0, FIRST))
    without = RolloutWorker(dataclasses.replace(spec, camera=CameraNoise())).drive(EvalJob("expert", 0, FIRST))
    assert without_times([with_noise]) == without_times([without])


def whole_row(seed: int, episode_return: float = 5.0, **more: Any) -> Row:
    """A row of an episode without a policy's drive behind it."""
    result = EpisodeResult(0, seed, episode_return, 9, 0.7, 0.5, False, 0.25, 3.0, 1.0, 2.0, 0, None, None)
    driven = EpisodeMetrics(2)
    driven.points = [[0.5, 1.5]]
    return row_of(result, driven, more)


def test_a_line_torn_by_a_crash_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = ResultsFile(path)
    rows.add(whole_row(1))
    rows.add(whole_row(2, 6.0))
    path.write_text(path.read_text()[:-9])
    rows = ResultsFile(path)
    assert list(rows.rows) == [1]
    rows.add(whole_row(2, 7.0))
    assert ResultsFile(path).rows == {1: whole_row(1), 2: whole_row(2, 7.0)}


@pytest.mark.parametrize("text", ["[1]", "null", '{"rule": 1e999}', "[" * 100_000])
def test_a_damaged_description_of_an_evaluation_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text(text)
    with pytest.raises(UserError, match="is damaged or another kind of file"):
        claim(tmp_path / "evaluation.json", {})
    (tmp_path / "evaluation.json").write_text('{"disturbance": 3}')
    claim(tmp_path / "evaluation.json", {"env": "carracing", "disturbance": 3})


@pytest.mark.parametrize(
    ("before", "now"), [({}, {"max_frames": 40}), ({"max_frames": 40}, {}), ({"env": "udacity-track"}, {})]
)
def test_what_only_one_of_two_evaluations_was_asked_for_is_not_mixed(
    before: dict[str, Any], now: dict[str, Any], tmp_path: Path
) -> None:
    same = {"env": "carracing", "file": "a.pt", "sha256": "b"}
    claim(tmp_path / "evaluation.json", same | before)
    claim(tmp_path / "evaluation.json", same | before | {"file": "moved.pt"})
    with pytest.raises(UserError, match=f"another {next(iter(before | now))}: give another --out"):
        claim(tmp_path / "evaluation.json", same | now)


def test_drivers_without_a_file_are_told_apart_by_their_names(tmp_path: Path) -> None:
    claim(tmp_path / "evaluation.json", identify(Drive(driver="constant")))
    with pytest.raises(UserError, match="holds drives of another driver"):
        claim(tmp_path / "evaluation.json", identify(Drive(driver="predictive")))


@pytest.mark.parametrize(
    ("sound", "damage"),
    [
        ('"decisions": 9', '"decisions": "x"'), ('"decisions": 9', '"decisions": []'), ('"decisions"', '"decksions"'),
        ('"episode_return": 5.0', '"episode_return": {}'), ('"decisions": 9', '"decisions": 1e999'),
        ('"curve"', '"burve"'), ("[[0.5, 1.5]]", "[[0.5]]"), ("[[0.5, 1.5]]", '[[0.5, "x"]]'), ('"ending"', '"enting"'),
        ('"laps": 1.0', '"laps": "x"'), ('"failure": null', '"failure": 3'), ("{", "[" * 100_000),
    ],
)  # fmt: skip
def test_a_line_that_is_damaged_is_dropped(sound: str, damage: str, tmp_path: Path) -> None:
    path = tmp_path / "carracing.jsonl"
    first, second = (json.dumps(whole_row(seed, laps=1.0)) for seed in (1, 2))
    assert sound in second
    path.write_text(f'{first}\n{second.replace(sound, damage)}\n[1]\n3\n"x"\n')
    assert [*ResultsFile(path).rows] == [1]


def test_rows_of_any_track_are_among_the_files_that_overwrite_may_replace(tmp_path: Path) -> None:
    out = result_folder(tmp_path / "out")
    ResultsFile(out / "my_own_track.jsonl").add({"seed": 1, "episode_return": 5})
    (out / "metrics.json").write_text("{}")
    with pytest.raises(UserError, match="was not made by nacdrive"):
        result_folder(out, overwrite=True)
    (out / "metrics.json").unlink()
    result_folder(out, overwrite=True)


def test_rows_of_a_version_without_returns_are_driven_again(tmp_path: Path) -> None:
    (tmp_path / "lake.jsonl").write_text('{"seed": 1, "track": "lake", "autonomy": 100.0}\n')
    assert not ResultsFile(tmp_path / "lake.jsonl").rows


def test_an_episode_counts_from_its_last_start_and_a_long_curve_is_thinned() -> None:
    metrics = EpisodeMetrics(5)
    with pytest.raises(ValueError, match="without a decision"):
        metrics.result()
    steps = 5 * (MOST_POINTS + 1)
    tick = make_tick(0, circuit=False, saliency=False, events=("time is up",))
    for step in [0, 1, 2, *range(steps)]:
        info = {"t_s": 0.05 * (step + 1), "progress": step / steps, "wheels_off": 0.25, "laps": 0}
        end = {"done": True, "budget_ms": None} if step == steps - 1 else {}
        metrics.add(
            dataclasses.replace(tick, step=step, t_s=0.05 * step, episode_return=step + 1.0, next_info=info, **end)
        )
    result = metrics.result()
    assert result.late_decisions == 0, "no time passes after the last one"
    assert (result.decisions, sum(metrics.actions)) == (steps, steps)
    assert result.wheels_off == 0.25 and not result.finished_lap
    assert MOST_POINTS / 2 < len(metrics.points) <= MOST_POINTS
    assert metrics.points[0] == [0.0, 1.0] and metrics.ending == "time is up"


def test_names_in_a_report_are_escaped(model_file: Path, tmp_path: Path) -> None:
    spec = carracing(model_file, expert=None, options={**FAST, "max_frames": 20})
    metrics = evaluate(spec, seeds(1), tmp_path, workers=0, films=False)
    metrics["model"]["file"] = "<script>alert(1)</script>.pt"
    metrics["run"]["command"] = "nacdrive eval --model '<b>' & co"
    metrics["episodes"][0] |= {"failure": "<img src=x>", "ending": "<i>"}
    html = page(metrics)
    assert not re.search("<script|<b>'|<img|<i>", html) and "&lt;script&gt;" in html


def test_a_flawless_drive_has_all_its_laps_and_no_wheel_off_the_road() -> None:
    row = {
        "failure": None, "track": "lake", "laps": 3.0, "off_road_events": 0, "interventions": 0, "clean_laps": 3,
        "autonomy": 100.0, "offset_mean_m": 0.1,
    }  # fmt: skip
    rows = [row, {**row, "off_road_events": 1}, {**row, "laps": 2.5}, {**row, "interventions": 1}]
    numbers = track_numbers(rows, 3, {"laps", "interventions"})
    assert numbers["flawless"]["count"] == 1
    assert (numbers["laps"], numbers["interventions"], numbers["autonomy"]["mean"]) == (11.5, 1, 100.0)
    # What is not known of a drive is left out of its row.
    lap_s = track_numbers([row, {**row, "lap_s": 40.0}, {**row, "lap_s": 50.0}], 3, ())["lap_s"]
    assert (lap_s["mean"], lap_s["min"]) == (45.0, 40.0)
    # An environment of one's own counts no wheels beside the road, and nobody says that there were none.
    own = [
        {"failure": failure, "track": "a", "progress": 0.1, "comfort": 1.0} for failure in (None, "stopped", "stopped")
    ]
    printed = on_tracks({"tracks": {"a": track_numbers(own, 0, ())}}, math.nan)
    assert printed[0].startswith("a: 1 of 3 drives needed no safety stop (95 %")
    low, high = proportion(10, 10)
    assert (low, high) == (pytest.approx(0.722, abs=1e-3), pytest.approx(1.0))
    assert proportion(0, 10)[0] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.nightly
def test_the_verb_drives_films_and_compares_with_a_log(
    udacity_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = make_log(tmp_path / "log", 6)
    config = EvalConfig(
        env="udacity", model=str(udacity_file), episodes=1, out=tmp_path / "out", workers=1, laps=0.01, repeat=10,
        track="lake", data=(log,),
    )  # fmt: skip
    metrics = evaluate_verb(config)
    assert (tmp_path / "out" / "lake_worst_4000000.mp4").stat().st_size > 1000
    assert metrics["offline"]["frames"] == 6
    printed = capsys.readouterr().out
    assert "never left the road" in printed and "the expert: autonomy" in printed
    assert "on 6 recorded frames" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env": "udacity", "laps": 0}, "--laps is 0"),
        ({"env": "udacity", "laps": float("nan")}, "--laps is nan"),
        ({"env": "udacity", "laps": float("inf")}, "--laps is inf"),
        ({"env": "udacity", "speed": 70.0}, "--speed is 70"),
        ({"env": "udacity", "speed": float("nan")}, "--speed is nan"),
        ({"env": "udacity", "repeat": 0}, "--repeat is 0"),
        ({"env": "udacityy"}, "did you mean 'udacity'"),
        ({"env": "udacity", "renderer": "fast"}, "--renderer is for carracing"),
        ({"env": "udacity", "expert": "ppo"}, "--expert ppo does not know udacity-track"),
        ({"env": "udacity", "track": "laek"}, "did you mean 'lake'"),
        ({"laps": 1.0}, "--laps is for udacity-track"),
        ({"env": "udacity", "driver": "constant", "speed": 10.0}, "--speed is not for --driver constant"),
        ({"data": (Path("x"),)}, "--data is for udacity-track"),
        ({"expert": "geometrik"}, "did you mean 'geometric'"),
        ({"seed": 10**23}, "--seed is 1"),
        ({"workers": -1}, "--workers is -1"),
        ({"watch": True, "ray": "local"}, "leave --ray out"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        EvalConfig(**options)


@pytest.mark.parametrize(
    ("number", "env"),
    [
        pytest.param(signal.SIGINT, "carracing", marks=pytest.mark.nightly),
        pytest.param(signal.SIGKILL, "carracing", marks=pytest.mark.nightly),
        pytest.param(signal.SIGINT, "udacity-track", marks=pytest.mark.nightly),
    ],
)
def test_an_interrupted_evaluation_goes_on(
    number: signal.Signals, env: str, model_file: Path, udacity_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    common = f"--env {env} --out {out} --expert none --episodes 8 --workers 2 --no-videos"
    own = {
        "carracing": f"--model {model_file} --renderer fast",
        "udacity-track": f"--model {udacity_file} --track lake --laps 0.03 --repeat 10",
    }
    command = [sys.executable, "-c", "from nacdrive.cli.main import main; main()", "eval"]
    command += [*common.split(), *own[env].split()]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    rows = out / ("episodes.jsonl" if env == "carracing" else "lake.jsonl")
    deadline = time.monotonic() + 300
    while not (rows.exists() and rows.read_text().count("\n") >= 2) and time.monotonic() < deadline:
        time.sleep(0.05)
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    process.send_signal(number)
    _, printed = process.communicate(timeout=120)
    if number == signal.SIGINT:
        assert process.returncode == 130 and "Traceback" not in printed and "stopped" in printed
    done = rows.read_text().count("\n")
    assert 2 <= done < 8
    deadline = time.monotonic() + 120
    while left := [child for child in children if alive(int(child))]:
        assert time.monotonic() < deadline, f"processes {left} are left behind"
        time.sleep(0.1)
    assert subprocess.run([*command, "--resume"], capture_output=True).returncode == 0
    driven = [json.loads(line)["seed"] for line in rows.read_text().splitlines()]
    assert sorted(driven) == list(range(FIRST, FIRST + 8))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # A zombie is dead; only nobody has asked yet.
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
