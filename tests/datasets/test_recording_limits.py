"""Recordings by the details: what is just allowed, what is said, what stays when something is in the way."""

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.datasets import manifest as manifest_module
from nacdrive.datasets.check import check_recording, episode_problem, keep_sound
from nacdrive.datasets.episode import content_problem
from nacdrive.datasets.episode_file import NotAnEpisodeError, read_header, to_parquet
from nacdrive.datasets.images import decode_frames, encode_png
from nacdrive.datasets.manifest import (
    EpisodeInfo,
    check_license,
    check_types,
    is_own_card,
    new_manifest,
    own_files,
    read_manifest,
    sign_card,
    size_problem,
    unlisted_episodes,
    with_license,
)
from nacdrive.datasets.recording import Recording, duplicates_sentence, merge_recordings, unique_episodes
from nacdrive.datasets.staging import episode_names, header_of, manifest_of, staged_folder, write_recording
from tests.helpers.episodes import begin, make_episode
from tests.helpers.exchange import drive, write

FIRST, SECOND = "episode-3000000.parquet", "episode-3000001.parquet"


# ---------------------------------------------------------------- episodes


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"frames": []}, "at least one frame"),
        ({"t_s": np.arange(5) * 0.1}, r"6 frames cannot have columns of shape \{'t_s': \(5,\)\}"),
        ({"reward": np.zeros((6, 1))}, r"'reward': \(6, 1\)"),
        ({"expert_logits": np.zeros((5, 5))}, r"'expert_logits': \(5, 5\)"),
        ({"expert_logits": np.zeros(6)}, r"'expert_logits': \(6,\)"),
        ({"expert_steering": np.zeros(7)}, r"'expert_steering': \(7,\)"),
        ({"side_frames": {"left": [b""] * 5}}, r"'left': \(5,\)"),
        ({"t_s": np.zeros(6)}, "must increase"),
        ({"t_s": np.array([0, 1, 2, 3, 4, np.inf])}, "must increase"),
        ({"t_s": -np.arange(6.0)}, "must increase"),
    ],
)
def test_an_episode_that_cannot_be_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        replace(make_episode(), **changes)


def test_the_label_is_the_experts_steering_where_it_is_known():
    episode = make_episode()
    assert episode.label is episode.steering
    labelled = replace(episode, expert_steering=np.full(6, 0.25))
    assert labelled.label.tolist() == [0.25] * 6 and labelled.label.dtype == np.float32
    assert repr(episode).startswith("Episode(carracing seed 3000000, driver geometric, 6 frames over 0.4 s, return ")
    assert repr(replace(episode, expert_logits=None)).endswith("expert_logits None)")


def test_a_fingerprint_is_of_frames_and_times_alone():
    episode = make_episode()
    digest = hashlib.sha256(episode.t_s.tobytes())
    for frame in episode.frames:
        digest.update(hashlib.sha256(frame).digest())
    assert episode.fingerprint == digest.hexdigest() == replace(episode, seed=5, steering=np.zeros(6)).fingerprint
    assert replace(episode, t_s=episode.t_s + 1).fingerprint != episode.fingerprint
    assert replace(episode, frames=episode.frames[::-1]).fingerprint != episode.fingerprint


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        (None, "no recording of nacdrive"),
        ({b"pandas": b""}, "no recording of nacdrive"),
        ({b"nacdrive": b"{"}, "unreadable nacdrive metadata"),
        ({b"nacdrive": b"[]"}, "unreadable nacdrive metadata"),
        ({b"nacdrive": b"{}"}, "unreadable nacdrive metadata"),
        ({b"nacdrive": b'{"schema_version": 2}'}, r"newer nacdrive \(schema 2; this one reads up to 1\)"),
    ],
)
def test_metadata_that_are_not_ours_are_told(metadata, said):
    with pytest.raises(NotAnEpisodeError, match=said):
        read_header(metadata)
    assert read_header({b"nacdrive": b'{"schema_version": 1, "a": 2}'}) == {"schema_version": 1, "a": 2}


def test_frames_of_another_size_are_named_by_their_number():
    frames = [encode_png(np.zeros((4, 6, 3), np.uint8))] * 2
    assert decode_frames(frames).shape == (2, 4, 6, 3)
    with pytest.raises(ValueError, match=r"frame 2 is \[4, 7, 3\] where frame 0 is \[4, 6, 3\]"):
        decode_frames([*frames, encode_png(np.zeros((4, 7, 3), np.uint8))])


# ---------------------------------------------------------------- recording.json


