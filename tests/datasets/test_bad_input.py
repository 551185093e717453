"""What is damaged, foreign or given twice: one sentence, or the rest goes on."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nacdrive.common import paths
from nacdrive.common.errors import UserError
from nacdrive.common.paths import find_recording, shipped
from nacdrive.datasets.check import check_recording
from nacdrive.datasets.downloads import unpacked
from nacdrive.datasets.images import decode_image, encode_jpeg
from nacdrive.datasets.manifest import MANIFEST
from nacdrive.datasets.recording import Recording, merge_recordings, unique_episodes
from nacdrive.datasets.udacity_log import read_log, stamp_of
from nacdrive.datasets.udacity_log_convert import import_log
from nacdrive.tasks.registry import load_task
from tests.helpers.episodes import begin, make_episode
from tests.helpers.udacity_logs import make_log

ROOT = Path(__file__).resolve().parents[2]


def test_an_episode_given_twice_is_used_once(recording_folder: Path, tmp_path: Path) -> None:
    begin(tmp_path / "other").add(make_episode(7))
    merge_recordings([recording_folder, tmp_path / "other"], tmp_path / "merged")
    (tmp_path / "link").symlink_to(recording_folder)
    folders = [recording_folder, tmp_path / "link", tmp_path / "merged", recording_folder]
    with pytest.warns(UserWarning, match="9 episodes were given twice and are used once"):
        found = unique_episodes([Recording.open(folder) for folder in folders])
    assert [recording.episodes[index].seed for recording, index in found] == [3_000_000, 3_000_001, 3_000_002, 7]


def test_no_task_learns_from_what_it_is_judged_by(tmp_path: Path) -> None:
    sample = shipped("recordings") / "carracing-sample"
    shutil.copytree(sample, tmp_path / "copy")
    with pytest.warns(UserWarning, match="3 episodes were given twice"):
        assert len(load_task("carracing").load([sample, tmp_path / "copy"])) == 3
    log = make_log(tmp_path / "log", 6)
    import_log(log, tmp_path / "imported")
    with pytest.warns(UserWarning, match="an episode was given more than once and is used once"):
        assert len(load_task("udacity").load([log, tmp_path / "imported"])) == 1


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(fps="fast"),
        lambda m: m.update(fps=None),
        lambda m: m.update(fps=float("inf")),
        lambda m: m.update(fps=0),
        lambda m: m.update(dropped=None),
        lambda m: m.update(dropped=[3]),
        lambda m: m.update(recipe=[]),
        lambda m: m.update(source=3),
        lambda m: m.update(episodes={"a": 1}),
        lambda m: m["episodes"][0].update(size_bytes=float("inf")),
        lambda m: m["episodes"][0].update(steps="many"),
        lambda m: m["episodes"][0].update(file=3),
        lambda m: m["episodes"][0].update(file="../x"),
    ],
)
def test_a_manifest_of_wrong_types_is_one_sentence(recording_folder: Path, change: Change) -> None:
    manifest = json.loads((recording_folder / MANIFEST).read_text())
    change(manifest)
    (recording_folder / MANIFEST).write_text(json.dumps(manifest))
    for use in (Recording.open, check_recording, lambda folder: begin(folder, resume=True)):
        with pytest.raises(
            UserError, match=r"recording\.json is (damaged.*restore it from a copy|not readable.*no finite number)"
        ):
            use(recording_folder)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"kind": ' + "9" * 5000 + "}"], ids=["deep", "huge"])
def test_a_manifest_that_python_refuses_is_one_sentence(recording_folder: Path, text: str) -> None:
    (recording_folder / MANIFEST).write_text(text)
    with pytest.raises(UserError, match="not readable as JSON"):
        Recording.open(recording_folder)


def test_an_episode_listed_twice_counts_once(recording_folder: Path) -> None:
    manifest = json.loads((recording_folder / MANIFEST).read_text())
    manifest["episodes"].append(manifest["episodes"][0])
    (recording_folder / MANIFEST).write_text(json.dumps(manifest))
    assert len(Recording.open(recording_folder)) == 3


@pytest.mark.parametrize("how", ["encrypted", "method"])
def test_an_archive_that_python_cannot_open_is_one_sentence(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACDRIVE_CACHE", str(tmp_path / "cache"))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr("x.txt", "text")
    data = bytearray((tmp_path / "a.zip").read_bytes())
    # Flags and method in the local header and in the directory.
    for start, offset in ((data.find(b"PK\x03\x04"), 6), (data.find(b"PK\x01\x02"), 8)):
        flags, method = (1, 0) if how == "encrypted" else (0, 97)
        data[start + offset : start + offset + 4] = struct.pack("<HH", flags, method)
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(UserError, match=r"a\.zip cannot be unpacked"):
        unpacked(tmp_path / "a.zip")
    assert not list((tmp_path / "cache" / "unpacked").iterdir())


def test_a_picture_of_absurd_size_is_no_readable_image() -> None:
    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + head
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(head)) + chunk + struct.pack(">I", zlib.crc32(chunk))
    with pytest.raises(ValueError, match="not a readable image"):
        decode_image(png)


def test_jpeg_frames_are_kept_as_they_came(tmp_path: Path) -> None:
    episode = make_episode(1, steps=2)
    jpeg = [encode_jpeg(decode_image(data)) for data in episode.frames]
    object.__setattr__(episode, "frames", jpeg)
    begin(tmp_path / "r").add(episode)
    assert Recording.open(tmp_path / "r").load(0).frames == jpeg


def test_a_last_line_without_its_end_is_a_row_where_it_goes_on(tmp_path: Path) -> None:
    folder = make_log(tmp_path / "log", 4, rows=[[0.1, 0.5, 0.0, 20.0 + i / 7] for i in range(4)])  # type: ignore[arg-type]
    log = folder / "driving_log.csv"
    whole = log.read_text()
    log.write_text(whole.rstrip("\n"))
    assert len(read_log(folder).rows) == 4 and not read_log(folder).skipped
    # "20.42857" cut to "2", and to nothing.
    for cut in (7, 9):
        log.write_text(whole.rstrip("\n")[:-cut])
        with pytest.warns(UserWarning, match="last line is cut short"):
            assert len(read_log(folder).rows) == 3


def test_logs_of_persian_computers(tmp_path: Path) -> None:
    folder = make_log(tmp_path / "log", 4, decimal="/")
    expected = [row.speed_mps for row in read_log(make_log(tmp_path / "plain", 4)).rows]
    assert [row.speed_mps for row in read_log(folder).rows] == expected
    # 31 Ordibehesht, which the common calendar has not, and the day after.
    before, after = (stamp_of(f"center_1397_{day}_23_59_59_900.jpg") for day in ("02_31", "03_01"))
    assert before is not None and after is not None and (after - before).days == 1
    thai = stamp_of("center_2563_02_29_10_00_00_000.jpg")
    assert thai is not None and thai.year == 2563
    assert stamp_of("center_2018_02_31_10_00_00_000.jpg") is None


def test_a_log_without_a_sound_row_gives_fitting_advice(tmp_path: Path) -> None:
    folder = make_log(tmp_path / "log", 2)
    (folder / "driving_log.csv").write_text("a,b\nc,d\n")
    with pytest.raises(UserError, match="A row is center, left, right, steering"):
        read_log(folder)


def test_the_sample_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("carracing-sample", "recordings/carracing-sample"):
        assert len(Recording.open(Path(name))) == 3
        assert not check_recording(Path(name)).problems
    # A folder of one's own comes first, and a mistyped one is told by the name that was given.
    begin(Path("recordings/carracing-sample")).add(make_episode(1))
    assert len(Recording.open("recordings/carracing-sample")) == 1
    with pytest.raises(UserError, match="no folder recordings/none:"):
        Recording.open("recordings/none")
    assert find_recording(Path("a/carracing-sample")) == Path("a/carracing-sample")


def test_the_wheel_carries_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert '"recordings/carracing-sample" = "nacdrive/_shipped/recordings/carracing-sample"' in text
    monkeypatch.setattr(paths, "PACKAGE", tmp_path)
    shutil.copytree(ROOT / "recordings" / "carracing-sample", tmp_path / "_shipped/recordings/carracing-sample")
    assert shipped("recordings") == tmp_path / "_shipped" / "recordings"


def test_a_path_that_is_no_utf8_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nacdrive", "train", "--data", b"\xff", "--out", str(tmp_path / "out")]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # type: ignore[arg-type]
    assert found.returncode == 2 and found.stderr.count("\n") == 1 and "is not UTF-8" in found.stderr
