"""LeRobot data sets: the documented layout, the library itself where it is installed, and the way round."""

import io
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from PIL import Image

from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.extras.exchange import lerobot_export
from nacdrive.extras.exchange.lerobot_export import (
    aggregate_feature,
    export_lerobot,
    image_stats,
    number_stats,
    sampled_frames,
)
from nacdrive.extras.exchange.lerobot_import import import_lerobot
from tests.helpers.episodes import make_episode
from tests.helpers.exchange import SAMPLE, assert_same_recording, drive, recordings, write


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lerobot") / "set"
    assert export_lerobot(SAMPLE, folder).frames == 647
    return folder


@pytest.mark.nightly
def test_the_sample_comes_back_file_for_file(exported, tmp_path):
    made = import_lerobot(exported, tmp_path / "back")
    assert (made.episodes, made.frames) == (3, 647)
    assert_same_recording(SAMPLE, tmp_path / "back", frames="bytes")
    written = {path.name: path.read_bytes() for path in (tmp_path / "back").iterdir()}
    assert all(path.read_bytes() == written[path.name] for path in SAMPLE.glob("*.parquet"))
    with pytest.raises(UserError, match="overwrite"):
        import_lerobot(exported, tmp_path / "back")


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(recordings(alike=False))
def test_any_recording_comes_back_as_it_was(episodes):
    with tempfile.TemporaryDirectory() as name:
        folder = write(Path(name) / "recording", episodes, license="CC0-1.0")
        export_lerobot(folder, Path(name) / "set")
        import_lerobot(Path(name) / "set", Path(name) / "back")
        assert_same_recording(folder, Path(name) / "back", frames="bytes")


def test_what_a_recording_lacks_has_no_column(tmp_path):
    folder = write(tmp_path / "recording", [make_episode(steps=4, logits=False)])
    export_lerobot(folder, tmp_path / "set")
    assert "expert.logits" not in json.loads((tmp_path / "set/meta/info.json").read_text())["features"]


def test_the_files_are_those_of_the_documented_layout(exported):
    info = json.loads((exported / "meta/info.json").read_text())
    assert (info["codebase_version"], info["total_episodes"], info["total_frames"]) == ("v3.0", 3, 647)
    assert info["splits"] == {"train": "0:3"}
    assert info["features"]["observation.images.center"]["dtype"] == "image"
    assert info["features"]["observation.images.center"]["shape"] == [96, 96, 3]
    table = pq.read_table(exported / info["data_path"].format(chunk_index=0, file_index=0))
    assert set(table.column_names) == set(info["features"])
    assert table["index"].to_pylist() == list(range(647))
    assert table["episode_index"].to_pylist() == [0] * 187 + [1] * 210 + [2] * 250
    assert [i for i, done in enumerate(table["next.done"].to_pylist()) if done] == [186, 396, 646]
    recording = Recording.open(SAMPLE)
    driven = [
        np.stack([episode.steering, episode.throttle, episode.brake], 1) for episode in map(recording.load, range(3))
    ]
    np.testing.assert_array_equal(np.array(table["action"].to_pylist(), np.float32), np.concatenate(driven))
    picture = table["observation.images.center"][200].as_py()
    pixels = np.asarray(Image.open(io.BytesIO(picture["bytes"])))
    np.testing.assert_array_equal(pixels, recording.load(1).decoded()[13])
    episodes = pq.read_table(exported / "meta/episodes/chunk-000/file-000.parquet")
    assert episodes["dataset_from_index"].to_pylist() == [0, 187, 397]
    assert episodes["dataset_to_index"].to_pylist() == [187, 397, 647]
    assert episodes["length"].to_pylist() == [187, 210, 250]
    stats = json.loads((exported / "meta/stats.json").read_text())
    assert set(stats) == set(info["features"])
    assert np.shape(stats["observation.images.center"]["mean"]) == (3, 1, 1)
    assert stats["action"]["mean"] == pytest.approx(np.concatenate(driven).mean(0), abs=1e-6)
    assert stats["action"]["std"] == pytest.approx(np.concatenate(driven).std(0), abs=1e-6)


def test_data_files_stay_below_their_size_and_are_read_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot_export, "FILE_MB", 0.002)
    monkeypatch.setattr(lerobot_export, "FILES_PER_CHUNK", 2)
    folder = write(tmp_path / "recording", [drive(seed) for seed in range(5)])
    export_lerobot(folder, tmp_path / "set")
    files = sorted(path.relative_to(tmp_path / "set").as_posix() for path in (tmp_path / "set").glob("data/*/*"))
    assert files[:3] == [f"data/chunk-00{i}/file-00{j}.parquet" for i, j in ((0, 0), (0, 1), (1, 0))]
    import_lerobot(tmp_path / "set", tmp_path / "back")
    assert_same_recording(folder, tmp_path / "back", frames="bytes")