@pytest.mark.parametrize("name", ["MIT", "CC-BY-4.0", "cc0-1.0", "a", "a" * 64, "GPL-2.0+"])
def test_an_identifier_of_a_licence(name):
    assert check_license(name) == name


@pytest.mark.parametrize("name", ["", "-MIT", "a" * 65, "CC BY", "MIT\n", "ü"])
def test_no_identifier_of_a_licence(name):
    with pytest.raises(UserError, match="is no identifier of a licence"):
        check_license(name)


def test_a_long_identifier_is_quoted_cut_short():
    with pytest.raises(UserError, match=f"--license '{'a' * 80}' is no"):
        check_license("a" * 90)


def test_a_licence_stays_once_it_is_given(tmp_path):
    bare = {"a": 1}
    assert with_license(bare, None, tmp_path) is bare and with_license(bare, "MIT", tmp_path) == {
        **bare,
        "license": "MIT",
    }
    under = {"license": "MIT"}
    assert with_license(under, "MIT", tmp_path) is under and with_license(under, None, tmp_path) is under
    with pytest.raises(UserError, match=r"is under MIT, not CC0-1.0"):
        with_license(under, "CC0-1.0", tmp_path)


MANIFEST = {"source": "x", "fps": 12.5, "expert": "e", "recipe": {}, "dropped": []}


@pytest.mark.parametrize(
    "changed", [{"fps": 1}, {"fps": 1e-9}, {"dropped": [{"seed": 1, "episode_return": 2}]}, {"license": "MIT"}]
)
def test_a_manifest_as_it_is_written(changed):
    check_types({**MANIFEST, **changed})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"source": 3}, "source is no str"),
        ({"expert": None}, "expert is no str"),
        ({"recipe": []}, "recipe is no dict"),
        ({"dropped": {}}, "dropped is no list"),
        *(({"fps": value}, "fps is ") for value in (0, -1, True, "12", math.inf, math.nan, None)),
        ({"license": "a b"}, "license is 'a b'"),
        ({"license": 3}, "license is 3"),
    ],
)
def test_a_manifest_of_other_types(changed, said):
    with pytest.raises(ValueError, match=said):
        check_types({**MANIFEST, **changed})


def test_a_schema_is_a_whole_number_up_to_ours(recording_folder):
    path = recording_folder / "recording.json"
    manifest = json.loads(path.read_text())
    for schema, readable in ((1, True), (0, True), (2, False), ("1", False), (None, False)):
        path.write_text(json.dumps({**manifest, "schema_version": schema}))
        if readable:
            assert len(read_manifest(recording_folder)[1]) == 3
        else:
            with pytest.raises(UserError, match=f"has schema {schema}, and this nacdrive reads up to 1"):
                read_manifest(recording_folder)


def test_what_is_listed_of_an_episode_is_what_it_is(recording_folder):
    path = recording_folder / FIRST
    data, episode = path.read_bytes(), make_episode(3_000_000)
    info = read_manifest(recording_folder)[1][0]
    assert info == EpisodeInfo.of(path, episode, data)
    assert (info.steps, info.seed, info.driver, info.size_bytes) == (6, 3_000_000, "geometric", len(data))
    assert info.duration_s == pytest.approx(0.4) and info.sha256 == hashlib.sha256(data).hexdigest()
    assert EpisodeInfo.from_json(recording_folder, info.to_json()) == info


@pytest.mark.parametrize(
    ("length", "said"), [(-1, "is truncated (9 of 10 bytes)"), (0, None), (1, "11 bytes instead of 10")]
)
def test_a_file_of_another_length_is_told(tmp_path, length, said):
    path = tmp_path / "file"
    info = EpisodeInfo(path, 1, 1, 0.0, 0.0, "d", 10, "")
    assert size_problem(info) == "is missing"
    path.write_bytes(bytes(10 + length))
    found = size_problem(info)
    assert found is None if said is None else said in str(found)


def test_a_card_is_ours_until_somebody_edits_it(tmp_path):
    path = tmp_path / "README.md"
    assert not is_own_card(path)
    path.write_text(sign_card("# A card\n\n\n"))
    assert is_own_card(path) and path.read_text().startswith("# A card\n\n<!-- nacdrive recordings card ")
    path.write_text(path.read_text().replace("A card", "My card"))
    assert not is_own_card(path)
    path.write_text(sign_card("# A card") + "more\n")
    assert not is_own_card(path)
    path.write_bytes(b"\xff\xfe")
    assert not is_own_card(path)


