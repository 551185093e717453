from __future__ import annotations

import re
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nacdrive.cli import main as cli
from nacdrive.cli.drive import DriveConfig, drive
from nacdrive.common.errors import UserError
from nacdrive.envs.carracing.env import BRAKE, STEERING, THROTTLE
from nacdrive.models import Policy, PolicyConfig, load_policy, save_policy
from tests.helpers.nightly import daily

ACTIONS = tuple(zip(STEERING, THROTTLE, BRAKE, strict=True))
HEAVY = {"torch", "gymnasium", "cv2", "matplotlib", "flask", "stable_baselines3", "pyarrow"}


def little(path: Path, task: str = "carracing", width: int = 96) -> Path:
    torch.manual_seed(0)
    config = PolicyConfig(
        task=task, model="mha", actions=ACTIONS, channels=(4, 4, 4), d_model=16, num_heads=4, dense=8, width=width
    )
    save_policy(Policy.new(config, path.stem), path, {})
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in: every verb is to work from any folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, line: str) -> int:
    """Run a command line as the console script does and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["nacdrive", *line.split()])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


def test_help_imports_nothing_heavy() -> None:
    script = "import sys; sys.argv = ['nacdrive', '--help']\nfrom nacdrive.cli.main import main\n"
    script += "try: main()\nexcept SystemExit: print('|'.join(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "nacdrive help VERB" in printed
    assert not HEAVY & set(printed.splitlines()[-1].split("|"))


@pytest.mark.parametrize("verb", daily(["demo", "drive", "eval", "doctor", "record", "train"], ["train"]))
def test_help_of_a_verb_answers_without_torch(verb: str) -> None:
    script = f"import sys; sys.argv = ['nacdrive', '{verb}', '--help']\nfrom nacdrive.cli.main import main\n"
    script += "try: main()\nexcept SystemExit as end: print(end.code, 'torch' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "0 False" and "--" in done.stdout and "Traceback" not in done.stdout


@pytest.mark.parametrize("verb", list(cli.VERBS))
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.dispatch([verb, "--help"])
    assert not left.value.code and verb in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("drvie", "unknown verb 'drvie': did you mean 'drive'?"),
        ("drive --model nowhere/nac.pt", "there is no model file nowhere/nac.pt"),
        ("drive --model nac_stedy", "unknown model for carracing 'nac_stedy'"),
        ("drive --model nowhere.pt", "unknown file or model for carracing 'nowhere.pt'"),
        ("drive --model full", "full is a folder: give the file of a policy in it"),
        (
            "train --lesson-frames 8",
            "--lesson-frames is of the rounds of --lessons: name recordings there, or leave it",
        ),
        ("train --model mine.pt", "--model names a layer: to learn on from mine.pt, give --first mine.pt"),
        ("drive --model foreign.pt", "foreign.pt is no policy of nacdrive"),
        ("drive --model text.pt", "text.pt cannot be read as a model file"),
        ("drive --model truncated.pt", "truncated.pt cannot be read as a model file"),
        ("drive --model old.pt", "old.pt has version 0"),
        ("drive --model other.pt", "other.pt was trained for 'udacity', not for 'carracing'"),
        ("drive --env karracing", "unknown environment 'karracing': did you mean 'carracing'?"),
        ("drive --model good.pt --expert pppo", "unknown expert 'pppo': did you mean 'ppo'?"),
        ("drive --model good.pt --expert text.pt", "text.pt cannot be read as a ppo policy"),
        ("drive --model good.pt --expert none --headless --video a.avi", "videos are written as .mp4"),
        ("drive --model good.pt --expert none --device abacus", "there is no device 'abacus'"),
        ("drive --driver constant --headless --device abacus", "there is no device 'abacus'"),
        ("drive --headless --page-port 8091", "--page-port of the page, which --headless leaves out"),
        ("drive --headless --hold yes", "--hold yes of the page, which --headless leaves out"),
        ("drive --env udacity --hold yes", "--hold is not for udacity, whose page goes when the drive ends"),
        ("drive --model good.pt --episodes 0", "--episodes is 0"),
        ("drive --model good.pt --seed -1", "--seed is -1"),
        ("drive --model good.pt --noise -0.1", "--noise is -0.1: give 0 to"),
        ("eval --model good.pt --blackout 2", "--blackout is 2: give 0 to 1"),
        ("expert eval --expert good.pt --episodes 1", "give another file, or this one as --model of drive or eval."),
        ("sim roads --car-top-speed 40", "--car-top-speed is of drives, and nothing drives on these pictures"),
        ("eval --model text.pt", "text.pt cannot be read as a model file"),
        ("eval --model other.pt", "other.pt was trained for 'udacity'"),
        ("eval --env lunarlander", "unknown environment 'lunarlander'"),
        ("eval --model good.pt --workers -1", "--workers is -1"),
        ("eval --model good.pt --expert none --out full", "full holds a recording, or files that nacdrive"),
        ("eval --model good.pt --expert none --out full --resume --overwrite", "contradict each other"),
        ("eval --model good.pt --expert none --out good.pt", "good.pt is a file"),
        ("data list --folder text.pt", "text.pt is a file: give the folder of the data sets with --folder"),
        ("sim udacity --host no-such-host.invalid --seconds 1", "no machine is known by that name"),
        ("demo --seed 12", "the demo drives a track never learnt on"),
        ("demo --headless --episodes 0 --expert geometric", "--episodes is 0"),
    ],
)
def test_a_mistake_gives_one_sentence_and_exit_2(
    line: str, sentence: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = little(here / "good.pt")
    little(here / "other.pt", task="udacity")
    torch.save({"model": torch.zeros(3)}, here / "foreign.pt")
    content = torch.load(good, weights_only=True)
    torch.save({**content, "version": 0}, here / "old.pt")
    (here / "text.pt").write_text("not a model")
    (here / "truncated.pt").write_bytes(good.read_bytes()[:-2000])
    (here / "full").mkdir()
    (here / "full" / "mine.txt").write_text("kept")

    assert call(monkeypatch, line) == 2
    err = capsys.readouterr().err
    assert err.startswith("nacdrive: ") and err.count("\n") == 1 and "Traceback" not in err
    assert sentence in err and re.search(r"[.?]\n$", err)
    assert (here / "full" / "mine.txt").read_text() == "kept" and good.exists()


@pytest.mark.parametrize("verb", ["drive", "eval --watch"])
def test_port_in_use(
    verb: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    little(here / "good.pt")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert call(monkeypatch, f"{verb} --model good.pt --expert none --port {port}") == 2
    assert f"port {port} is in use" in capsys.readouterr().err
    assert not (here / "runs").exists(), "what is refused leaves nothing behind"


def test_drive_from_any_folder_with_video(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    little(here / "good.pt")
    line = "drive --model good.pt --expert geometric --renderer fast --headless --video out/lap.mp4 --noise 0.05"
    assert call(monkeypatch, f"{line} --max-frames 48") == 0
    printed = capsys.readouterr().out
    assert "track 4000000: return" in printed and "as the expert in" in printed and "video: out/lap.mp4" in printed
    assert (here / "out" / "lap.mp4").stat().st_size > 10_000


def test_drive_serves_its_page_and_ends_by_itself_without_a_person(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    little(here / "good.pt")
    line = "drive --model good.pt --expert none --renderer fast --fast --port 0 --neurons-every 50"
    assert call(monkeypatch, line) == 0
    assert len(re.findall(r"http://127\.0\.0\.1:\d+", capsys.readouterr().out)) == 1


def test_a_policy_that_cannot_see_these_frames_is_stopped_and_said(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    little(here / "wide.pt", width=120)
    assert call(monkeypatch, "drive --model wide.pt --expert none --renderer fast --headless") == 1
    assert "safety stop on track 4000000: wide was trained on frames of" in capsys.readouterr().out
    # Without a safety stop, as in DAgger, it is a sentence of its own.
    with pytest.raises(UserError, match=r"wide was trained on frames of .*: give a policy of this environment"):
        load_policy("wide.pt").step(np.zeros((96, 96, 3), np.uint8), 0.0)


def test_an_exported_policy_is_no_file_to_export_again(here: Path) -> None:
    Path("drives.onnx").write_bytes(b"of another kind")
    with pytest.raises(UserError, match=r"drives\.onnx was exported, to drive alone: give the \.pt or \.safetensors"):
        load_policy("drives.onnx")


def test_an_expert_that_fails_is_said_beside_what_it_scored(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "eval --driver constant --expert tests.helpers.arena_drivers:Steers --episodes 1 --max-frames 40 --no-videos"
    assert call(monkeypatch, f"{line} --workers 1 --renderer fast") == 0
    assert "the expert's safety stops: 1 (" in capsys.readouterr().out


@pytest.mark.parametrize(
    "verb",
    [
        "drive --headless --max-frames 8",
        pytest.param("eval --episodes 1 --max-frames 8 --no-videos --workers 1", marks=pytest.mark.nightly),
    ],
)
def test_a_policy_that_never_saw_the_fast_pictures_is_named(
    verb: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, grey = little(here / "good.pt"), here / "grey.pt"
    save_policy(load_policy(good), grey, {"config": {"renderer": "fast"}})
    line = f"{verb} --expert none --renderer fast"
    with pytest.warns(UserWarning, match="good was not trained on the pictures of --renderer fast"):
        assert call(monkeypatch, f"{line} --model good.pt") == 0
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*--renderer fast")
        assert call(monkeypatch, f"{line} --model grey.pt") == 0
        official = line.replace("fast", "official")
        assert call(monkeypatch, f"{official} --model good.pt --overwrite") == 0


def test_doctor_names_what_is_wrong(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from nacdrive.cli import doctor

    monkeypatch.setattr(doctor, "ROOM_GB", 1e9)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert call(monkeypatch, f"doctor --port {taken.getsockname()[1]} --out {here / 'not' / 'yet'}") == 1
    printed = " ".join(capsys.readouterr().out.split())
    for name in ("Python", "packages", "CarRacing", "ffmpeg", "PPO expert", "live page", "results", "CUDA"):
        assert name in printed
    assert "free some space" in printed and "give another one with --page-port" in printed
    assert re.search("does not work: .*results", printed)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [ImportError, ValueError])
def test_health_survives_a_broken_package(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    from nacdrive.cli import doctor

    def broken(**_: object) -> None:
        raise kind("libsomething.so.1: cannot open shared object file\nmore")

    monkeypatch.setattr("nacdrive.envs.carracing.env.make_carracing", broken)
    checks = {item.name: item for item in doctor.run_checks(Path("."), "127.0.0.1", 0)}
    assert not checks["CarRacing"].works and "libsomething.so.1" in checks["CarRacing"].detail
    assert checks["Python"].works and checks["ffmpeg"].works


def test_mistakes_in_a_config_are_user_errors() -> None:
    from nacdrive.cli.demo import DemoConfig
    from nacdrive.envs.camera_noise import CameraNoise
    from nacdrive.rollout.eval_config import EvalConfig

    with pytest.raises(UserError):
        DemoConfig(seed=1)
    config = EvalConfig(model="a/nac_steady.pt", disturbance=CameraNoise(noise=0.1, brightness=0.5))
    assert config.folder == Path("runs/eval-nac_steady-noise-0.1-brightness-0.5")


def test_drive_takes_the_expert_as_a_driver(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "drive --driver ppo --episodes 1 --max-frames 60 --headless --expert none"
    assert call(monkeypatch, line) == 0 and "track 4000000: return" in capsys.readouterr().out
    assert call(monkeypatch, line + " --env udacity-track") == 2
    assert "--driver ppo does not know udacity-track: give geometric" in capsys.readouterr().err


def test_a_tracks_disturbance_does_not_depend_on_where_the_series_began() -> None:
    how: dict[str, Any] = {"driver": "geometric", "env": "udacity-track", "headless": True, "max_frames": 60}
    first, second = (
        drive(DriveConfig(**how, seed=seed, episodes=episodes, steering_noise=0.6))[-1]
        for seed, episodes in ((4_000_000, 2), (4_000_001, 1))
    )
    assert first.episode_return == second.episode_return
