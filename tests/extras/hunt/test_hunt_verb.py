"""``nacdrive hunt``: refusals, and one whole search whose commands repeat what it found."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.progress import Progress

from nacdrive.cli.eval import EvalConfig
from nacdrive.cli.help import texts
from nacdrive.cli.main import main, parse
from nacdrive.common.errors import UserError
from nacdrive.common.options import MinutesOption
from nacdrive.common.paths import shipped
from nacdrive.common.result_folder import release_folders, result_folder
from nacdrive.common.runs import check_resumable
from nacdrive.datasets.recording import Recording
from nacdrive.envs.seeds import POLICY_TEST
from nacdrive.extras.hunt import correct, verb
from nacdrive.extras.hunt.config import HuntConfig
from nacdrive.extras.hunt.drives import HuntWorker, Replay, Work, hunt_results
from nacdrive.extras.hunt.search import Case, Search, knobs_of
from nacdrive.extras.hunt.verb import MINUTES, run
from nacdrive.models import load_policy, save_policy
from nacdrive.rollout import train_policy as train
from nacdrive.rollout.drive import Drive
from nacdrive.rollout.evaluate import EvalJob, RolloutWorker
from nacdrive.rollout.results import ResultsFile
from nacdrive.rollout.train_policy import TrainCallbacks
from nacdrive.tasks import load_driving_task
from nacdrive.tasks.udacity import drive_sample
from nacdrive.training.fit import FitUpdate
from nacdrive.training.fit import Progress as FitProgress
from tests.helpers.episodes import begin, make_episode


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"expert": "none"}, r"a reference driver passes, and --expert none is nobody: give --expert ppo or"),
        ({"env": "gym:CarRacing-v3"}, r"none is known for gym:CarRacing-v3: give --expert module:MyExpert"),
        ({"expert": "ppo", "env": "udacity-track"}, "ppo does not know udacity-track"),
        ({"minutes": 0.0}, r"--minutes is 0: give a number above 0"),
        ({"episodes": 0}, "--episodes is 0"),
        ({"areas": ()}, "--areas is empty"),
        ({"areas": ("hills",)}, "--areas is hills: give seeds or roads"),
        ({"least_share": 1.5}, "--least-share is 1.5"),
        ({"track": "lake"}, "--track is for udacity-track"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_refused_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        HuntConfig(**options)


def test_the_help_says_how_long_it_searches_if_nobody_says() -> None:
    assert f"Of a hunt: {MINUTES:g} if neither this nor" in texts(MinutesOption)["minutes"]


def test_a_training_has_a_bar_over_all_its_steps_and_then_over_its_drives(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = Progress(disable=True)
    monkeypatch.setattr(correct, "progress_bar", lambda: bars)
    with correct.show_training(
        HuntConfig(train=True, data=(Path("recordings"),), dagger_episodes=7), "train"
    ) as callbacks:
        assert callbacks.on_step is not None and callbacks.on_episode is not None
        callbacks.on_step(FitUpdate(FitProgress(round=1, epoch=2, step=5), steps=10, epochs=4, train_loss=0.125))
        (bar,) = bars.tasks
        assert (bar.completed, bar.total) == (25, 40) and bar.fields["state"] == "round 1, epoch 3 of 4, loss 0.125"
        callbacks.on_episode(2, make_episode(7, steps=3))
        assert bar.total == 7 and bar.fields["state"].startswith("round 2: seed 7, 3 frames, ")


def test_a_policy_of_another_environment_and_nothing_to_search_are_refused_before_a_folder_is_made(
    model_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(UserError, match=r"udacity/pilotnet|pilotnet"):
        run(HuntConfig(model="udacity/pilotnet", out=out))
    with pytest.raises(UserError, match="nothing of traffic is left to search on carracing"):
        run(HuntConfig(model=str(model_file), areas=("traffic",), out=out))
    assert not out.exists()


SHORT: dict[str, Any] = {"renderer": "fast", "max_frames": 60, "expert": "geometric", "workers": 1}


@pytest.fixture(scope="module")
def hunted(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """What was found of a policy that never learnt anything."""
    out = tmp_path_factory.mktemp("hunt") / "out"
    patch = pytest.MonkeyPatch()
    patch.setattr(verb, "FILMS", 1)
    summary = run(HuntConfig(model=str(model_file), episodes=4, areas=("seeds", "starts"), out=out, **SHORT))
    patch.undo()
    release_folders()
    return summary, out


def test_what_fails_is_listed_filmed_recorded_with_labels_and_repeats(
    hunted: tuple[dict[str, Any], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    summary, out = hunted
    assert summary["episodes"] == 4 and summary["failures"] >= 2
    assert summary["repeated"] == {"driven": summary["failures"], "same": summary["failures"]}
    rows = hunt_results(out / "results.jsonl").rows
    assert set(rows) == set(range(3_400_000, 3_400_004))
    assert len(list(out.glob("worst_1_*.mp4"))) == 1 and not list(out.glob("worst_2_*"))
    recording = Recording.open(out / "before")
    assert len(recording.episodes) == summary["failures"]
    episode = recording.load(0)
    assert (episode.expert_choice >= 0).all() and episode.meta["hunt"]["failed_s"] >= 0
    assert "worst" in summary and summary["worst"][0]["command"] in (out / "report.md").read_text()


def test_the_list_begins_with_the_worst_and_the_terminal_shows_twenty(
    hunted: tuple[dict[str, Any], Path], model_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = next(iter(hunt_results(hunted[1] / "results.jsonl").rows.values()))
    results = hunt_results(tmp_path / "results.jsonl")
    for k in range(24):
        # The last two are unfair: both fail.
        fate = {"failed": k < 22, "fault": "left the road" if k < 22 else None, "unfair": k >= 22, "repeats": k != 3}
        returns = {"episode_return": 100.4 * (k % 11), "reference_return": 900.2, "failed_s": 2.25}
        knobs = {"knobs": {"noise": 0.1, "delay_steps": 2} if k == 11 else {}, "command": f"nacdrive eval {k}"}
        results.add(
            {**one, "number": 23 - k, "seed": 50 + k, "area": "cameras", "near": None, **fate, **returns, **knobs}
        )
    config = HuntConfig(model=str(model_file), out=tmp_path, **SHORT)
    summary = verb.report(config, config.driven(model_file), (), results, tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(
        "fails 22 of 24 episodes that geometric passes; 2 both fail; driven again, 21 of 22 failures are the same to "
        "the decision."
    )
    assert "| cameras | 22 of 24 | 0 of 0 | 2 |" in lines
    assert "Nothing is shown to go with failing: too few episodes, or no one cause." in lines
    shown = [line for line in lines if "left the road" in line]
    assert len(shown) == 20 and "and 2 more" in lines
    assert shown[0] == "| 1 | 50 | left the road | 2.2 s | 0 | 900 | - |"
    assert shown[1].endswith("noise of the camera 0.1, decisions by which all frames are late 2 |")
    assert [row["seed"] for row in summary["worst"]] == [seed for k in range(11) for seed in (50 + k, 61 + k)]
    assert summary["repeated"] == {"driven": 22, "same": 21} and summary["unfair"] == 2
    written = (tmp_path / "report.md").read_text()
    assert written.count("left the road") == 22 and "\n1. `nacdrive eval 0`\n2. `nacdrive eval 11`\n" in written
    assert verb.describe(results.rows[61]) == (
        "seed 61: left the road after 2.2 s, return 0 (reference 900); noise of the camera 0.1, decisions by which all "
        "frames are late 2"
    )


def test_of_twenty_failures_all_are_shown_and_of_none_there_is_no_table(
    hunted: tuple[dict[str, Any], Path], model_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = next(row for row in hunt_results(hunted[1] / "results.jsonl").rows.values() if row["failed"])
    config = HuntConfig(model=str(model_file), out=tmp_path, **SHORT)
    for failed in (True, False):
        results = hunt_results(tmp_path / f"{failed}.jsonl")
        for seed in range(20):
            fate = {"failed": failed, "fault": "x" if failed else None, "unfair": False, "number": seed}
            results.add({name: value for name, value in one.items() if name != "repeats"} | fate | {"seed": seed})
        verb.report(config, config.driven(model_file), (), results, tmp_path)
        printed = capsys.readouterr().out
        assert f"fails {20 * failed} of 20 episodes that geometric passes.\n" in printed
        assert "more\n" not in printed and ("| seed |" in printed) == failed == ("Nothing is shown" in printed)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"minutes": 0.5}, {(0, 0.0): True, (99, 29.9): True, (0, 30.1): False}),
        ({"episodes": 3}, {(2, 0.0): True, (3, 0.0): False, (2, 1e6): True}),
        ({"minutes": 0.5, "episodes": 3}, {(2, 29.9): True, (3, 0.0): False, (2, 30.1): False}),
        ({}, {(999, 60 * MINUTES - 1): True, (0, 60 * MINUTES + 1): False}),
    ],
    ids=str,
)
def test_a_hunt_ends_with_its_minutes_or_its_episodes(
    options: dict[str, Any], wanted: dict[Any, bool], model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(verb.time, "monotonic", lambda: now)
    config = HuntConfig(model=str(model_file), **options)

    class NoWork:
        drive = None

        def do(self, method: str, jobs: Any) -> Any:
            return nullcontext(())

    cases, stopped = verb.search(config, NoWork(), (), ("seeds",), hunt_results(tmp_path / "none.jsonl"))  # type: ignore[arg-type]
    assert not stopped
    for (count, passed_s), more in wanted.items():
        now = 1000.0 + passed_s
        assert cases.more(count) == more, (count, passed_s)


def test_the_printed_command_gives_the_same_return(hunted: tuple[dict[str, Any], Path]) -> None:
    worst = hunted[0]["worst"][0]
    # What other tests trust it trusts, too, which the program takes off before it parses.
    command, *_ = worst["command"].split(" --trust")
    config = parse(EvalConfig, "nacdrive eval", command.split()[2:])
    drive = config.driven(Path(config.model))
    row = RolloutWorker(drive).drive(EvalJob("policy", 0, config.seed, *config.spec.tracks_of(config.track)))
    assert row["episode_return"] == worst["episode_return"] and config.count == 1


def test_a_resumed_hunt_searches_on_and_drives_nothing_twice(
    hunted: tuple[dict[str, Any], Path], model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary, out = hunted
    more: dict[str, Any] = {**SHORT, "areas": ("seeds", "starts"), "out": out, "resume": True}
    monkeypatch.setattr(verb, "FILMS", 1)
    again = run(HuntConfig(model=str(model_file), episodes=4, **more))
    release_folders()
    assert again["worst"] == summary["worst"] and len((out / "results.jsonl").read_text().splitlines()) == 4
    with pytest.raises(UserError, match="was begun with --areas"):
        run(HuntConfig(model=str(model_file), episodes=4, **{**more, "areas": ("seeds",)}))
    weights = model_file.read_bytes()
    try:
        save_policy(load_policy(model_file), model_file, {"round": 7})
        with pytest.raises(UserError, match="holds drives of another model file: give another --out"):
            run(HuntConfig(model=str(model_file), episodes=5, **more))
    finally:
        model_file.write_bytes(weights)


def test_ctrl_c_ends_with_what_there_is(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    add = verb.Search.add

    def stop(self: Any, case: Any, *, failed: bool) -> None:
        add(self, case, failed=failed)
        if case.number == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(verb.Search, "add", stop)
    with pytest.raises(KeyboardInterrupt, match=r"2 episodes are kept in .*--resume goes on"):
        run(HuntConfig(model=str(model_file), episodes=4, areas=("seeds",), out=out, **SHORT))
    assert json.loads((out / "hunt.json").read_text())["episodes"] == 2 and not (out / "before").exists()
    assert "| searched | failed |" in capsys.readouterr().out


@pytest.mark.nightly
def test_a_killed_hunt_keeps_what_it_drove_and_goes_on(model_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = f"hunt {model_file} --out {out} --areas seeds --episodes 6 --renderer fast --max-frames 60 --workers 1"
    code = "from nacdrive.cli.main import main; main()"
    command = [sys.executable, "-c", code, *line.split(), "--expert", "geometric"]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    kept, ends = out / "results.jsonl", time.monotonic() + 120
    while not (kept.exists() and kept.read_text().count("\n") >= 2) and time.monotonic() < ends:
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.01)
    process.kill()
    process.wait()
    before = kept.read_text().splitlines()
    more: dict[str, Any] = {**SHORT, "areas": ("seeds",), "episodes": 6, "out": out, "resume": True}
    summary = run(HuntConfig(model=str(model_file), **more))
    after = hunt_results(kept).rows
    assert len(after) == summary["episodes"] == 6
    whole = [json.loads(row) for row in before if row.endswith("}")]
    assert len(whole) >= 2 and all(after[row["seed"]]["episode_return"] == row["episode_return"] for row in whole)


def test_a_full_disk_ends_a_hunt_in_a_sentence_and_the_same_command_goes_on(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"hunt {model_file} --out {tmp_path / 'out'} --areas seeds --episodes 2 --renderer fast --max-frames 60"
    monkeypatch.setattr(sys, "argv", ["nacdrive", *line.split(), "--workers", "1", "--expert", "geometric"])
    add = ResultsFile.add

    def fill(self: ResultsFile, row: dict[str, Any]) -> None:
        if self.rows:
            raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "out/results.jsonl"))
        add(self, row)

    with monkeypatch.context() as disk, pytest.raises(SystemExit) as end:
        disk.setattr(ResultsFile, "add", fill)
        main()
    err = capsys.readouterr().err
    assert end.value.code == 2 and "no space is left on the disk" in err and "Traceback" not in err
    release_folders()
    summary = run(
        HuntConfig(model=str(model_file), episodes=2, areas=("seeds",), out=tmp_path / "out", resume=True, **SHORT)
    )
    assert summary["episodes"] == 2


def test_a_training_without_its_old_data_or_of_what_cannot_learn_is_refused(model_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give --data its recordings"):
        HuntConfig(train=True)
    with pytest.raises(UserError, match="--train does not teach failures of cameras"):
        HuntConfig(train=True, data=(tmp_path,), areas=("cameras",))
    for alone in ({"data": (tmp_path,)}, {"control": True}):
        with pytest.raises(UserError, match="add --train, or leave it out"):
            HuntConfig(**alone)  # type: ignore[arg-type]
    out, data = tmp_path / "out", (shipped("recordings") / "carracing-sample",)
    with pytest.raises(UserError, match="has continuous actions, and the recordings hold choices"):
        run(HuntConfig(model=str(model_file), train=True, data=data, expert="racing-line", out=out))
    with pytest.raises(UserError, match="constant is none"):
        run(HuntConfig(driver="constant", train=True, data=data, expert="geometric", out=out))
    with pytest.raises(UserError, match=r"there is no folder .*nowhere"):
        run(HuntConfig(model=str(model_file), train=True, data=(tmp_path / "nowhere",), out=out, episodes=1, **SHORT))
    other = tmp_path / "other"
    writer = begin(other)
    for seed in (1, 2):
        steered = {"choice": np.full(6, -1), "expert_choice": np.full(6, -1), "expert_logits": None}
        labels = {"expert_steering": np.zeros(6, np.float32), "expert_pedal": np.zeros(6, np.float32)}
        writer.add(replace(make_episode(seed), **steered, **labels))
    with pytest.raises(UserError, match=r"not what .* has learnt from"):
        run(HuntConfig(model=str(model_file), train=True, data=(other,), out=out, episodes=1, **SHORT))
    assert not out.exists()


def test_the_policy_of_more_rounds_is_driven_itself_and_what_is_judged_stays(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (shipped("recordings") / "carracing-sample",)
    config = HuntConfig(model=str(model_file), train=True, data=data, judged=1, **{**SHORT, "max_frames": 8})
    drive = config.driven(model_file)
    here, search = HuntWorker(drive, config.least_share), Search((), ("seeds",), 0, {}, lambda count: False)
    driven: list[str] = []
    judge = HuntWorker.judge
    monkeypatch.setattr(HuntWorker, "judge", lambda self, case: driven.append(self.drive.name) or judge(self, case))
    # Whose drives are counted, not how it learnt.
    monkeypatch.setattr(correct, "train_policy", lambda training, *_, **__: tmp_path / f"{training.dagger}.pt")
    for rounds in (1, 2, 2):
        (tmp_path / f"{rounds}.pt").write_bytes(model_file.read_bytes())
        work = Work(drive, config.least_share, 0, None)
        more = replace(config, dagger=rounds)
        assert "control" not in correct.correct(
            more, work, correct.training_of(more, here, tmp_path), search, [], tmp_path
        )
    assert driven == [name for name in (model_file.name, "1.pt", "2.pt") for _ in range(2)]
    with pytest.raises(UserError, match="was begun with --judged 1 instead of 2: resume with the same"):
        correct.draw_cases(replace(config, judged=2), search, [], tmp_path / "cases.json")


def test_lessons_of_another_number_are_refused_before_anything_is_written(model_file: Path, tmp_path: Path) -> None:
    data, out = (shipped("recordings") / "carracing-sample",), tmp_path / "out"
    config = HuntConfig(model=str(model_file), train=True, data=data, out=out, dagger_episodes=2, **SHORT)
    here = HuntWorker(config.driven(model_file), config.least_share)
    result_folder(out)
    (out / correct.TRAINED).mkdir()
    check_resumable(out / correct.TRAINED, correct.training_of(config, here, out), correct.FREE_TO_CHANGE)
    release_folders()
    there = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="was begun with --dagger-episodes 2 instead of 3: resume with the same"):
        run(replace(config, dagger_episodes=3, dagger=4, resume=True))
    assert there == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    # As many, and more rounds of them, may be learnt.
    assert correct.training_of(replace(config, dagger=4, resume=True), here, out).dagger == 4


def test_the_control_learns_from_the_same_tracks_with_nothing_turned(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = (shipped("recordings") / "carracing-sample",)
    options: dict[str, Any] = {**SHORT, "max_frames": 8}
    config = HuntConfig(model=str(model_file), train=True, control=True, data=data, judged=2, **options)
    drive = config.driven(model_file)
    search = Search(knobs_of(config.spec, drive, ("starts",)), ("starts",), 0, {}, lambda count: False)
    search.failures = [Case(3, "starts", 3100003, {"start_speed": 40.0})]
    taught: dict[str, Any] = {}

    def train(training: Any, callbacks: Any, cases: Any, load: Any) -> Path:
        taught[training.out.name] = cases
        return Path(shutil.copy(model_file, tmp_path / f"{training.out.name}.pt"))

    monkeypatch.setattr(correct, "train_policy", train)
    # Who was taught plainly fails both of that kind, who learnt from the failures one of them.
    failing = {"before": 2, "after train": 1, "after control": 2}
    judged = correct.judge

    def judge(work: Work, cases: Any, path: Path, title: str) -> dict[int, Any]:
        rows = judged(work, cases, path, title)
        return {
            seed: {**row, "failed": k < failing[title], "unfair": False} for k, (seed, row) in enumerate(rows.items())
        }

    monkeypatch.setattr(correct, "judge", judge)
    training = correct.training_of(config, HuntWorker(drive, config.least_share), tmp_path)
    result = correct.correct(config, Work(drive, config.least_share, 0, None), training, search, [], tmp_path)
    assert [seed for seed, _ in taught["control"]] == [seed for seed, _ in taught["train"]]
    assert taught["train"][0][1].options["start_speed"] == 40.0
    assert all("start_speed" not in one.options for _, one in taught["control"])
    control = result["control"]
    assert (result["failed_before"], control["failed_before"], control["failed_after"]) == (2, 2, 1)
    assert control["fewer"]["value"] == result["fewer"]["value"] == 0.5
    printed = capsys.readouterr().out
    assert "2 of 2 failed before, 1 after" in printed and "2 of 2 failed of the control, 1 after" in printed


def test_every_round_drives_other_failures_and_other_tracks(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (shipped("recordings") / "carracing-sample",)
    options: dict[str, Any] = {**SHORT, "max_frames": 8, "data": data, "train": True, "judged": 1}
    config = HuntConfig(model=str(model_file), dagger=3, dagger_episodes=4, epochs=1, **options)
    drive = config.driven(model_file)
    search = Search(knobs_of(config.spec, drive, ("starts",)), ("starts",), 0, {}, lambda count: False)
    search.failures = [Case(k, "starts", 3_100_000 + k, {"start_speed": 10.0 * k}) for k in range(1, 4)]
    failures = search.failures = [*search.failures, Case(9, "cameras", 3_100_009, {"noise": 0.1})]
    begun = correct.draw_cases(replace(config, dagger=2), search, [], tmp_path / "cases.json")["learn"]
    learnt = correct.draw_cases(config, search, [], tmp_path / "cases.json")["learn"]
    assert learnt[:8] == begun and len(begun) == 8, "more rounds are added"
    assert search.failures is failures and {case.area for case in learnt} == {"starts"}, "cameras are not learnt from"
    rounds = [learnt[k : k + 4] for k in (0, 4, 8)]
    assert [[case.number for case in each if case.near is None] for each in rounds] == [[1, 2], [3, 1], [2, 3]]
    assert len({case.seed for each in rounds for case in each if case.near is not None}) == 6
    training = correct.training_of(config, HuntWorker(drive, config.least_share), tmp_path)
    driven: list[list[int]] = []
    monkeypatch.setattr(train, "collect", lambda round_, *_, **__: driven.append(list(round_.tracks)))
    monkeypatch.setattr(train, "learning_task", lambda config: SimpleNamespace(load=lambda folders: []))
    cases = [(case.seed, case.of(drive)) for case in learnt]
    for number in (1, 2, 3, 4):
        train.collect_round(training, tmp_path, number, TrainCallbacks(), cases)
    assert driven == [[case.seed for case in each] for each in (*rounds, rounds[0])]


def test_what_is_not_taught_is_labelled_by_what_it_did_and_learnt_beside_the_old_data(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = (shipped("recordings") / "carracing-sample",)
    config = HuntConfig(model=str(model_file), train=True, data=data, judged=1, **{**SHORT, "max_frames": 40})
    drive = config.driven(model_file)
    search = Search((), ("seeds",), 0, {}, lambda count: False)
    taught: list[Any] = []

    def train(training: Any, *_: Any, load: Any, **__: Any) -> Path:
        taught.append((training.data, [sample.name for sample in load(training.data)]))
        return model_file

    monkeypatch.setattr(correct, "train_policy", train)
    training = correct.training_of(config, HuntWorker(drive, config.least_share), tmp_path)
    others = [Case(k, "cameras", 3_100_000 + k, {"late": 2, "dropped": 0.3}) for k in range(2)]
    for _ in range(2):  # the second time nothing is driven again, and the same is learnt
        correct.correct(config, Work(drive, config.least_share, 0, None), training, search, others, tmp_path)
    kept = Recording.open(tmp_path / "kept")
    names = [sample.name for sample in load_driving_task("carracing").load([*data, tmp_path / "kept"])]
    assert taught == [(data, names)] * 2 and len(names) == len(Recording.open(data[0]).episodes) + 2
    episode = kept.load(0)
    assert [info.seed for info in kept.episodes] == [case.seed for case in others]
    np.testing.assert_array_equal(episode.expert_choice, episode.choice)
    assert episode.expert_logits is not None and (episode.expert_logits.argmax(1) == episode.choice).all()
    assert 2 < len(episode) < 10 and (np.diff(episode.t_s) > 0).all(), "what was held while no frame came is left out"


def test_what_a_drive_among_slow_cars_says_of_itself_is_kept_for_who_learns_from_it() -> None:
    policy = shipped("agents") / "udacity/nac_steady.pt"
    config = HuntConfig(model=str(policy), env="udacity-track")
    drive = config.driven(policy)
    drive = replace(drive, options={**drive.options, "max_seconds": 2.0})
    here = HuntWorker(replace(drive, expert="geometric"), config.least_share)
    case = Case(0, "traffic", 3_400_000, {"slow_cars": 3})
    _, before = here.replay(Replay(case, 1.0))
    for episode in (here.keep(case), before):
        assert episode.meta["slow_cars"] == 3 and episode.meta["hunt"]["area"] == "traffic"
        assert drive_sample(episode, "kept").fields["right_hand"].any(), "it is not mirrored"


def test_a_failure_that_ends_earlier_when_it_is_driven_again_is_another_drive_without_moments_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "FILMS", 0)
    options = {"max_seconds": 0.5}
    drive = Drive("udacity-track", driver="geometric", expert="geometric", options=options, speed_mph=20.0)
    row = {"seed": 3_400_000, "number": 0, "area": "seeds", "knobs": {}, "near": None, "failed": True}
    row |= {"failed_s": 60.0, "episode_return": 9.0, "reference_return": 99.0, "decisions": 600}
    rows: dict[int, Any] = {3_400_000: row}
    results: Any = SimpleNamespace(rows=rows, add=lambda row: rows.update({row["seed"]: row}))
    verb.drive_again(Work(drive, 0.9, 0, None), HuntWorker(drive, 0.9), results, tmp_path)
    assert rows[3_400_000]["repeats"] is False
    assert list((tmp_path / "before").glob("*.parquet")) == []


def test_it_learns_on_as_it_was_taught(tmp_path: Path) -> None:
    data = (shipped("recordings") / "carracing-sample",)
    trainings = []
    for file in (Path("docs/results/carracing_seeds/scores-2.pt"), shipped("agents") / "carracing/nac_steady.pt"):
        config = HuntConfig(model=str(file), train=True, data=data, **{**SHORT, "expert": "predictive"})
        here = HuntWorker(config.driven(file), config.least_share)
        trainings.append(correct.training_of(config, here, tmp_path))
    by_labels, by_rewards = trainings
    assert all((one.soft, one.class_weights) == (1.0, 0.0) for one in trainings)
    assert by_labels.disturbance.blackout == 0.3 and by_labels.disturbance.rate == (5.0, 20.0) and by_labels.vary_camera
    assert not (by_rewards.disturbance.active or by_rewards.vary_camera), "an expert who sees well unteaches it"


def test_of_no_failures_it_says_that_nothing_was_learnt(
    model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = HuntWorker.judge
    monkeypatch.setattr(HuntWorker, "judge", lambda self, case: {**judge(self, case), "failed": False})
    data = (shipped("recordings") / "carracing-sample",)
    how: dict[str, Any] = {**SHORT, "max_frames": 8, "areas": ("seeds",), "episodes": 1, "out": tmp_path / "out"}
    summary = run(HuntConfig(model=str(model_file), train=True, data=data, **how))
    assert "train" not in summary and "nothing failed, so nothing was learnt" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("gain", "fewer", "advice"),
    [
        ([-19.0, -1.2], [0.1, 0.3], "undisturbed it is shown to be worse: keep the policy of before"),
        ([-19.0, 1.2], [0.1, 0.3], "shown to fail less often, and not shown to be worse undisturbed: keep this one"),
        ([1.0, 2.0], [-0.1, 0.3], "that it fails less often is not shown: keep the policy of before"),
        (None, None, "that it fails less often is not shown"),
    ],
)
def test_it_says_which_policy_to_keep(gain: list[float] | None, fewer: list[float] | None, advice: str) -> None:
    result = {"undisturbed_gain": {"interval95": gain}, "fewer": None if fewer is None else {"interval95": fewer}}
    assert advice in correct.verdict(result)


@pytest.mark.nightly
def test_it_learns_from_what_failed_and_is_judged_on_tracks_that_it_never_saw(
    hunted: tuple[dict[str, Any], Path], model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = hunted[1]
    monkeypatch.setattr(verb, "FILMS", 1)
    how: dict[str, Any] = {**SHORT, "areas": ("seeds", "starts"), "episodes": 4, "out": out, "resume": True}
    data = (shipped("recordings") / "carracing-sample",)
    config = HuntConfig(
        model=str(model_file), train=True, data=data, dagger=1, dagger_episodes=2, epochs=1, judged=1, **how
    )
    trained = run(config)["train"]
    release_folders()
    policy = load_policy(trained["model"])
    assert policy.meta["round"] == 1 and policy.config == load_policy(model_file).config
    driven = Recording.open(out / "train/dagger-1")
    worst = [row["seed"] for row in hunted[0]["worst"]]
    assert {info.seed for info in driven.episodes} >= {worst[0]}
    assert (driven.load(0).expert_choice >= 0).all()
    before, after = (hunt_results(out / f"{name}.jsonl").rows for name in ("before", "after-1"))
    assert set(before) == set(after) and len(before) == 2 and all(seed in POLICY_TEST for seed in before)
    assert trained["failed_before"] <= trained["episodes"] <= 1 and trained["undisturbed_gain"]["value"] is not None
    # All that is done is only read.
    weights = trained["model"].read_bytes()
    assert run(config)["train"]["undisturbed_gain"] == trained["undisturbed_gain"]
    release_folders()
    assert load_policy(trained["model"]).meta["round"] == 1 and len(weights) == trained["model"].stat().st_size


def test_a_longer_search_names_no_film_that_it_has_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "FILMS", 1)
    films = {3_400_000: "worst_1_3400000.mp4", 3_400_001: "worst_2_3400001.mp4"}
    (tmp_path / films[3_400_000]).touch()
    worst = {"failed": True, "reference_return": 900.0, "repeats": True, "failed_s": 1.0, "knobs": {}, "near": False}
    rows = {
        seed: {**worst, "seed": seed, "number": k, "area": "seeds", "episode_return": 10.0 * k, "film": film}
        for k, (seed, film) in enumerate(films.items())
    }
    results: Any = SimpleNamespace(rows=rows, add=lambda row: rows.update({row["seed"]: row}))
    here: Any = SimpleNamespace(labels=False, loaded=SimpleNamespace(spec=SimpleNamespace(source="carracing")))
    nobody: Any = None
    verb.drive_again(nobody, here, results, tmp_path)
    assert [row["film"] for row in rows.values()] == [films[3_400_000], None]


def test_of_too_few_episodes_there_is_no_interval() -> None:
    counts = {"episodes": 1, "failed_before": 1, "failed_after": 1}
    result = {"areas": {}, **counts, "fewer": {"value": 0.0, "interval95": None}, "undisturbed_gain": None}
    assert correct.in_words(result, "before", 2).splitlines() == [
        "fresh episodes of that kind: 1 of 1 failed before, 1 after (too few to say)",
        "undisturbed, 2 other tracks: return too few to say",
    ]
    result |= {"fewer": {"value": 0.43, "interval95": [0.27, 0.59]}}
    assert "1 after (+43% fewer, 95 %: +27% to +59%)" in correct.in_words(result, "before", 2)