def test_only_our_own_episodes_are_taken_up_unlisted(recording_folder):
    listed = read_manifest(recording_folder)[1]
    (recording_folder / "episode-0000001.parquet").write_bytes(b"PAR1")
    (recording_folder / "episode-0000002.parquet").write_bytes(to_parquet(make_episode(2, source="udacity")))
    (recording_folder / "episode-0000003.parquet").write_bytes(to_parquet(make_episode(3)))
    assert [info.seed for info in unlisted_episodes(recording_folder, "carracing", listed)] == [3]
    assert [info.seed for info in unlisted_episodes(recording_folder, "udacity", listed)] == [2]


# ---------------------------------------------------------------- writing


def test_a_recording_says_who_drove_what(tmp_path):
    writer = begin(tmp_path / "r", recipe={"beta": 1}, license="MIT")
    writer.drop(9, -3.5)
    writer.drop(4, 1.0)
    writer.drop(9, -2.5)
    manifest = json.loads((tmp_path / "r" / "recording.json").read_text())
    assert manifest["dropped"] == [{"seed": 4, "episode_return": 1.0}, {"seed": 9, "episode_return": -2.5}]
    assert writer.dropped == {4: 1.0, 9: -2.5}
    assert {
        name: manifest[name] for name in ("kind", "schema_version", "source", "fps", "expert", "recipe", "license")
    } == {
        "kind": "nacdrive recording",
        "schema_version": 1,
        "source": "carracing",
        "fps": 12.5,
        "expert": "geometric",
        "recipe": {"beta": 1},
        "license": "MIT",
    }
    assert "license" not in new_manifest(source="x", fps=1.0, expert="e", recipe={})


def test_a_third_drive_of_a_seed_gets_a_third_file(tmp_path):
    writer = begin(tmp_path / "r")
    assert [writer.add(make_episode(5)).name for _ in range(3)] == [
        "episode-0000005.parquet",
        "episode-0000005-2.parquet",
        "episode-0000005-3.parquet",
    ]


def test_overwriting_and_going_on_contradict_each_other(tmp_path):
    with pytest.raises(UserError, match="contradict each other"):
        begin(tmp_path / "r", overwrite=True, resume=True)
    assert not (tmp_path / "r").exists()


def test_a_folder_of_files_is_told_from_one_of_a_recording(tmp_path, recording_folder):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("mine")
    with pytest.raises(UserError, match="already holds files: give another folder"):
        begin(tmp_path / "mine")
    with pytest.raises(UserError, match="already holds a result: give --resume, --overwrite, or another folder"):
        begin(recording_folder)


def test_a_file_that_goes_while_a_recording_is_replaced_is_no_failure(recording_folder, monkeypatch):
    real = manifest_module._own_files

    def gone(folder):
        own = real(folder)
        own[0].unlink(missing_ok=True)
        return own

    monkeypatch.setattr(manifest_module, "_own_files", gone)
    begin(recording_folder, overwrite=True).add(make_episode(5))
    assert {path.name for path in recording_folder.iterdir()} == {"episode-0000005.parquet", "recording.json"}


def test_replacing_a_recording_takes_what_was_set_aside_along(recording_folder):
    (recording_folder / SECOND).write_bytes(b"PAR1")
    keep_sound(recording_folder)
    assert (recording_folder / "damaged" / SECOND).exists()
    begin(recording_folder, overwrite=True).add(make_episode(5))
    assert not (recording_folder / "damaged").exists()


def test_a_foreign_file_among_those_set_aside_is_foreign_too(recording_folder):
    (recording_folder / SECOND).write_bytes(b"PAR1")
    keep_sound(recording_folder)
    for name in ("d.txt", "c.txt", "b.txt", "a.txt"):
        (recording_folder / "damaged" / name).write_text("mine")
    with pytest.raises(
        UserError, match=r"holds files that are no recording \(a.txt, b.txt, c.txt\), so --overwrite leaves"
    ):
        own_files(recording_folder)
    assert own_files(recording_folder, refuse=False) == []
    assert (recording_folder / "damaged" / "d.txt").exists()


def test_episodes_without_their_list_are_no_recording(tmp_path):
    tmp_path.joinpath(FIRST).write_bytes(to_parquet(make_episode()))
    with pytest.raises(UserError, match=r"holds no recording.json, so --overwrite leaves it alone"):
        own_files(tmp_path)


# ---------------------------------------------------------------- reading


