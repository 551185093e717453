"""The command itself: mistakes and the system's errors in one sentence, signals, closed streams."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nacdrive.cli.main import VERBS, entries, load_verb, main
from nacdrive.common.paths import shipped
from tests.helpers.episodes import begin, make_episode
from tests.helpers.nightly import daily

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = shipped("recordings") / "carracing-sample"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def short_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a verb that is refused read before."""
    folder = tmp_path_factory.mktemp("short") / "recording"
    writer = begin(folder)
    for seed in (3_000_000, 3_000_001):
        writer.add(make_episode(seed))
    return folder


def test_the_list_of_verbs_names_every_verb_within_them() -> None:
    within = {verb: [name for name in entries(load_verb(verb)) if name] for verb in VERBS}
    assert within["sim"] == ["udacity", "roads"]
    listed = {verb: VERBS[verb].partition(":")[0].split(", ") for verb, names in within.items() if names}
    assert listed == {verb: names for verb, names in within.items() if names}


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["nacdrive", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert isinstance(end.value.code, int)
    return end.value.code


def test_python_m_nacdrive() -> None:
    for module in ("nacdrive", "nacdrive.cli.main"):
        command = [sys.executable, "-m", module, "--version"]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=True)
        assert done.stdout.startswith("nacdrive ")


def test_trust_may_stand_alone_or_before_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "--trust", "json") == call(monkeypatch, "--trust", "json", "--version") == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("eval --episodes x", "error parsing --episodes: give a whole number instead of 'x' ("),
        ("predict --data x --lives-h x", "error parsing --lives-h: give a number instead of 'x' ("),
        ("bench runtime --steps two", "error parsing --steps: give a whole number instead of 'two' ("),
        ("drive --speed x", "error parsing --speed: give a number instead of 'x' ("),
        ("drive --rate 3", "error parsing --rate: give a number and a number instead of '3' ("),
        ("eval --rate 5 --noise 0.1", "error parsing --rate: give a number and a number instead of '5' ("),
        ("eval --noise x", "error parsing --noise"),
        ("eval --epsodes 3", "unrecognized options: --epsodes (did you mean --episodes?)"),
        ("eval --renderer foo", "invalid choice 'foo' for argument '--renderer'"),
        ("expert train --seed", "missing value for argument '--seed'"),
        ("share --seconds 3 -", "missing from nacdrive share: --data PATH"),
        ("eval --seed 1" + "0" * 5000, "error parsing --seed"),
        ("recordings merge", "--out"),
    ],
)
def test_what_cannot_be_parsed_is_one_sentence(
    line: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *line.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith("nacdrive: ") and err.count("\n") == 1 and message in err and "│" not in err
    assert "None" not in err
    assert "--help' lists the options" in err


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("file/x", "a file where a folder belongs"),
        ("file", "is a file"),
        ("link", "a link to nothing"),
        ("circle", "link"),
        ("x" * 300, "name is too long"),
        ("/proc/none/x", "does not exist"),
        ("readonly/x", "permission is denied"),
    ],
)
def test_a_path_that_cannot_be_used_is_one_sentence(
    out: str,
    message: str,
    short_recording: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("link").symlink_to("none")
    Path("circle").symlink_to("circle")
    Path("readonly").mkdir(mode=0o500)
    if out.startswith("readonly") and os.access("readonly", os.W_OK):
        # The superuser may write everywhere: what the system says to others.
        made = Path.mkdir

        def mkdir(path: Path, *args: object, **options: object) -> None:
            if path.is_relative_to("readonly"):
                raise PermissionError(13, "Permission denied", str(path))
            made(path, *args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(Path, "mkdir", mkdir)
    short = str(short_recording)
    before = sorted(tmp_path.rglob("*"))
    merge = ["recordings", "merge", short, short, "--out", out]
    for line in (merge, ["train", "--data", short, "--model", "gru", "--out", out]):
        assert call(monkeypatch, *line) == 2
        err = capsys.readouterr().err
        assert err.startswith("nacdrive: ") and err.count("\n") == 1 and message in err, err
    assert sorted(tmp_path.rglob("*")) == before


def test_an_error_of_the_program_is_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(arguments: list[str]) -> int:
        raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr("nacdrive.cli.main.dispatch", wrong)
    monkeypatch.setattr(sys, "argv", ["nacdrive"])
    with pytest.raises(ConnectionResetError):
        main()


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize(
    "sent",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.nightly),
        pytest.param(signal.SIGHUP, marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_every_way_to_end_is_ctrl_c(sent: signal.Signals) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "nacdrive", "replay", str(SAMPLE), "--port", str(port)],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # As a shell leaves it to a command in the background; and not as nohup does, if these tests run under it.
        preexec_fn=lambda: (signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGHUP, signal.SIG_DFL)),
    )
    try:
        assert process.stdout is not None and process.stdout.readline().startswith("watch at")
        time.sleep(0.5)
        if (maps := Path(f"/proc/{process.pid}/maps")).exists():
            assert "libtorch" not in maps.read_text(), "frames are shown without a model"
        process.send_signal(sent)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    # The verb's own way to end at Ctrl-C; of a signal that nobody caught it would be below zero.
    assert process.returncode == 0 and not err


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize("closed", daily(["<&-", ">&-", "<&- >&- 2>&-", "| true"], ["<&- >&- 2>&-", "| true"]))
def test_closed_streams_are_no_trouble(closed: str) -> None:
    line = f"{sys.executable} -m nacdrive recordings info {SAMPLE} {closed}"
    done = subprocess.run(line, shell=True, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
@pytest.mark.parametrize("words", ["help eval", f"recordings info {SAMPLE}", "bench --help"])
def test_a_reader_that_has_gone_is_a_normal_end_of_a_table_too(words: str) -> None:
    line = f"{{ {sys.executable} -m nacdrive {words}; echo $? >&2; }} | true"
    done = subprocess.run(line, shell=True, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.stderr == "0\n"


def test_a_folder_of_the_user_survives_a_refused_resume_and_an_overwrite(
    short_recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d").mkdir()
    Path("d/a.txt").write_text("precious")
    for line in (
        "demo --headless --out d --episodes 0",
        "demo --headless --out d --episodes 0 --overwrite",
        f"train --data {short_recording} --model gru --out d --resume",
        f"train --data {short_recording} --model gru --out d --overwrite",
        "expert train --out d --resume",
        "expert train --out d --overwrite",
    ):
        assert call(monkeypatch, *line.split()) == 2
        assert capsys.readouterr().err.count("\n") == 1
        assert [(p.name, p.read_text()) for p in Path("d").iterdir()] == [("a.txt", "precious")], line


def test_a_refused_call_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SAMPLE, "mine")
    before = sorted(Path("mine").iterdir())
    for line in ("expert train --out mine --resume", "expert train --out new --resume", "train --data mine --out mine"):
        assert call(monkeypatch, *line.split()) == 2
    assert sorted(Path("mine").iterdir()) == before and list(tmp_path.iterdir()) == [tmp_path / "mine"]