def test_jpeg_frames_keep_their_bytes_and_grey_ones_become_rgb(tmp_path):
    grey = io.BytesIO()
    Image.new("L", (16, 12), 77).save(grey, "PNG")
    episode = drive(jpeg=True, sides=True, label=True)
    episode.frames[2] = grey.getvalue()
    folder = write(tmp_path / "recording", [episode])
    export_lerobot(folder, tmp_path / "set")
    import_lerobot(tmp_path / "set", tmp_path / "back")
    assert_same_recording(folder, tmp_path / "back")
    assert Recording.open(tmp_path / "back").load(0).frames[1] == episode.frames[1]


def stranger(exported, tmp_path, change=lambda info: None, columns=lambda table: table):
    """A data set without nacdrive's own files, changed."""
    folder = tmp_path / "stranger"
    for path in exported.rglob("*.*"):
        if path.is_file() and path.name not in ("nacdrive.json", ".nacdrive-result"):
            target = folder / path.relative_to(exported)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    info = json.loads((folder / "meta/info.json").read_text())
    change(info)
    (folder / "meta/info.json").write_text(json.dumps(info))
    data = folder / "data/chunk-000/file-000.parquet"
    pq.write_table(columns(pq.read_table(data)), data)
    return folder


def test_a_strangers_data_set_is_read_by_the_names_of_its_actions(tmp_path):
    folder = write(tmp_path / "recording", [drive(3), drive(9, 5)])
    export_lerobot(folder, tmp_path / "set")

    def change(info):
        info["robot_type"] = "go-kart"
        info["features"]["action"]["names"] = {"motors": ["Steer", "gas", "brake"]}
        camera = info["features"].pop("observation.images.center")
        info["features"]["observation.images.top"] = {**camera, "shape": [3, 12, 16], "names": ["channels", "h", "w"]}

    renamed = {"observation.images.center": "observation.images.top"}
    made = stranger(
        tmp_path / "set", tmp_path, change, lambda t: t.rename_columns([renamed.get(n, n) for n in t.column_names])
    )
    import_lerobot(made, tmp_path / "back")
    back, first = Recording.open(tmp_path / "back", source="go-kart"), drive(3)
    episode = back.load(0)
    np.testing.assert_array_equal(episode.steering, first.steering)
    np.testing.assert_array_equal(episode.brake, first.brake)
    np.testing.assert_array_equal(episode.decoded(), first.decoded())
    np.testing.assert_allclose(episode.t_s, first.t_s, atol=1e-6)
    assert [info.seed for info in back.episodes] == [0, 1]
    assert (episode.choice == -1).all()
    assert episode.expert_logits is None
    assert back.meta["recipe"] == {"imported": "stranger", "format": "lerobot"}
    import_lerobot(made, tmp_path / "named", source="udacity")
    assert Recording.open(tmp_path / "named", source="udacity").episodes


def test_numbers_are_described_as_numpy_describes_them():
    rows = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    rows[3, 1] = np.nan
    stats = number_stats(rows)
    np.testing.assert_allclose(stats["mean"], np.nanmean(rows.astype(float), 0))
    np.testing.assert_allclose(stats["std"], np.nanstd(rows.astype(float), 0))
    np.testing.assert_allclose(stats["q90"], np.nanquantile(rows.astype(float), 0.9, axis=0))
    assert stats["count"].tolist() == [50]
    assert number_stats(np.full(4, np.nan))["mean"].tolist() == [0.0]


def test_images_are_described_as_by_decoding_them_all():
    frames = np.random.default_rng(1).integers(0, 256, (7, 12, 16, 3), dtype=np.uint8)
    stats = image_stats(frames.__getitem__, 7)
    pixels = frames.reshape(-1, 3) / 255
    for name, truth in {
        "mean": pixels.mean(0),
        "std": pixels.std(0),
        "min": pixels.min(0),
        "max": pixels.max(0),
    }.items():
        np.testing.assert_allclose(stats[name].reshape(3), truth, atol=1e-9)
    np.testing.assert_allclose(stats["q10"].reshape(3), np.quantile(pixels, 0.1, axis=0), atol=1 / 255)
    assert sampled_frames(100_000)[-1] == 99_999
    assert len(sampled_frames(20_000)) == 1681


def test_the_whole_has_the_mean_and_spread_of_its_parts_together():
    parts = [np.random.default_rng(i).normal(i, 1 + i, size=(10 + 7 * i, 2)) for i in range(3)]
    whole = aggregate_feature([number_stats(part) for part in parts])
    np.testing.assert_allclose(whole["mean"], np.concatenate(parts).mean(0))
    np.testing.assert_allclose(whole["std"], np.concatenate(parts).std(0))
    assert whole["count"].tolist() == [51]