def test_episodes_come_in_order_of_seeds_whatever_their_files_are_called(tmp_path):
    writer = begin(tmp_path / "r")
    for seed in (20_000_000, 3):
        writer.add(make_episode(seed))
    recording = Recording.open(tmp_path / "r")
    assert [info.seed for info in recording.episodes] == [3, 20_000_000]
    assert repr(recording).endswith("carracing, expert geometric, 2 episodes, 12 frames at 12.5 a second)")


def test_a_recording_of_which_nothing_is_left_says_why(recording_folder, tmp_path):
    for path in recording_folder.glob("episode-*.parquet"):
        path.unlink()
    with (
        pytest.warns(UserWarning, match="Going on with the other 0"),
        pytest.raises(UserError, match="no usable episode"),
    ):
        Recording.open(recording_folder)
    begin(tmp_path / "empty")
    with pytest.raises(UserError, match="no complete episode yet"):
        Recording.open(tmp_path / "empty")


def test_how_often_an_episode_was_given(recording_folder):
    recording = Recording.open(recording_folder)
    assert unique_episodes([recording]) == [(recording, 0), (recording, 1), (recording, 2)]
    with pytest.warns(UserWarning, match="3 episodes were given twice and are used once"):
        assert unique_episodes([recording, recording]) == [(recording, 0), (recording, 1), (recording, 2)]
    assert duplicates_sentence(1) == "an episode was given more than once and is used once."
    assert duplicates_sentence(2) == "2 episodes were given twice and are used once."


# ---------------------------------------------------------------- checking


@pytest.mark.parametrize(
    "changes",
    [
        {"steering": np.array([-1, 1, 0, 0, 0, 0])},
        {"throttle": np.array([0, 1, 0, 0, 0, 0]), "brake": np.array([1, 0, 0, 0, 0, 0])},
        {"expert_choice": np.full(6, 4)},
        {"expert_choice": np.full(6, -1)},
        {"expert_logits": None, "expert_choice": np.full(6, 99)},
        {"speed_mps": np.full(6, np.nan)},
    ],
)
def test_the_ends_of_the_ranges_are_possible(changes):
    assert content_problem(replace(make_episode(), **changes)) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steering": np.full(6, -1.001)}, "steers beyond -1 .. 1"),
        ({"expert_steering": np.full(6, 1.001)}, "steers beyond -1 .. 1"),
        ({"steering": np.full(6, np.nan)}, "steers beyond -1 .. 1"),
        ({"throttle": np.full(6, 1.001)}, "has a throttle outside 0 .. 1"),
        ({"brake": np.full(6, 1.001)}, "has a brake outside 0 .. 1"),
        ({"brake": np.full(6, -0.001)}, "has a brake outside 0 .. 1"),
        ({"reward": np.full(6, np.nan)}, "has rewards that are no numbers"),
        ({"expert_logits": np.full((6, 5), np.nan)}, "has labels that do not fit their logits"),
        ({"expert_choice": np.full(6, 5)}, "has labels that do not fit their logits"),
        ({"side_frames": {"left": [b"?"] * 6}}, "has an unreadable frame"),
    ],
)
def test_what_is_beyond_them_is_not(changes, said):
    assert str(content_problem(replace(make_episode(), **changes))).startswith(said)


def test_a_file_of_another_episode_is_told_by_its_seed_and_length(recording_folder):
    path = recording_folder / FIRST
    for episode in (make_episode(3_000_000, 7), make_episode(5, 6)):
        data = to_parquet(episode)
        path.write_bytes(data)
        listed = EpisodeInfo.of(path, make_episode(3_000_000), data)
        said = f"is seed {episode.seed} with {len(episode)} frames, but is listed as 3000000 with 6"
        assert episode_problem(listed, "carracing") == said


def test_problems_come_in_order_of_their_names(recording_folder):
    (recording_folder / SECOND).write_bytes(b"PAR1")
    for name in ("zebra.txt", "apple.txt", ".hidden", "README.md"):
        (recording_folder / name).write_text("?")
    (recording_folder / "folder").mkdir()
    result = check_recording(recording_folder)
    assert [problem.path.name for problem in result.problems] == ["apple.txt", SECOND, "zebra.txt"]
    assert [info.seed for info in result.sound] == [3_000_000, 3_000_002]


def test_a_missing_file_is_not_moved(recording_folder):
    (recording_folder / SECOND).unlink()
    assert keep_sound(recording_folder)[1] == []
    assert len(read_manifest(recording_folder)[1]) == 2


# ---------------------------------------------------------------- merging


