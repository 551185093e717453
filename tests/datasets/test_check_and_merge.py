from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nacdrive.common.errors import UserError
from nacdrive.common.result_folder import LOCK, release_folders
from nacdrive.datasets.check import check_recording, episode_problem, keep_sound
from nacdrive.datasets.episode import Episode
from nacdrive.datasets.episode_file import to_parquet
from nacdrive.datasets.manifest import EpisodeInfo
from nacdrive.datasets.recording import Recording, merge_recordings
from tests.helpers.episodes import begin, make_episode

SECOND = "episode-3000001.parquet"


def found(folder: Path) -> dict[str, str]:
    return {problem.path.name: problem.why for problem in check_recording(folder).problems}


def test_a_sound_recording_has_no_problem(recording_folder: Path) -> None:
    result = check_recording(recording_folder)
    assert (len(result.sound), result.problems) == (3, [])


def test_a_truncated_file_is_named_and_the_others_are_sound(recording_folder: Path) -> None:
    path = recording_folder / SECOND
    path.write_bytes(path.read_bytes()[:-10])
    result = check_recording(recording_folder)
    assert [(problem.path.name, problem.why.split(" (")[0]) for problem in result.problems] == [
        (SECOND, "is truncated")
    ]
    assert len(result.sound) == 2


@pytest.mark.parametrize("where", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_one_flipped_bit_anywhere_is_found(recording_folder: Path, where: float) -> None:
    path = recording_folder / SECOND
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 1
    path.write_bytes(data)
    assert "has been altered since it was recorded" in found(recording_folder)[SECOND]


def test_a_file_exchanged_for_another_sound_episode_is_found(recording_folder: Path) -> None:
    (recording_folder / SECOND).write_bytes((recording_folder / "episode-3000002.parquet").read_bytes())
    assert "has been altered" in found(recording_folder)[SECOND]


def test_foreign_files_are_named(recording_folder: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), recording_folder / "sales.parquet")
    (recording_folder / "driving_log.csv").write_text("a,b\n")
    (recording_folder / "README.md").write_text("Mine.\n")
    assert found(recording_folder) == dict.fromkeys(
        ["driving_log.csv", "sales.parquet"], "is foreign: no episode of this recording"
    )


def test_an_episode_that_a_crash_left_unlisted_is_sound(recording_folder: Path) -> None:
    (recording_folder / "episode-0000007.parquet").write_bytes(to_parquet(make_episode(7)))
    result = check_recording(recording_folder)
    assert (len(result.sound), result.problems) == (4, [])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steering": np.full(6, 1.5)}, "steers beyond"),
        ({"brake": np.full(6, -0.1)}, "a brake outside"),
        ({"throttle": np.full(6, np.nan)}, "a throttle outside"),
        ({"reward": np.full(6, np.inf)}, "rewards that are no numbers"),
        ({"expert_choice": np.full(6, 5)}, "labels that do not fit"),
        ({"frames": [b"no image"] * 6}, "unreadable frame"),
        ({"source": "udacity"}, "was recorded in 'udacity'"),
    ],
)
def test_impossible_content_is_named(recording_folder: Path, changes: dict[str, object], said: str) -> None:
    forge(recording_folder, replace(make_episode(3_000_001), **changes))  # type: ignore[arg-type]
    assert said in found(recording_folder)[SECOND]


