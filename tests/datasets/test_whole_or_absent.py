"""A recording is replaced whole or not at all, wherever the process is killed and whenever the disk is full."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nacdrive.common.errors import UserError
from nacdrive.common.result_folder import BOOKKEEPING, COMPLETE, STAGING, release_folders
from nacdrive.datasets.check import check_recording
from nacdrive.datasets.manifest import MANIFEST
from nacdrive.datasets.recording import Recording, merge_recordings
from nacdrive.datasets.staging import staged_folder, write_recording
from tests.helpers.episodes import begin, make_episode
from tests.helpers.exchange import drive, write
from tests.helpers.faults import KILLED, run_with_fault

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")
HEADER = {"source": "udacity", "fps": 12.5, "expert": "e", "recipe": {}}
MOST = 200
"""More changes of files than any of these jobs makes."""


def seeds(folder: Path) -> list[int] | None:
    """What the recording in ``folder`` holds, every file sound; None where there is none."""
    if not (folder / MANIFEST).exists() and not (folder / COMPLETE).exists():
        return None
    result = check_recording(folder)
    assert result.problems == []
    return sorted(info.seed for info in Recording.open(folder).episodes)


def importing(out: Path, overwrite: bool) -> Callable[[], object]:
    return lambda: write_recording(
        out, HEADER, [1, 2, 3], [drive(1, 2), drive(2, 2, salt=1), drive(3, 2)], overwrite=overwrite
    )


@pytest.mark.parametrize(
    ("job", "old", "fault", "stride"),
    [
        pytest.param("import", True, "kill", 1, marks=pytest.mark.nightly),
        pytest.param("merge", True, "kill", 1, marks=pytest.mark.nightly),
        pytest.param("merge", True, "full", 1, marks=pytest.mark.nightly),
        pytest.param("import", False, "kill", 1, marks=pytest.mark.nightly),
        ("merge", True, "full", 11),
        ("import", True, "kill", 9),
    ],
)
def test_at_every_change_of_files(tmp_path: Path, job: str, old: bool, fault: str, stride: int) -> None:
    parts = [write(tmp_path / "a", [drive(1, 2), drive(2, 2)]), write(tmp_path / "b", [drive(3, 2)])]
    outcomes = []
    for at in range(0, MOST, stride):
        out = tmp_path / f"place-{at}" / "out"
        out.parent.mkdir()
        if old:
            write(out, [drive(2, salt=9), drive(7)])
        work = importing(out, old) if job == "import" else lambda: merge_recordings(parts, out, overwrite=old)  # noqa: B023
        code = run_with_fault(work, out.parent, at, fault)
        there = seeds(out)
        assert there in ([2, 7] if old else None, [1, 2, 3])
        outcomes.append((code, there))
        # Nothing is left beside, and the next run finds and removes what is left inside.
        assert [path.name for path in out.parent.iterdir()] in (["out"], [])
        if code != 0 and there != [1, 2, 3]:
            assert work()
        elif there == [1, 2, 3] and code != 0:
            write_recording(out, HEADER, [1, 2, 3], [drive(1), drive(2), drive(3)], overwrite=True)
        assert seeds(out) == [1, 2, 3]
        assert [path.name for path in out.iterdir() if path.name in BOOKKEEPING] == []
        if code == 0:
            break
    codes = [code for code, _ in outcomes]
    assert codes[-1] == 0 and set(codes[:-1]) == {KILLED if fault == "kill" else 3} and len(codes) > 8 / stride
    if fault == "kill" and stride == 1:
        # Some of them fall between the new recording's being complete and its being in place.
        assert (KILLED, [1, 2, 3]) in outcomes


@pytest.mark.parametrize(
    ("fault", "stride"),
    [
        pytest.param("kill", 1, marks=pytest.mark.nightly),
        pytest.param("full", 1, marks=pytest.mark.nightly),
        ("kill", 9),
    ],
)
def test_a_recording_that_is_driven_anew_goes_when_an_episode_is_whole(tmp_path: Path, fault: str, stride: int) -> None:
    def record(out: Path) -> None:
        writer = begin(out, overwrite=True)
        for seed in (1, 2):
            writer.add(make_episode(seed, 2))

    left = []
    for at in range(0, MOST, stride):
        out = tmp_path / f"{at}" / "out"
        write(out, [drive(2, salt=9), drive(7)])
        code = run_with_fault(lambda: record(out), out.parent, at, fault)  # noqa: B023
        left.append(seeds(out))
        assert [path.name for path in out.iterdir() if path.name in (STAGING, COMPLETE)] in ([], [STAGING])
        record(out)
        assert seeds(out) == [1, 2]
        if code == 0:
            break
    assert left == sorted(left, key=[[2, 7], [1], [1, 2]].index) and left[0] == [2, 7] and left[-1] == [1, 2]


def test_ctrl_c_while_an_old_recording_goes_mixes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = write(tmp_path / "out", [drive(2, salt=9), drive(7)])

    def interrupt(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        writer = begin(out, overwrite=True)
        patch.setattr("nacdrive.datasets.writer.settle", interrupt)
        with pytest.raises(KeyboardInterrupt):
            writer.add(make_episode(1, 2))
    writer.adopt_unlisted()
    del writer
    release_folders()
    assert seeds(out) == [1]


def test_an_episode_of_the_users_own_is_kept(tmp_path: Path) -> None:
    folder = write(tmp_path / "r", [drive(1), drive(2)])
    (folder / "episode-favourite.parquet").write_bytes((folder / "episode-0000001.parquet").read_bytes())
    assert [info.seed for info in Recording.open(folder).episodes] == [1, 2]
    with pytest.raises(UserError, match=r"holds files that are no recording \(episode-favourite.parquet\)"):
        write(folder, [drive(3)], overwrite=True)
    assert (folder / "episode-favourite.parquet").exists() and (folder / "episode-0000001.parquet").exists()


@pytest.mark.parametrize(
    ("fault", "stride"),
    [
        pytest.param("kill", 1, marks=pytest.mark.nightly),
        pytest.param("full", 1, marks=pytest.mark.nightly),
        ("kill", 5),
    ],
)
def test_a_data_set_for_others_is_whole_or_absent(tmp_path: Path, fault: str, stride: int) -> None:
    def export(out: Path, text: str) -> None:
        with staged_folder(out, overwrite=out.exists()) as staging:
            for name in ("z.bin", "meta/info.json", "a/b.bin"):
                (staging / name).parent.mkdir(exist_ok=True)
                (staging / name).write_text(text)
        release_folders()

    for at in range(0, MOST, stride):
        out = tmp_path / f"{at}" / "out"
        export(out, "old")
        code = run_with_fault(lambda: export(out, "new"), out.parent, at, fault)  # noqa: B023
        # The next run, which is refused, puts in order what the last one left.
        with pytest.raises(UserError, match="already holds a result"), staged_folder(out, overwrite=False):
            pass
        release_folders()
        texts = {path.read_text() for path in out.rglob("*") if path.is_file() and path.name[0] != "."}
        assert texts in ({"old"}, {"new"}) and len([p for p in out.rglob("*.*") if p.is_file()]) == 4
        export(out, "again")
        assert {path.name for path in out.iterdir()} == {".nacdrive-result", "z.bin", "meta", "a"}
        if code == 0:
            return
    raise AssertionError("it never ends")