def test_a_merge_says_where_its_episodes_came_from(tmp_path):
    one = write(tmp_path / "one", [drive(1), drive(2)], expert="ppo", recipe={"a": 1}, license="MIT")
    two = write(tmp_path / "two", [drive(2), drive(3, source="udacity")], expert="pid", recipe={"b": 2}, license="MIT")
    made = merge_recordings([one, two, one], tmp_path / "out")
    assert made == (3, 3)
    meta = Recording.open(tmp_path / "out").meta
    assert (meta["expert"], meta["license"], meta["fps"]) == ("ppo + pid", "MIT", 12.5)
    assert meta["recipe"] == {
        "merged": [
            {"expert": "ppo", "recipe": {"a": 1}},
            {"expert": "pid", "recipe": {"b": 2}},
            {"expert": "ppo", "recipe": {"a": 1}},
        ]
    }


@pytest.mark.parametrize(("key", "value"), [("source", "carracing"), ("fps", 50.0)])
def test_recordings_of_two_kinds_are_not_merged(tmp_path, key, value):
    one = write(tmp_path / "one", [drive(1)])
    options = {key: value}
    two = write(tmp_path / "two", [drive(2, source=options.pop("source", "udacity"))], **options)
    with pytest.raises(UserError, match=f"two has {key} {value} and .*one has"):
        merge_recordings([one, two], tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- whole or not at all


def test_files_that_keep_their_order_by_name():
    assert episode_names([7, 3]) == ["episode-0000007.parquet", "episode-0000003.parquet"]
    assert episode_names([3, 3]) == ["episode-0000003-2.parquet", "episode-0000003.parquet"]
    many = episode_names([1] * 12)
    assert many == sorted(many) and len(set(many)) == 12 and "episode-0000001-12.parquet" in many
    assert "episode-0000001-13.parquet" not in many and "episode-0000001-1.parquet" not in many


def test_what_a_recording_says_of_itself_travels(recording_folder):
    meta = Recording.open(recording_folder).meta
    header = header_of({**meta, "license": "MIT"})
    assert set(header) == {"source", "fps", "expert", "recipe", "dropped", "versions", "license"}
    assert "license" not in header_of(meta)
    manifest = manifest_of({**header, "versions": {"nacdrive": "0.1"}, "dropped": [{"seed": 1, "episode_return": 0}]})
    assert (manifest["versions"], manifest["license"], len(manifest["dropped"])) == ({"nacdrive": "0.1"}, "MIT", 1)
    for broken in ({**header, "fps": "fast"}, {k: v for k, v in header.items() if k != "recipe"}):
        with pytest.raises(UserError, match="what the data set says of its recording is damaged"):
            manifest_of(broken)


def test_the_file_that_makes_a_data_set_comes_last(tmp_path, monkeypatch):
    moved = []
    real = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, target: (moved.append(Path(target).name), real(self, target))[1])
    with staged_folder(tmp_path / "out", overwrite=False) as staging:
        for name in ("z.bin", "meta/info.json", "a.bin"):
            (staging / name).parent.mkdir(exist_ok=True)
            (staging / name).write_text(name)
    placed = [name for name in moved if name in ("z.bin", "info.json", "a.bin")]
    assert placed == ["a.bin", "z.bin", "info.json"]
    assert (tmp_path / "out/meta/info.json").read_text() == "meta/info.json"


def test_a_whole_recording_is_written_and_its_list_last(tmp_path, monkeypatch):
    header = {"source": "udacity", "fps": 12.5, "expert": "e", "recipe": {}}
    told = []
    made = write_recording(tmp_path / "out", header, [1, 1], [drive(1, 3), drive(1, 2)], progress=told.append)
    assert (made, told) == ((2, 5), [3, 5])
    assert [len(Recording.open(tmp_path / "out").load(i)) for i in range(2)] == [3, 2], "in the order given"
    for options, words in (({}, "already holds a result: give --overwrite or another"), ({"overwrite": True}, None)):
        if words:
            with pytest.raises(UserError, match=words):
                write_recording(tmp_path / "out", header, [5], [drive(5)], **options)
        else:
            assert write_recording(tmp_path / "out", header, [5], [drive(5)], **options) == (1, 4)
    assert [info.seed for info in Recording.open(tmp_path / "out").episodes] == [5]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("mine")
    with pytest.raises(UserError, match="already holds files: give another --out"):
        write_recording(tmp_path / "mine", header, [5], [drive(5)])
    with pytest.raises(UserError, match=r"a.txt"):
        write_recording(tmp_path / "mine", header, [5], [drive(5)], overwrite=True)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["a.txt"]
