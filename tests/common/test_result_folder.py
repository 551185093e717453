"""Result folders: nobody's files are deleted, one writer at a time, a refused call leaves no trace."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nacdrive.common.errors import UserError
from nacdrive.common.files import write_text
from nacdrive.common.result_folder import (
    LOCK,
    RESULT_MARKER,
    drop_replaced,
    is_own,
    lock_folder,
    note_own,
    open_log,
    own_names,
    release_folders,
    result_folder,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    yield
    release_folders()


def tree(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() if p.is_file() else "" for p in folder.rglob("*")}


def finished(folder: Path, *names: str) -> dict[str, str]:
    """A whole run of a verb."""
    result_folder(folder)
    for name in names or ("run.json", "sub/model.pt"):
        write_text(folder / name, "own")
    release_folders()
    return tree(folder)


def test_a_result_is_never_overwritten_unasked(tmp_path: Path) -> None:
    before = finished(tmp_path / "r")
    with pytest.raises(UserError, match="already holds a result: give --resume, --overwrite"):
        result_folder(tmp_path / "r", resume=False)
    with pytest.raises(UserError, match="already holds a result: give --overwrite or another --out"):
        result_folder(tmp_path / "r")
    with pytest.raises(UserError, match="contradict"):
        result_folder(tmp_path / "r", resume=True, overwrite=True)
    release_folders()
    assert tree(tmp_path / "r") == before
    assert result_folder(tmp_path / "r", resume=True) == tmp_path / "r"
    release_folders()
    assert tree(tmp_path / "r") == before


def test_overwrite_replaces_a_whole_result(tmp_path: Path) -> None:
    finished(tmp_path / "r", "run.json", "sub/model.pt", "policy.pt")
    result_folder(tmp_path / "r", resume=True)
    for log in ("metrics.jsonl", "log.jsonl"):
        with open_log(tmp_path / "r" / log) as file:
            file.write("{}")
    (tmp_path / "r" / "IMG").mkdir()
    note_own(tmp_path / "r" / "IMG")
    # What a killed process leaves of a file that is its own.
    (tmp_path / "r" / "sub" / ".model.pt.123.partial").write_text("half")
    release_folders()
    result_folder(tmp_path / "r", overwrite=True)
    write_text(tmp_path / "r" / "run.json", "new")
    release_folders()
    assert set(tree(tmp_path / "r")) == {"run.json", RESULT_MARKER}


@pytest.mark.parametrize("moved", range(5))
def test_an_overwrite_killed_while_it_puts_aside_loses_nothing(tmp_path: Path, moved: int) -> None:
    before = finished(tmp_path / "r")
    code = (
        "import os, sys, pathlib; from nacdrive.common import result_folder as module;"
        "moves = []; replace = pathlib.Path.replace\n"
        "def die(path, target):\n"
        "    if len(moves) == int(sys.argv[2]): os._exit(9)\n"
        "    moves.append(path); return replace(path, target)\n"
        "pathlib.Path.replace = die\n"
        "module.result_folder(pathlib.Path(sys.argv[1]), overwrite=True)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "r"), str(moved)], cwd=ROOT, check=False)
    result_folder(tmp_path / "r", resume=True)
    release_folders()
    assert tree(tmp_path / "r") == before


def test_a_rest_of_what_was_replaced_is_never_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(tmp_path / "r", "a.json", "b.json")
    result_folder(tmp_path / "r", overwrite=True)

    def stop(path: Path, missing_ok: bool = False) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "unlink", stop)
        drop_replaced(tmp_path / "r" / "c.json")
    (tmp_path / "r" / "c.json").write_text("new")
    release_folders()
    assert set(tree(tmp_path / "r")) == {"c.json", RESULT_MARKER}


KEPT = (
    "driving_log.csv", "IMG/center_2018_07_16_17_11_43_382.jpg", "made-up/thesis.docx", "thesis/made-up/x.docx",
    "metrics.jsonl", "episodes.jsonl", "results.jsonl", "log.jsonl", "expert-mine.jsonl", "lake-mine.jsonl",
    "mountain-mine.jsonl", "tensorboard/events.out.tfevents.1.vm", ".x.partial", ".x.7.partial", "empty/",
    "sub/empty/", "sub/.nacdrive-replaced/x", "sub/.nacdrive-staging/x", "mine/.nacdrive-result", "holiday.mp4",
)  # fmt: skip
"""One of every kind that a user might keep in a result folder; names with a slash behind them are folders."""


@pytest.mark.parametrize("name", KEPT)
def test_what_the_marker_does_not_list_is_kept(tmp_path: Path, name: str) -> None:
    finished(tmp_path / "r")
    path = tmp_path / "r" / name
    if name.endswith("/"):
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious")
    before = tree(tmp_path / "r")
    for _ in range(2):
        with pytest.raises(UserError, match="was not made by nacdrive, so --overwrite leaves"):
            result_folder(tmp_path / "r", overwrite=True)
        release_folders()
        assert tree(tmp_path / "r") == before


def test_a_result_in_a_result_is_kept_unless_both_were_made_together(tmp_path: Path) -> None:
    finished(tmp_path / "r")
    before = finished(tmp_path / "r" / "eval")
    with pytest.raises(UserError, match="eval was not made by nacdrive"):
        result_folder(tmp_path / "r", overwrite=True)
    release_folders()
    assert tree(tmp_path / "r" / "eval") == before
    result_folder(tmp_path / "both")
    result_folder(tmp_path / "both" / "training")
    write_text(tmp_path / "both" / "training" / "policy.pt", "own")
    release_folders()
    result_folder(tmp_path / "both", overwrite=True)
    write_text(tmp_path / "both" / "run.json", "new")
    release_folders()
    assert set(tree(tmp_path / "both")) == {"run.json", RESULT_MARKER}


def test_a_marker_is_read_whatever_it_holds(tmp_path: Path) -> None:
    finished(tmp_path / "r")
    with (tmp_path / "r" / RESULT_MARKER).open("ab") as file:
        file.write(b"\xff\n[1]\n{}\n" + b"[" * 100_000 + b'\n"mine.txt"\n')
    (tmp_path / "r" / "mine.txt").write_text("listed")
    result_folder(tmp_path / "r", overwrite=True)


def test_names_that_another_process_adds_are_seen(tmp_path: Path) -> None:
    result_folder(tmp_path / "r")
    note_own(tmp_path / "r" / "a")
    with (tmp_path / "r" / RESULT_MARKER).open("a") as file:
        file.write('"b"\n')
    note_own(tmp_path / "r" / "c")
    assert {"a", "b", "c"} <= own_names(tmp_path / "r")
    assert [is_own(tmp_path / "r" / name) for name in ("a", ".b.1.partial", "d")] == [True, True, False]


def test_a_refused_overwrite_gives_the_old_result_back(tmp_path: Path) -> None:
    before = finished(tmp_path / "r")
    result_folder(tmp_path / "r", overwrite=True)
    assert not (tmp_path / "r" / "run.json").exists()
    release_folders()
    assert tree(tmp_path / "r") == before


def test_a_killed_overwrite_gives_the_old_result_back_the_next_time(tmp_path: Path) -> None:
    before = finished(tmp_path / "r")
    code = (
        "import os, sys, pathlib; from nacdrive.common.result_folder import result_folder;"
        "result_folder(pathlib.Path(sys.argv[1]), overwrite=True); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "r")], cwd=ROOT, check=False)
    assert not (tmp_path / "r" / "run.json").exists()
    result_folder(tmp_path / "r", resume=True)
    release_folders()
    assert tree(tmp_path / "r") == before


def test_a_refused_call_leaves_no_trace(tmp_path: Path) -> None:
    result_folder(tmp_path / "a" / "b")
    release_folders()
    assert not list(tmp_path.iterdir())
    (tmp_path / "empty").mkdir()
    result_folder(tmp_path / "empty", resume=True)
    release_folders()
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize("flags", [{}, {"resume": True}, {"overwrite": True}], ids=["plain", "resume", "overwrite"])
def test_a_folder_of_somebody_else_is_left_as_it_is(tmp_path: Path, flags: dict[str, bool]) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    # One after the other: the first refusal must not open the door to the second.
    for options in ({"resume": True}, flags, {"overwrite": True}):
        with pytest.raises(UserError, match="did not make: give another --out"):
            result_folder(tmp_path, **options)
        release_folders()
        assert tree(tmp_path) == {"thesis.tex": "precious"}


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of a file's size")
def test_a_full_disk_is_not_taken_for_another_process(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from nacdrive.common.result_folder import release_folders, result_folder
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
for _ in range(2):
    result_folder(Path(sys.argv[1]))
    release_folders()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "r")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.iterdir())


def test_what_is_read_is_not_replaced_and_another_kind_of_result_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finished(tmp_path / "r")
    before = tree(tmp_path)
    for read in (Path("r"), Path("r/old.pt"), "r/run.json"):
        with pytest.raises(UserError, match="is read here, and --overwrite would delete it"):
            result_folder(Path("r"), overwrite=True, reads=(None, "ppo", read))
    with pytest.raises(UserError, match=r"r holds another kind of result \(no evaluation.json is in it\)"):
        result_folder(Path("r"), resume=True, own="evaluation.json")
    release_folders()
    assert tree(tmp_path) == before
    # A driver's name is no file, though the folder is called like it.
    (tmp_path / "r").rename("ppo")
    result_folder(Path("ppo"), resume=True, own="run.json")
    release_folders()
    result_folder(Path("ppo"), overwrite=True, reads=("ppo",))
    release_folders()


@pytest.mark.parametrize("name", ["notes.txt", "sub/photo.png", "old.pt", "sub/deeper/run.json"])
def test_a_file_of_the_user_in_a_result_keeps_all_of_it(tmp_path: Path, name: str) -> None:
    finished(tmp_path / "r")
    (tmp_path / "r" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "r" / name).write_text("precious")
    before = tree(tmp_path / "r")
    with pytest.raises(UserError, match=rf"{name} was not made by nacdrive.*move it away"):
        result_folder(tmp_path / "r", overwrite=True)
    release_folders()
    assert tree(tmp_path / "r") == before


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    finished(tmp_path / "r")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text("precious")
    (tmp_path / "r" / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match="link was not made by nacdrive"):
        result_folder(tmp_path / "r", overwrite=True)
    assert (tmp_path / "mine" / "run.json").read_text() == "precious"


@pytest.mark.parametrize("place", ["cwd", "parent", "home", "repository"])
def test_special_places_are_never_overwritten(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "r"
    before = finished(folder)
    monkeypatch.chdir(tmp_path)
    if place == "cwd":
        monkeypatch.chdir(folder)
        folder = Path(".")
    elif place == "parent":
        (folder / "sub").mkdir(exist_ok=True)
        monkeypatch.chdir(folder / "sub")
        folder = Path("..")
    elif place == "home":
        monkeypatch.setenv("HOME", str(folder))
    else:
        (folder / ".git").mkdir()
        before[".git"] = ""
    with pytest.raises(UserError, match="--overwrite deletes nothing"):
        result_folder(folder, overwrite=True)
    release_folders()
    assert tree(tmp_path / "r") == before


def test_files_and_links_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(UserError, match="is a file"):
        result_folder(tmp_path / "f", overwrite=True)
    (tmp_path / "l").symlink_to(tmp_path / "none")
    with pytest.raises(UserError, match="is a link to nothing"):
        result_folder(tmp_path / "l")


HOLD = """
import sys, pathlib
from nacdrive.common.result_folder import result_folder
try:
    result_folder(pathlib.Path(sys.argv[1]), resume=True)