def forge(folder: Path, episode: Episode) -> None:
    """Put ``episode`` into the second file and make the checksum agree."""
    import hashlib

    data = to_parquet(episode)
    (folder / SECOND).write_bytes(data)
    path = folder / "recording.json"
    manifest = json.loads(path.read_text())
    manifest["episodes"][1] |= {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
    path.write_text(json.dumps(manifest))


def test_set_aside_leaves_a_sound_recording_and_deletes_nothing(recording_folder: Path) -> None:
    (recording_folder / SECOND).write_bytes(b"PAR1")
    (recording_folder / "notes.txt").write_bytes(b"mine")
    _, (first,) = keep_sound(recording_folder)
    (recording_folder / SECOND).write_bytes(b"PAR2")
    _, (second,) = keep_sound(recording_folder)
    assert [path.name for path in (first, second)] == [SECOND, "episode-3000001-2.parquet"]
    assert (first.read_bytes(), second.read_bytes()) == (b"PAR1", b"PAR2")
    assert list(found(recording_folder)) == ["notes.txt"]
    assert [info.seed for info in Recording.open(recording_folder).episodes] == [3_000_000, 3_000_002]


def test_nothing_is_set_aside_while_another_process_records(recording_folder: Path) -> None:
    (recording_folder / SECOND).write_bytes(b"PAR1")
    with (recording_folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another nacdrive writes into"):
            keep_sound(recording_folder)
    assert (recording_folder / SECOND).exists()


def test_an_episode_that_is_recorded_during_a_check_is_not_foreign(
    recording_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begin(recording_folder, resume=True)

    def record_on(info: EpisodeInfo, source: str) -> str | None:
        if len(writer.episodes) == 3:
            writer.add(make_episode(9))
        return episode_problem(info, source)

    monkeypatch.setattr("nacdrive.datasets.check.episode_problem", record_on)
    assert found(recording_folder) == {}


def test_check_says_when_there_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is empty"):
        check_recording(tmp_path)


def test_merge_copies_files_byte_for_byte_and_keeps_duplicates_once(recording_folder: Path, tmp_path: Path) -> None:
    other = begin(tmp_path / "other", expert="ppo")
    other.add(make_episode(3_000_002))
    other.add(make_episode(3_000_001, steps=4))
    result = merge_recordings([recording_folder, tmp_path / "other"], tmp_path / "merged")
    assert result == (4, 1)
    merged = Recording.open(tmp_path / "merged")
    assert [merged.load(i).seed for i in range(4)] == [3_000_000, 3_000_001, 3_000_001, 3_000_002]
    assert merged.meta["expert"] == "geometric + ppo"
    assert (tmp_path / "merged" / SECOND).read_bytes() == (recording_folder / SECOND).read_bytes()
    assert check_recording(tmp_path / "merged").problems == []


@pytest.mark.parametrize(
    ("options", "said"), [({"source": "udacity"}, "source udacity"), ({"fps": 50.0}, "fps 50.0 and .* 12.5")]
)
def test_merge_refuses_recordings_that_do_not_fit(
    recording_folder: Path, tmp_path: Path, options: dict[str, object], said: str
) -> None:
    begin(tmp_path / "b", **options).add(make_episode(source=str(options.get("source", "carracing"))))
    with pytest.raises(UserError, match=said):
        merge_recordings([recording_folder, tmp_path / "b"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rates_that_differ_by_a_percent_are_of_one_kind(recording_folder: Path, tmp_path: Path) -> None:
    begin(tmp_path / "b", fps=12.6).add(make_episode(9))
    assert merge_recordings([recording_folder, tmp_path / "b"], tmp_path / "out") == (4, 0)
    assert Recording.open(tmp_path / "out").meta["fps"] == 12.5
    release_folders()
    begin(tmp_path / "b", fps=12.4, resume=True)
    with pytest.raises(UserError, match=r"b was recorded with fps 12\.6 instead of 5: resume with the same options"):
        begin(tmp_path / "b", fps=5.0, resume=True)


def test_merge_refuses_a_damaged_part_before_it_writes(recording_folder: Path, tmp_path: Path) -> None:
    begin(tmp_path / "b").add(make_episode(9))
    data = bytearray((recording_folder / SECOND).read_bytes())
    data[50] ^= 1
    (recording_folder / SECOND).write_bytes(data)
    with pytest.raises(UserError, match=f"{SECOND} has been altered"):
        merge_recordings([recording_folder, tmp_path / "b"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_merge_refuses_one_recording_and_its_own_output(recording_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least two"):
        merge_recordings([recording_folder], tmp_path / "out")
    with pytest.raises(UserError, match="one of the recordings"):
        merge_recordings([recording_folder, recording_folder], recording_folder, overwrite=True)