def test_lerobot_itself_opens_an_export(exported):
    library = pytest.importorskip("lerobot.datasets.lerobot_dataset", reason="needs the real LeRobot")
    dataset = library.LeRobotDataset("local/sample", root=exported, delta_timestamps={"action": [0, 0.08]})
    assert (len(dataset), dataset.num_episodes, dataset.fps) == (647, 3, 12.5)
    recording, start = Recording.open(SAMPLE), 0
    for index in range(3):
        episode = recording.load(index)
        frames = episode.decoded()
        for i in (0, 57, len(episode) - 1):
            row = dataset[start + i]
            seen = np.round(row["observation.images.center"].numpy() * 255).astype(np.uint8)
            np.testing.assert_array_equal(seen.transpose(1, 2, 0), frames[i])
            assert row["action"][0].tolist() == [episode.steering[i], episode.throttle[i], episode.brake[i]]
            assert row["next.reward"].item() == episode.reward[i]
            assert row["task"] == "drive along the road (carracing)"
        start += len(episode)


def test_the_statistics_are_those_of_lerobot_itself(exported):
    theirs = pytest.importorskip("lerobot.datasets.compute_stats", reason="needs the real LeRobot")
    table = pq.read_table(exported / "data/chunk-000/file-000.parquet")[:187]
    action = np.array(table["action"].to_pylist(), np.float32)
    spread = np.random.default_rng(0).normal(size=(20_000, 3)).astype(np.float32)
    for rows in (action, spread):
        ours, reference = number_stats(rows), theirs.get_feature_stats(rows, axis=0, keepdims=False)
        for name in ("min", "max", "mean", "std", "count"):
            np.testing.assert_allclose(ours[name], reference[name], atol=1e-5, err_msg=name)
    for name in ("q01", "q10", "q50", "q90", "q99"):
        np.testing.assert_allclose(ours[name], reference[name], atol=0.05, err_msg=name)
    frames = Recording.open(SAMPLE).load(0).decoded()
    ours = image_stats(frames.__getitem__, len(frames))
    chosen = frames[sampled_frames(len(frames))].transpose(0, 3, 1, 2)
    # In its own uint8, as LeRobot 0.4.4 hands them over, the squares wrap and the standard deviation is 0.
    reference = theirs.get_feature_stats(chosen.astype(np.float64), axis=(0, 2, 3), keepdims=True)
    for name in ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99"):
        np.testing.assert_allclose(ours[name], reference[name][0] / 255, atol=1.01 / 255, err_msg=name)
    assert ours["count"].tolist() == reference["count"].tolist()


def test_a_data_set_that_lerobot_wrote_is_imported(tmp_path):
    library = pytest.importorskip("lerobot.datasets.lerobot_dataset", reason="needs the real LeRobot")
    frames = np.random.default_rng(2).integers(0, 256, (6, 48, 64, 3), dtype=np.uint8)
    features = {
        "observation.images.front": {"dtype": "image", "shape": (48, 64, 3), "names": ["height", "width", "channels"]},
        "action": {"dtype": "float32", "shape": (3,), "names": ["steering", "throttle", "brake"]},
    }
    made = library.LeRobotDataset.create("local/x", fps=10, features=features, root=tmp_path / "set", use_videos=False)
    for length in (2, 4):
        for frame in frames[:length]:
            action = np.array([-0.5, 0.25, 0], np.float32)
            made.add_frame({"observation.images.front": frame, "action": action, "task": "drive"})
        made.save_episode()
    made.finalize()
    import_lerobot(tmp_path / "set", tmp_path / "back", source="udacity")
    back = Recording.open(tmp_path / "back", source="udacity")
    assert [len(back.load(i)) for i in range(2)] == [2, 4]
    np.testing.assert_array_equal(back.load(1).decoded(), frames[:4])
    assert back.load(1).steering.tolist() == [-0.5] * 4
    np.testing.assert_allclose(back.load(1).t_s, [0, 0.1, 0.2, 0.3], atol=1e-6)
    assert back.load(0).meta == {"task": "drive"}


@pytest.mark.parametrize("shape", [3, None])
def test_a_shape_that_is_no_list_is_a_damaged_description(tmp_path, shape):
    export_lerobot(write(tmp_path / "recording", [drive(3)]), tmp_path / "set")
    made = stranger(tmp_path / "set", tmp_path, lambda info: info["features"]["action"].update(shape=shape))
    with pytest.raises(UserError, match=r"info\.json is damaged \(TypeError"):
        import_lerobot(made, tmp_path / "back")
