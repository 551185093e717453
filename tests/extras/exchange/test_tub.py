"""Tubs of donkeycar's: written and read with donkeycar itself where it is installed, and the way round."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from nacdrive.common.errors import UserError
from nacdrive.datasets.images import encode_jpeg
from nacdrive.datasets.recording import Recording
from nacdrive.extras.exchange import tub
from nacdrive.extras.exchange.tub import export_tub, import_tub
from tests.helpers.exchange import SAMPLE, assert_same_recording, drive, recordings, write


@pytest.fixture
def donkey():
    pytest.importorskip("donkeycar", reason="needs donkeycar (pip install --no-deps donkeycar pyfiglet prettytable)")
    from donkeycar.parts.tub_v2 import Tub

    return Tub


def strangers_tub(folder: Path, records: list[dict], deleted: tuple[int, ...] = ()) -> Path:
    """A tub as a car writes it: one catalog, a record each twentieth of a second."""
    (folder / "images").mkdir(parents=True)
    lines = []
    for i, record in enumerate(records):
        name = f"{i}_cam_image_array_.jpg"
        (folder / "images" / name).write_bytes(encode_jpeg(np.full((12, 16, 3), 10 * i, np.uint8)))
        usual = {"cam/image_array": name, "user/angle": 0.1, "user/throttle": 0.3, "user/mode": "user"}
        usual |= {
            "_index": i,
            "_session_id": "26-01-01_0",
            "_timestamp_ms": 1_700_000_000_000 + 50 * i,
        }
        lines.append(json.dumps({key: value for key, value in (usual | record).items() if value is not None}))
    (folder / "catalog_0.catalog").write_text("\n".join(lines) + "\n")
    catalogs = {"paths": ["catalog_0.catalog"], "current_index": len(records), "max_len": 1000}
    about = [["cam/image_array"], ["image_array"], {}, {"created_at": 0.0}, {**catalogs, "deleted_indexes": [*deleted]}]
    (folder / "manifest.json").write_text("".join(json.dumps(line) + "\n" for line in about))
    return folder


def imported(folder: Path) -> list:
    import_tub(folder, folder.parent / "back", overwrite=True)
    recording = Recording.open(folder.parent / "back")
    return [recording.load(i) for i in range(len(recording))]


@pytest.mark.nightly
def test_the_sample_comes_back_file_for_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tub, "PER_CATALOG", 100)
    made = export_tub(SAMPLE, tmp_path / "tub")
    assert (made.episodes, made.frames) == (3, 647) and len([*tmp_path.glob("tub/catalog_*.catalog")]) == 7
    import_tub(tmp_path / "tub", tmp_path / "back")
    assert_same_recording(SAMPLE, tmp_path / "back")


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(recordings(alike=True))
def test_any_recording_comes_back_as_it_was(episodes):
    with tempfile.TemporaryDirectory() as name:
        folder = write(Path(name) / "recording", episodes, license="CC0-1.0")
        export_tub(folder, Path(name) / "tub")
        import_tub(Path(name) / "tub", Path(name) / "back")
        assert_same_recording(folder, Path(name) / "back")


def test_donkeycar_itself_reads_and_appends_to_an_export(tmp_path, donkey):
    episodes = [drive(sides=True, label=True, steps=5), drive(8, 3, sides=True)]
    export_tub(write(tmp_path / "recording", episodes), tmp_path / "tub")
    theirs = donkey(str(tmp_path / "tub"))
    records = list(theirs)
    assert len(theirs) == len(records) == 8
    steering = np.concatenate([episode.steering for episode in episodes])
    np.testing.assert_array_equal([record["user/angle"] for record in records], steering)
    assert (tmp_path / "tub/images" / records[0]["cam/image_array"]).read_bytes() == episodes[0].frames[0]
    theirs.close()

    theirs = donkey(str(tmp_path / "tub"), inputs=theirs.manifest.inputs, types=theirs.manifest.types)
    theirs.write_record({"cam/image_array": np.zeros((12, 16, 3), np.uint8), "user/angle": 0.5, "user/throttle": 0.2})
    theirs.delete_records([1, 2])
    theirs.close()
    # In the order of their seeds, as a recording keeps them; that of donkeycar's drive is its number.
    theirs, *back = imported(tmp_path / "tub")
    assert (len(theirs), theirs.seed, theirs.driver, theirs.steering[0]) == (1, 3, "donkeycar", 0.5)
    assert [(len(episode), episode.seed, episode.driver) for episode in back] == [
        (1, 7, "geometric"), (2, 7, "geometric"), (3, 8, "geometric"),
    ]  # fmt: skip
    np.testing.assert_array_equal(back[1].t_s, episodes[0].t_s[3:])
    np.testing.assert_array_equal(back[2].brake, episodes[1].brake)
    assert back[1].episode_return == pytest.approx(episodes[0].reward[3:].sum())


def test_what_donkeycar_itself_wrote_is_imported(tmp_path, donkey):
    inputs, types = (
        ["cam/image_array", "user/angle", "user/throttle", "user/mode"],
        ["image_array", "float", "float", "str"],
    )
    theirs = donkey(str(tmp_path / "tub"), inputs=inputs, types=types, max_catalog_len=2)
    frame = np.zeros((12, 16, 3), np.uint8)
    for i in range(5):
        theirs.write_record(dict(zip(inputs, (frame + 20 * i, -0.2 * i, 0.5 - 0.2 * i, "user"), strict=True)))
        theirs.manifest.current_catalog.seekable.file.flush()
    theirs.close()
    records = [json.loads(line) for path in sorted(tmp_path.glob("tub/*.catalog")) for line in path.open()]
    for record in records:
        record["_timestamp_ms"] = 1000 + 50 * record["_index"]
    for number in range(3):
        part = records[2 * number : 2 * number + 2]
        (tmp_path / f"tub/catalog_{number}.catalog").write_text("".join(json.dumps(row) + "\n" for row in part))
    (episode,) = imported(tmp_path / "tub")
    np.testing.assert_allclose(episode.steering, [0, -0.2, -0.4, -0.6, -0.8], rtol=1e-6)
    np.testing.assert_allclose(episode.throttle - episode.brake, [0.5, 0.3, 0.1, -0.1, -0.3], atol=1e-6)
    np.testing.assert_allclose(episode.t_s, 0.05 * np.arange(5))
    assert episode.decoded()[3].mean() == 60 and episode.driver == "donkeycar"


def test_a_drive_ends_with_its_session_a_pause_and_what_was_deleted(tmp_path):
    records = [{} for _ in range(12)]
    records[3] = records[4] = {"_session_id": "26-01-01_1"}
    for i in range(9, 12):
        records[i] = {"_timestamp_ms": 1_700_000_005_000 + 50 * i}
    episodes = imported(strangers_tub(tmp_path / "tub", records, deleted=(6,)))
    assert [len(episode) for episode in episodes] == [3, 2, 1, 2, 3]
    assert [episode.seed for episode in episodes] == [0, 1, 2, 3, 4]
    assert Recording.open(tmp_path / "back").meta["fps"] == 20


def test_an_autopilot_counts_with_what_it_did_and_not_where_nobody_knows(tmp_path):
    pilot = {"pilot/angle": -0.5, "pilot/throttle": 0.9}
    records = [{}, {"user/mode": "local_angle", **pilot}, {"user/mode": "local", **pilot}, {"user/mode": "local"}]
    (episode,) = imported(strangers_tub(tmp_path / "tub", records))
    np.testing.assert_allclose(episode.steering, [0.1, -0.5, -0.5], rtol=1e-6)
    np.testing.assert_allclose(episode.throttle, [0.3, 0.3, 0.9], rtol=1e-6)


def test_a_record_that_was_cut_short_is_left_out_and_times_that_stand_still_are_even(tmp_path):
    folder = strangers_tub(tmp_path / "tub", [{}, {}, {"_timestamp_ms": 1_700_000_000_050}, {}])
    catalog = folder / "catalog_0.catalog"
    catalog.write_text(catalog.read_text()[:-20])
    (episode,) = imported(folder)
    np.testing.assert_allclose(episode.t_s, [0, 0.05, 0.1])


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"user/angle": 4.0}, "steering from .* to 4, and -1 .. 1 is asked for"),
        ({"user/angle": "left"}, "is damaged"),
        ({"cam/image_array": "../../secret.jpg"}, "names the picture '../../secret.jpg'"),
        ({"cam/image_array": "gone.jpg"}, "images/gone.jpg is missing"),
        ({"cam/image_array": 7}, "is damaged"),
        ({"_session_id": None}, "record 2 has no _session_id, which tells when"),
        ({"_timestamp_ms": None}, "record 2 has no _timestamp_ms, which tells when"),
        ({"_timestamp_ms": "noon"}, "is damaged .TypeError"),
    ],
)
def test_a_bad_record_is_named_and_nothing_is_left(tmp_path, record, words):
    folder = strangers_tub(tmp_path / "tub", [{}, {}, record, {}])
    with pytest.raises(UserError, match=words):
        imported(folder)
    assert not (tmp_path / "back").exists() or not any((tmp_path / "back").iterdir())


def test_a_bad_tub_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no donkeycar tub of version 2 .*convert_to_tub_v2\.py\.$"):
        import_tub(tmp_path, tmp_path / "back")
    folder = strangers_tub(tmp_path / "tub", [{}, {}])
    manifest, whole = folder / "manifest.json", (folder / "manifest.json").read_text()
    for text in (whole[:-30], whole.replace("catalog_0.catalog", "/etc/passwd"), "[]\n", ""):
        manifest.write_text(text)
        with pytest.raises(UserError, match=r"manifest\.json is damaged .*: copy the tub again\.$"):
            imported(folder)
    manifest.write_text(whole)
    picture = folder / "images/1_cam_image_array_.jpg"
    picture.write_bytes(encode_jpeg(np.zeros((8, 8, 3), np.uint8)))
    with pytest.raises(UserError, match=r"1_cam_image_array_\.jpg: 8 x 8 pixels instead of 16 x 12"):
        imported(folder)
    (folder / "catalog_0.catalog").write_text("{\n{}\n")
    with pytest.raises(UserError, match=r"catalog_0\.catalog is damaged"):
        imported(folder)
    (folder / "catalog_0.catalog").write_text("")
    with pytest.raises(UserError, match="holds no two records"):
        imported(folder)


def test_a_tub_of_ours_from_which_all_was_deleted_is_no_recording(tmp_path):
    export_tub(SAMPLE, tmp_path / "tub")
    manifest = tmp_path / "tub/manifest.json"
    lines = manifest.read_text().splitlines()
    about = json.loads(lines[4])
    lines[4] = json.dumps(about | {"deleted_indexes": list(range(about["current_index"]))})
    manifest.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match="holds no two records"):
        import_tub(tmp_path / "tub", tmp_path / "back")
