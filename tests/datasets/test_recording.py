from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.common.result_folder import LOCK
from nacdrive.datasets.check import check_recording
from nacdrive.datasets.episode_file import to_parquet
from nacdrive.datasets.recording import Recording
from tests.helpers.episodes import begin, make_episode

SECOND = "episode-3000001.parquet"


def alter(path: Path, offset: int = 40) -> None:
    """Flip one byte, keeping the length."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


def test_a_recording_lists_its_episodes_by_seed_and_loads_them(recording_folder: Path) -> None:
    recording = Recording.open(recording_folder)
    assert len(recording) == 3
    assert [info.seed for info in recording.episodes] == [3_000_000, 3_000_001, 3_000_002]
    episode = recording.load(1)
    assert (episode.seed, len(episode)) == (3_000_001, recording.episodes[1].steps)
    assert episode.decoded().shape == (6, 12, 16, 3)
    assert "3 episodes, 18 frames at 12.5 a second" in repr(recording)


def test_a_moved_recording_is_still_whole(recording_folder: Path, tmp_path: Path) -> None:
    moved = recording_folder.rename(tmp_path / "elsewhere")
    assert Recording.open(moved).load(0).seed == 3_000_000


def test_the_order_of_adding_leaves_no_trace(tmp_path: Path) -> None:
    for name, seeds in (("a", (1, 2, 3)), ("b", (3, 1, 2))):
        writer = begin(tmp_path / name)
        for seed in seeds:
            writer.add(make_episode(seed))
    contents = [{p.name: p.read_bytes() for p in (tmp_path / name).glob("[!.]*")} for name in "ab"]
    assert contents[0] == contents[1]


def test_a_seed_driven_twice_gets_a_second_file(tmp_path: Path) -> None:
    writer = begin(tmp_path / "r")
    assert [writer.add(make_episode(7)).name, writer.add(make_episode(7, steps=9)).name] == [
        "episode-0000007.parquet",
        "episode-0000007-2.parquet",
    ]


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no folder .*nowhere"):
        Recording.open(tmp_path / "nowhere")


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is empty"):
        Recording.open(tmp_path)


def test_folder_without_a_recording(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(UserError, match=r"holds no recording \(no recording.json"):
        Recording.open(tmp_path)


def test_file_instead_of_a_folder(recording_folder: Path) -> None:
    with pytest.raises(UserError, match="is a file"):
        Recording.open(recording_folder / SECOND)


def test_recording_without_an_episode(tmp_path: Path) -> None:
    begin(tmp_path / "r")
    with pytest.raises(UserError, match="no complete episode yet"):
        Recording.open(tmp_path / "r")


def test_recording_of_another_environment(recording_folder: Path) -> None:
    with pytest.raises(UserError, match="was recorded in 'carracing', not in 'udacity'"):
        Recording.open(recording_folder, source="udacity")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not readable as JSON"),
        ("[]", "no recording of nacdrive"),
        ('{"kind": "lerobot"}', "no recording of nacdrive"),
        ('{"kind": "nacdrive recording", "schema_version": 99}', "schema 99"),
        ('{"kind": "nacdrive recording", "schema_version": 1}', "damaged .*episodes"),
        ('{"kind": "nacdrive recording", "schema_version": 1, "episodes": []}', "damaged .*expert"),
        (
            '{"kind": "nacdrive recording", "schema_version": 1, "episodes": [{"file": "../x"}]}',
            "damaged .*not the name",
        ),
    ],
)
def test_foreign_or_damaged_manifest(recording_folder: Path, text: str, said: str) -> None:
    (recording_folder / "recording.json").write_text(text)
    with pytest.raises(UserError, match=said):
        Recording.open(recording_folder)


def test_truncated_and_missing_files_are_named_and_the_rest_is_usable(recording_folder: Path) -> None:
    path = recording_folder / SECOND
    path.write_bytes(path.read_bytes()[:100])
    (recording_folder / "episode-3000002.parquet").unlink()
    with pytest.warns(UserWarning, match=rf"{SECOND} is truncated \(100 of .*3000002.parquet is missing"):
        recording = Recording.open(recording_folder)
    assert [item.path.name for item in recording.damaged] == [SECOND, "episode-3000002.parquet"]
    assert [recording.load(i).seed for i in range(len(recording))] == [3_000_000]


def test_an_altered_file_is_refused_when_it_is_loaded(recording_folder: Path) -> None:
    alter(recording_folder / SECOND)
    recording = Recording.open(recording_folder)
    with pytest.raises(UserError, match=rf"{SECOND} has been altered.*check .* --set-aside"):
        recording.load(1)
    assert recording.load(2).seed == 3_000_002


def test_a_folder_that_holds_a_recording_is_not_written_to_by_accident(recording_folder: Path) -> None:
    with pytest.raises(UserError, match="already holds a result"):
        begin(recording_folder)


def test_overwrite_replaces_a_recording_when_the_first_new_episode_is_whole(recording_folder: Path) -> None:
    old = {path: path.read_bytes() for path in recording_folder.iterdir()}
    writer = begin(recording_folder, overwrite=True)
    writer.drop(7, -1.0)
    writer.adopt_unlisted()
    assert writer.episodes == []
    assert {path: path.read_bytes() for path in old} == old
    assert writer.add(make_episode(3_000_001, steps=3)) == recording_folder / SECOND
    assert Recording.open(recording_folder).meta["dropped"] == [{"seed": 7, "episode_return": -1.0}]
    writer.add(make_episode(5))
    assert [info.seed for info in Recording.open(recording_folder).episodes] == [5, 3_000_001]
    assert check_recording(recording_folder).problems == []
    names = {path.name for path in recording_folder.iterdir()} - {LOCK}
    assert names == {"episode-0000005.parquet", SECOND, "recording.json"}


def test_overwrite_never_deletes_what_is_no_recording(tmp_path: Path, recording_folder: Path) -> None:
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("years of work")
    with pytest.raises(UserError, match="overwrite leaves it alone"):
        begin(tmp_path, overwrite=True)
    (recording_folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"notes\.txt.*overwrite leaves it alone"):
        begin(recording_folder, overwrite=True)
    assert thesis.exists()
    assert len(list(recording_folder.iterdir())) == 5


def test_resume_goes_on_with_what_is_there(recording_folder: Path) -> None:
    writer = begin(recording_folder, resume=True)
    writer.add(make_episode(3_000_003))
    assert len(Recording.open(recording_folder)) == 4


def test_resume_refuses_another_recipe_and_names_the_difference(tmp_path: Path) -> None:
    begin(tmp_path / "r", recipe={"every_frame": True, "first_seed": 5})
    with pytest.raises(UserError, match="every_frame True instead of False:"):
        begin(tmp_path / "r", recipe={"every_frame": False, "first_seed": 5}, resume=True)


def test_drives_of_several_kinds_are_not_described_as_those_of_the_first(tmp_path: Path) -> None:
    for model, described in (("a", {"model": "a"}), ("a", {"model": "a"}), ("b", None)):
        begin(tmp_path / "r", drive={"model": model}, resume=True).add(
            make_episode(len(list((tmp_path / "r").iterdir())))
        )
        assert Recording.open(tmp_path / "r").meta.get("drive") == described


def test_resume_refuses_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(UserError, match="no recording that could be resumed"):
        begin(tmp_path, resume=True)


def test_resume_adds_an_episode_that_a_crash_left_unlisted(recording_folder: Path) -> None:
    (recording_folder / "episode-3000009.parquet").write_bytes(to_parquet(make_episode(3_000_009)))
    (recording_folder / "episode-3000010.parquet").write_bytes(to_parquet(make_episode(3_000_010, source="udacity")))
    (recording_folder / ".episode-3000011.parquet.77.partial").write_bytes(b"half")
    begin(recording_folder, resume=True)
    assert Recording.open(recording_folder).episodes[-1].seed == 3_000_009
    assert not list(recording_folder.glob("*.partial")) + list(recording_folder.glob(".*.partial"))


def test_an_episode_that_a_crash_left_unlisted_is_read_without_resuming(tmp_path: Path) -> None:
    begin(tmp_path / "r")
    (tmp_path / "r" / "episode-3000009.parquet").write_bytes(to_parquet(make_episode(3_000_009)))
    assert Recording.open(tmp_path / "r").load(0).seed == 3_000_009


def test_resume_sets_a_truncated_file_aside(recording_folder: Path) -> None:
    path = recording_folder / SECOND
    path.write_bytes(b"PAR1")
    with pytest.warns(UserWarning, match="is driven again"):
        writer = begin(recording_folder, resume=True)
    assert [info.seed for info in writer.episodes] == [3_000_000, 3_000_002]
    assert (recording_folder / "damaged" / SECOND).exists()
    # Whoever has noted what was in the damaged file, by its name, shall not take this one for it.
    assert writer.add(make_episode(3_000_001)) == path.with_stem(f"{path.stem}-2")


def test_an_episode_of_another_environment_is_refused(recording_folder: Path) -> None:
    with pytest.raises(UserError, match="recording of 'carracing'"):
        begin(recording_folder, resume=True).add(make_episode(source="udacity"))


def test_a_full_disk_gives_one_sentence_and_loses_nothing(
    recording_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = begin(recording_folder, resume=True)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"no space left on the disk while writing .*--resume"):
        writer.add(make_episode(3_000_005))
    assert len(Recording.open(recording_folder)) == 3
    assert not list(recording_folder.glob(".*.partial"))


@pytest.mark.parametrize(
    ("t_s", "steering", "problem"),
    [([0, 2, 1, 3], [0.0] * 4, "times .* must increase"), ([0, 1, 2, 3], [[0.0, 1.0]] * 4, "columns of shape")],
)
def test_arrays_that_are_no_episode_are_refused_in_a_sentence(tmp_path: Path, t_s, steering, problem: str) -> None:
    frames = np.zeros((4, 8, 8, 3), np.uint8)
    with pytest.raises(UserError, match=f"^this is no episode: .*{problem}.*; no episode was written.$"):
        Recording.from_arrays(frames, t_s, folder=tmp_path / "recording", steering=steering)
    assert not list((tmp_path / "recording").rglob("*.parquet"))


def test_frames_stay_where_their_episode_cannot_be_written(tmp_path: Path) -> None:
    appender = Recording.append_to(tmp_path / "recording")
    for i in range(3):
        appender.append({"frame": np.zeros((8, 8, 3), np.uint8), "t_s": i / 10, "steering": 0.0})
    for meta in ({"score": float("nan")}, {"note": np.zeros(3)}):
        with pytest.raises(UserError, match=r"^this is no episode: "):
            appender.end_episode(**meta)
    assert len(Recording.open(appender.end_episode().parent).load(0)) == 3
    with pytest.raises(UserError, match="steering lies between -1"):
        Recording.from_arrays(np.zeros((2, 8, 8, 3), np.uint8), [0, 1], steering=[25.0, np.nan], folder=tmp_path / "b")


GREY = np.zeros((4, 8, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("frames", "columns", "sentence"),
    [
        ([b"garbage"] * 4, {}, r"^this is no episode: it has an unreadable frame .*; no episode was written\.$"),
        ([*GREY[:2], *GREY[:2, :4]], {}, "^this is no episode: it has an unreadable frame .*frame 2 is"),
        (GREY, {"x_m": [0, 1, np.inf, 2]}, "it has an infinite x_m"),
        (GREY, {"reward": [0, np.nan, 0, 0]}, "^this is no episode: it has rewards that are no numbers"),
        (GREY, {"choice": [0, 1.7, 0, 0]}, "^choice is the number of an action, from 0 on, or -1"),
        (GREY, {"choice": [0, np.nan, 0, 0]}, "^choice is the number of an action"),
        (GREY, {"choice": [0, np.inf, 0, 0]}, "^choice is the number of an action"),
        (GREY, {"expert_choice": [0, -3, 0, 0]}, "^expert_choice is the number of an action"),
        (GREY, {"expert_steering": [0, 25, 0, 0]}, "^expert_steering lies between -1 and 1"),
        (GREY, {"expert_steering": [0, np.nan, 0, 0]}, "^expert_steering lies between -1 and 1"),
        (GREY, {"expert_pedal": [0, 2, 0, 0]}, "^expert_pedal lies between -1 and 1"),
        (GREY, {"steering": ["0", "0", "0", "0"]}, "^steering is not a number in every frame: give one"),
        (GREY, {"throttle": [0, None, 0, 0]}, "^throttle is not a number in every frame"),
        (GREY, {"throttle": 0.5}, "^frames, times and columns do not fit each other: "),
        (4, {}, "^frames, times and columns do not fit each other: "),
    ],
)
def test_what_its_own_check_would_refuse_is_not_written(tmp_path: Path, frames, columns, sentence: str) -> None:
    given = {"steering": np.zeros(4), **columns}
    with pytest.raises(UserError, match=sentence):
        Recording.from_arrays(frames, [0, 1, 2, 3], folder=tmp_path / "recording", **given)
    assert not (tmp_path / "recording").exists()


@pytest.mark.parametrize("seed", [1.5, -5, "7"])
def test_a_seed_is_a_whole_number_from_0_on(tmp_path: Path, seed) -> None:
    appender = Recording.append_to(tmp_path / "recording")
    for i in range(3):
        appender.append({"frame": GREY[0], "t_s": i / 10, "choice": np.float64(i), "expert_choice": i > 1})
    with pytest.raises(UserError, match=f"^an episode's seed is a whole number from 0 on, and {seed!r} is none"):
        appender.end_episode(seed=seed)
    with pytest.raises(UserError, match=r"^this is no episode: "):
        appender.end_episode(note=np.zeros(3))
    assert not (tmp_path / "recording").exists()
    assert appender.end_episode(np.int64(5)).name == "episode-0000005.parquet"
    assert Recording.open(tmp_path / "recording").load(0).expert_choice.tolist() == [0, 0, 1]
    assert check_recording(tmp_path / "recording").problems == []