except Exception as error:
    print(error, flush=True)
else:
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    finished(tmp_path / "r")
    command = [sys.executable, "-c", HOLD, str(tmp_path / "r")]
    options = {"cwd": ROOT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    first = subprocess.Popen(command, **options)  # type: ignore[call-overload]
    assert first.stdout.readline() == "held\n"
    with pytest.raises(UserError, match=rf"another nacdrive \(process {first.pid}\) writes into .*/r: wait"):
        result_folder(tmp_path / "r", resume=True)
    with pytest.raises(UserError, match="another nacdrive"):
        result_folder(tmp_path / "r", overwrite=True)
    assert (tmp_path / "r" / "run.json").exists()
    # A lock dies with its process, whatever ends it.
    first.kill()
    first.wait()
    assert result_folder(tmp_path / "r", resume=True)
    second = subprocess.run(command, **{**options, "stdin": subprocess.DEVNULL}, check=False)  # type: ignore[call-overload]
    assert "another nacdrive" in second.stdout


def test_a_lock_is_held_as_long_as_its_owner_lives(tmp_path: Path) -> None:
    class Owner:
        pass

    one, two = Owner(), Owner()
    lock_folder(tmp_path / "r", one)
    lock_folder(tmp_path / "r", two)
    del one
    assert (tmp_path / "r" / LOCK).exists()
    del two
    assert not (tmp_path / "r").exists()


def test_what_a_command_reads_is_not_deleted_by_its_overwrite(tmp_path: Path) -> None:
    out = result_folder(tmp_path / "r")
    write_text(out / "policy.pt", "weights")
    release_folders()
    with pytest.raises(UserError, match=r"policy\.pt is read here, and --overwrite would delete it"):
        result_folder(out, overwrite=True, reads=[out / "policy.pt"])
    assert (out / "policy.pt").read_text() == "weights"
    result_folder(out, resume=True, reads=[out / "policy.pt"])
