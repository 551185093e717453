"""What files of strangers may just ask for, what their numbers mean, and the statistics that LeRobot carries."""

import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from nacdrive.common import foreign_json
from nacdrive.common.errors import UserError, first_line
from nacdrive.common.foreign_json import parse_object, read_object
from nacdrive.datasets.images import check_size, decode_image, encode_jpeg, encode_png, image_header
from nacdrive.datasets.recording import Recording
from nacdrive.extras.exchange import lerobot_export, limits
from nacdrive.extras.exchange.lerobot_export import (
    Layout,
    aggregate,
    export_lerobot,
    hub_feature,
    image_stats,
    number_stats,
    sampled_frames,
)
from nacdrive.extras.exchange.lerobot_import import (
    LeRobotSet,
    action_columns,
    camera_features,
    check_version,
    episode_row,
    image_shape,
    import_lerobot,
)
from nacdrive.extras.exchange.limits import (
    as_rgb,
    check_range,
    clock,
    columns_of_action,
    damaged_parquet,
    split_actions,
)
from tests.helpers.exchange import drive, write

CENTER = "observation.images.center"


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize("size", [(1, 1), (8192, 1), (1, 8192), (2048, 8192), (4096, 4096)])
def test_a_frame_may_be_as_large_as_any_camera_makes_them(size):
    check_size(*size)


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5), (8193, 1), (1, 8193), (2049, 8192), (4096, 4097)])
def test_a_frame_beyond_that_is_none(size):
    with pytest.raises(ValueError, match=f"{size[1]} x {size[0]} pixels are no frame"):
        check_size(*size)


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def encoded(mode, kind, **options):
    buffer = io.BytesIO()
    Image.new(mode, (6, 4), **options).save(buffer, kind)
    return buffer.getvalue()


def test_the_header_of_an_image_tells_its_size_and_mode():
    assert image_header(encoded("RGB", "PNG")) == (4, 6, "RGB")
    assert image_header(encoded("L", "JPEG")) == (4, 6, "L")
    for data in (b"", b"\x89PNG", encoded("RGB", "BMP"), encoded("RGB", "GIF")):
        with pytest.raises(ValueError, match="not a readable image: no PNG or JPEG"):
            image_header(data)
    with pytest.raises(ValueError, match="more pixels than any frame"):
        image_header(png(30_000, 30_000))
    with pytest.raises(ValueError, match="9000 x 10 pixels are no frame"):
        image_header(png(9000, 10))


def test_a_colour_image_keeps_its_bytes_and_a_grey_one_its_pixels():
    colour, grey = encoded("RGB", "JPEG", color=(9, 200, 30)), encoded("L", "PNG", color=77)
    assert as_rgb(colour, (4, 6)) == colour
    assert (decode_image(as_rgb(grey, (4, 6))) == 77).all() and as_rgb(grey, (4, 6)) != grey
    for size in ((4, 7), (5, 6), (6, 4)):
        with pytest.raises(ValueError, match=f"6 x 4 pixels instead of {size[1]} x {size[0]}"):
            as_rgb(colour, size)


def test_a_description_is_read_up_to_its_limit(tmp_path, monkeypatch):
    path = tmp_path / "info.json"
    path.write_text('{"a": 1}')
    monkeypatch.setattr(foreign_json, "MAX_JSON_BYTES", 8)
    assert read_object(path) == {"a": 1}
    monkeypatch.setattr(foreign_json, "MAX_JSON_BYTES", 7)
    with pytest.raises(UserError, match="longer than 0 MiB"):
        read_object(path)
    assert limits.MAX_FRAMES == 10**8 and limits.MAX_LIST == 4096
    path.write_text("[1]")
    with pytest.raises(UserError, match=r"info.json holds no JSON object"):
        read_object(path)


@pytest.mark.parametrize("text", ["[1]", "3", "{", "[" * 100_000, None])
def test_a_text_that_is_no_object_is_refused(text):
    with pytest.raises(ValueError):
        parse_object(text)


def test_what_is_quoted_of_a_text_is_forty_characters():
    with pytest.raises(ValueError, match="^'" + r"\[0, " + "0, " * 12 + "' is no JSON object$"):
        parse_object(json.dumps([0] * 50))


def test_the_first_line_of_a_long_error_is_cut_short():
    assert first_line(ValueError("a\nb")) == "a" and first_line(ValueError()) == "ValueError"
    with pytest.raises(UserError, match=rf"\({'x' * 160}\):"), damaged_parquet(Path("file"), ValueError):
        raise ValueError("x" * 200)


@pytest.mark.parametrize(("rows", "most", "read"), [(3, 12, True), (3, 11, False)])
def test_a_column_may_hold_so_many_numbers_a_row(tmp_path, monkeypatch, rows, most, read):
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"a": pa.array([[1.0, 2.0, 3.0, 4.0]] * rows)}), path)
    monkeypatch.setattr(limits, "MAX_LIST", most // rows)
    if read:
        assert limits.open_parquet(path).metadata.num_rows == rows
    else:
        with pytest.raises(UserError, match=r"holds more in 'a.*' than a recording can: not read"):
            limits.open_parquet(path)


def test_a_column_may_be_so_many_bytes(tmp_path, monkeypatch):
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"a": pa.array(range(100))}), path)
    size = pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size
    monkeypatch.setattr(limits, "MAX_COLUMN_BYTES", size)
    limits.open_parquet(path)
    monkeypatch.setattr(limits, "MAX_COLUMN_BYTES", size - 1)
    with pytest.raises(UserError, match="not read"):
        limits.open_parquet(path)


# ---------------------------------------------------------------- what strangers' numbers mean


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["steering", "throttle", "brake"], {"steering": 0, "throttle": 1, "brake": 2}),
        (["Gas", "STEER"], {"steering": 1, "throttle": 0}),
        (["brake_pedal", "steering_angle"], {"steering": 1, "brake": 0}),
        (["steering_wheel"], {"steering": 0}),
        (["accelerator", "steer", "braking"], {"steering": 1, "throttle": 0, "brake": 2}),
        (["throttle", "brake"], None),
        (["steering", "steer"], None),
        (["steering", "horn"], None),
        ([], None),
    ],
)
def test_actions_are_known_by_their_names(names, found):
    assert columns_of_action(names) == found


def test_numbers_without_a_name_are_nought():
    rows, columns = np.array([[0.5, -0.25], [0.1, 0.2]]), {"throttle": 0, "steering": 1}
    steering, throttle, brake = split_actions(rows, columns).values()
    assert (steering.tolist(), throttle.tolist(), brake.tolist()) == ([-0.25, 0.2], [0.5, 0.1], [0.0, 0.0])
    assert split_actions(np.array([0.5, 1.0]), {"steering": 0})["steering"].tolist() == [0.5, 1.0]
    for wrong in (np.zeros((2, 3)), np.zeros((2, 1))):
        with pytest.raises(ValueError, match=f"actions of {wrong.shape[1]} numbers instead of 2"):
            split_actions(wrong, columns)


def test_the_ends_of_a_range_are_in_it():
    ends = np.array([0.0, 1.0])
    check_range(np.array([-1.0, 1.0]), ends, ends)
    for name, place in (("steering", 0), ("throttle", 1), ("brake", 2)):
        for wrong in (-1.01, 1.01, np.nan):
            values = [np.zeros(2), np.zeros(2), np.zeros(2)]
            values[place] = np.array([0.5, wrong])
            low = -1 if name == "steering" else 0
            with pytest.raises(ValueError, match=rf"has a {name} from .* and {low} .. 1 is asked for"):
                check_range(*values)
    with pytest.raises(ValueError, match=r"throttle from -0.5 to 0.25"):
        check_range(np.zeros(2), np.array([-0.5, 0.25]), np.zeros(2))


@pytest.mark.parametrize("times", [[0.0, 0.0], [1.0, 0.5], [0.0, np.nan], [0.0, np.inf]])
def test_a_clock_that_does_not_run_is_replaced_by_an_even_one(times):
    assert clock(np.array(times), 4.0).tolist() == [0.0, 0.25]
    assert clock(np.array([5, 7]), 4.0).tolist() == [5.0, 7.0]


# ---------------------------------------------------------------- statistics


@pytest.mark.parametrize(
    ("count", "samples"),
    [(1, 1), (50, 50), (100, 100), (101, 100), (464, 100), (465, 100), (500, 105), (10_000, 1000), (10**6, 10_000)],
)
def test_about_the_three_quarter_power_of_the_frames_is_looked_at(count, samples):
    chosen = sampled_frames(count)
    assert len(chosen) == samples and (chosen[0], chosen[-1]) == (0, count - 1)
    assert chosen == sorted(set(chosen)) and all(isinstance(i, int) for i in chosen)


def test_every_quantile_is_its_own():
    stats = number_stats(np.arange(101.0))
    assert {name: stats[name].tolist() for name in ("q01", "q10", "q50", "q90", "q99")} == {
        "q01": [1.0],
        "q10": [10.0],
        "q50": [50.0],
        "q90": [90.0],
        "q99": [99.0],
    }
    assert (stats["min"].tolist(), stats["max"].tolist(), stats["count"].tolist()) == ([0.0], [100.0], [101])
    assert number_stats(np.array([np.inf, 3.0, np.nan]))["max"].tolist() == [3.0]
    assert number_stats(np.array([[1, 2], [3, 4]]))["mean"].tolist() == [2.0, 3.0]


def test_levels_of_images_are_described_channel_by_channel():
    # Red 0 to 199, green 55 throughout, blue 0 or 255.
    frame = np.zeros((1, 200, 3), np.uint8)
    frame[0, :, 0], frame[0, :, 1], frame[0, 150:, 2] = np.arange(200), 55, 255
    stats = image_stats(lambda i: frame, 1)
    values = {name: (255 * stats[name].reshape(3)).round(6).tolist() for name in stats if name != "count"}
    assert values["min"] == [0, 55, 0] and values["max"] == [199, 55, 255]
    assert values["mean"] == [99.5, 55, 63.75]
    assert values["std"] == pytest.approx([np.arange(200).std(), 0, 255 * np.sqrt(3) / 4])
    assert values["q01"] == [1, 55, 0] and values["q50"] == [99, 55, 0] and values["q90"] == [179, 55, 255]
    assert stats["mean"].shape == (3, 1, 1) and stats["count"].tolist() == [1]


@pytest.mark.parametrize(
    ("shape", "kept"),
    [((299, 200), (299, 200)), ((300, 200), (150, 100)), ((200, 300), (100, 150)), ((300, 449), (150, 225))],
)
def test_large_images_are_thinned_out(shape, kept):
    frame = np.zeros((*shape, 3), np.uint8)
    step = 2 if kept != shape else 1
    # What is left out is white.
    frame[...] = 255
    frame[::step, ::step] = 0
    assert frame[::step, ::step].shape[:2] == kept
    assert image_stats(lambda i: frame, 1)["max"].max() == 0


def test_a_feature_that_only_some_episodes_have_is_described_by_those():
    one, two = number_stats(np.array([1.0, 3.0])), number_stats(np.array([5.0]))
    found = aggregate([{"a": one}, {"a": two, "b": two}])
    assert found["a"]["mean"].tolist() == [3.0] and found["a"]["count"].tolist() == [3]
    assert found["a"]["q50"].tolist() == [pytest.approx((2 * 2 + 5) / 3)]
    assert (found["a"]["min"].tolist(), found["a"]["max"].tolist()) == ([1.0], [5.0])
    assert found["b"]["mean"].tolist() == [5.0]


# ---------------------------------------------------------------- LeRobot's layout


def exported(tmp_path, episodes, **options):
    made = export_lerobot(write(tmp_path / "recording", episodes, **options), tmp_path / "set")
    return made, json.loads((tmp_path / "set/meta/info.json").read_text())


def test_an_export_lists_its_features(tmp_path):
    first = drive(1, 3, choices=5, logits=True, label=True, sides=True)
    made, info = exported(tmp_path, [first, drive(2, 4)])
    assert (made.episodes, made.frames) == (2, 7)
    image = {"dtype": "image", "shape": [12, 16, 3], "names": ["height", "width", "channel"]}

    def number(dtype, names=None, width=1):
        return {"dtype": dtype, "shape": [width], "names": names}

    assert info["features"] == {
        **{f"observation.images.{camera}": image for camera in ("center", "left", "right")},
        "observation.state": number("float32", ["speed_mps", "gap_s"], 2),
        "action": number("float32", ["steering", "throttle", "brake"], 3),
        "choice": number("int64"),
        "expert.choice": number("int64"),
        "next.reward": number("float32"),
        "t_s": number("float64"),
        "expert.steering": number("float32"),
        "expert.logits": number("float32", ["0", "1", "2", "3", "4"], 5),
        "next.done": number("bool"),
        "timestamp": number("float32"),
        **{name: number("int64") for name in ("frame_index", "episode_index", "index", "task_index")},
    }
    del info["features"]
    assert info == {
        "codebase_version": "v3.0",
        "robot_type": "udacity",
        "total_episodes": 2,
        "total_frames": 7,
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": 12.5,
        "splits": {"train": "0:2"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": None,
    }
    rows = pq.read_table(tmp_path / "set/meta/episodes/chunk-000/file-000.parquet").to_pylist()
    listed = ("episode_index", "length", "dataset_from_index", "dataset_to_index", "data/chunk_index", "tasks")
    assert [tuple(row[name] for name in listed) for row in rows] == [
        (0, 3, 0, 3, 0, ["drive along the road (udacity)"]),
        (1, 4, 3, 7, 0, ["drive along the road (udacity)"]),
    ]
    assert [row["nacdrive/columns"] for row in rows] == [["expert_steering", "expert_logits", "left", "right"], []]
    assert (
        {row["meta/episodes/chunk_index"] for row in rows} == {row["meta/episodes/file_index"] for row in rows} == {0}
    )
    data = pq.read_table(tmp_path / "set/data/chunk-000/file-000.parquet")
    assert data["index"].to_pylist() == list(range(7)) and data["frame_index"].to_pylist() == [0, 1, 2, 0, 1, 2, 3]
    assert data["next.done"].to_pylist() == [i in (2, 6) for i in range(7)]
    assert data["task_index"].to_pylist() == [0] * 7 and data["episode_index"].to_pylist() == [0] * 3 + [1] * 4
    gaps = [state[1] for state in data["observation.state"].to_pylist()]
    assert gaps[0] == gaps[3] == 0.0 and gaps[1:3] == pytest.approx(np.diff(first.t_s).tolist(), rel=1e-6)
    assert np.isnan(data["expert.logits"].to_pylist()[3:]).all(), "scores that an episode lacks are unknown"


def test_a_whole_rate_is_a_whole_number(tmp_path):
    assert json.dumps(exported(tmp_path, [drive(1, 2)], fps=20.0)[1]["fps"]) == "20"


def test_columns_that_no_episode_has_are_no_features(tmp_path):
    features = exported(tmp_path, [drive(1, 2)])[1]["features"]
    assert not {"expert.steering", "expert.logits", "observation.images.left"} & set(features)
    layout = Layout.of(Recording.open(tmp_path / "recording"))
    assert (layout.shapes, layout.label, layout.logits) == ({"center": (12, 16)}, False, 0)


def test_files_and_chunks_are_begun_when_one_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot_export, "FILE_MB", 0)
    monkeypatch.setattr(lerobot_export, "FILES_PER_CHUNK", 2)
    exported(tmp_path, [drive(i, 2) for i in range(5)])
    files = sorted(path.relative_to(tmp_path / "set/data").as_posix() for path in tmp_path.glob("set/data/*/*"))
    assert files == [f"chunk-00{i // 2}/file-00{i % 2}.parquet" for i in range(5)]
    import_lerobot(tmp_path / "set", tmp_path / "back")
    assert [info.seed for info in Recording.open(tmp_path / "back").episodes] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("feature", "said"),
    [
        ({"dtype": "image", "shape": [4, 6, 3]}, {"_type": "Image"}),
        ({"dtype": "bool", "shape": [1]}, {"dtype": "bool", "_type": "Value"}),
        (
            {"dtype": "float32", "shape": [2]},
            {"feature": {"dtype": "float32", "_type": "Value"}, "length": 2, "_type": "Sequence"},
        ),
    ],
)
def test_features_in_the_hubs_words(feature, said):
    assert hub_feature(feature) == said


def test_what_an_episode_has_beside_is_listed():
    assert not drive(1, 2).optional and list(drive(1, 2).cameras) == ["center"]
    whole = drive(1, 2, label=True, sides=True)
    assert list(whole.optional) == ["expert_steering"] and list(whole.cameras) == ["center", "left", "right"]


# ---------------------------------------------------------------- LeRobot's descriptions


@pytest.mark.parametrize("version", ["v3.0", "v3.12", "v3.0.1"])
def test_the_third_version_is_read(version):
    check_version(Path("set"), {"codebase_version": version})


@pytest.mark.parametrize(
    ("version", "words"),
    [("v2.1", "convert it with"), ("v4.0", "version v4.0, and this"), ("3.0", "version 3.0, and"), (None, "None, and")],
)
def test_other_versions_are_told_what_to_do(version, words):
    with pytest.raises(UserError, match=words) as caught:
        check_version(Path("set"), {"codebase_version": version})
    assert ("convert" in str(caught.value)) == (version == "v2.1")
    with pytest.raises(UserError, match="version " + "v" * 40 + ", and"):
        check_version(Path("set"), {"codebase_version": "v" * 60})


def feature(names, shape=None, dtype="float32"):
    return {"action": {"dtype": dtype, "shape": shape or [len(names)], "names": names}}


@pytest.mark.parametrize(
    ("names", "shape", "found"),
    [
        (["steering"], [1], {"steering": 0}),
        ({"axes": ["gas", "steer"]}, [2], {"steering": 1, "throttle": 0}),
        ({"motors": {"a": ["steer", "brake"]}}, [2], {"steering": 0, "brake": 1}),
        ({"steering": 0, "throttle": 1}, [2], {"steering": 0, "throttle": 1}),
    ],
)
def test_names_of_actions_may_be_nested(names, shape, found):
    assert action_columns(Path("set"), feature(names, shape)) == found


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ({}, "without actions"),
        (feature(["steering"], dtype="float64"), "are named steering, and"),
        (feature(["steering"], [2]), "are named steering, and"),
        (feature([str(i) for i in range(9)]), "are named 0, 1, 2, 3, 4, 5, 6, 7, and"),
        (feature(["x" * 300]), "are named " + "x" * 200 + ", and"),
        (feature({}, [0]), "are named nothing, and"),
    ],
)
def test_actions_that_do_not_drive_are_described(features, said):
    with pytest.raises(UserError, match=said):
        action_columns(Path("set"), features)


def images(*names, **others):
    return {name: {"dtype": "image", "shape": [12, 16, 3]} for name in names} | others


@pytest.mark.parametrize(
    ("features", "found"),
    [
        (images("observation.images.top"), {"center": "observation.images.top"}),
        (images(CENTER, "a"), {"center": CENTER}),
        (
            images("observation.images.front", "observation.images.left"),
            {"center": "observation.images.front", "left": "observation.images.left"},
        ),
        (images("observation.image", "a", "b"), {"center": "observation.image"}),
        (images("observation.images.left"), {"center": "observation.images.left"}),
    ],
)
def test_the_camera_that_looks_ahead_is_found(features, found):
    assert camera_features(Path("set"), features)[0] == found


@pytest.mark.parametrize(
    ("features", "said"),
    [
        ({"a": {"dtype": "video"}}, r"only videos \(a\), which are lossy"),
        ({"a" * 300: {"dtype": "video"}}, r"only videos \(a{200}\), which"),
        ({"a": {"dtype": "float32"}}, "holds no camera"),
        (images("a", "b"), r"several cameras \(a, b\), and none is called observation.images.center"),
        (images("a" * 300, "b"), r"several cameras \(a{200}\), and none"),
    ],
)
def test_cameras_that_nobody_could_choose_are_named(features, said):
    with pytest.raises(UserError, match=said):
        camera_features(Path("set"), features)


@pytest.mark.parametrize(
    ("shape", "names", "size"),
    [
        ([12, 16, 3], None, (12, 16)),
        ([3, 12, 16], None, (12, 16)),
        ([3, 16, 3], None, (3, 16)),
        ([3, 12, 16], ["channels", "height", "width"], (12, 16)),
        ([12, 16, 3], ["height", "width", "channel"], (12, 16)),
        (["12", 16, 3], [], (12, 16)),
    ],
)
def test_the_shape_of_a_frame_is_read_either_way_round(shape, names, size):
    assert image_shape(Path("set"), "a", {"shape": shape, "names": names}) == size


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        ([12, 16], None),
        ([12, 16, 4], None),
        ([4, 12, 16], ["c", "h", "w"]),
        ([12, 16, 3, 1], None),
        ([0, 16, 3], None),
        (None, None),
        ([None, 1, 3], None),
    ],
)
def test_a_shape_of_no_colour_image_is_refused(shape, names):
    with pytest.raises(UserError, match=r"set says that a has the shape .*: frames are height x width x 3"):
        image_shape(Path("set"), "a", {"shape": shape, "names": names})


def row(**changed):
    return {"episode_index": 0, "length": 3, "data/chunk_index": 0, "data/file_index": 0, **changed}


def test_a_row_of_the_list_of_episodes_has_its_limits():
    found = episode_row(row(tasks=["a", 2]), False)
    assert (found.length, found.chunk, found.file, found.tasks, found.ours) == (3, 0, 0, ("a", "2"), {})
    edges = {"length": 10**8, "data/chunk_index": 10**6 - 1, "data/file_index": 10**6 - 1}
    assert episode_row(row(**edges), False).length == 10**8
    assert episode_row(row(length=1, tasks=None), False).tasks == ()
    for name, wrong in (
        *(("length", value) for value in (0, -1, 10**8 + 1)),
        *((f"data/{kind}_index", value) for kind in ("chunk", "file") for value in (-1, 10**6)),
    ):
        with pytest.raises(ValueError, match="episode 0 has"):
            episode_row(row(**{name: wrong}), False)
    ours = {"nacdrive/driver": "d", "nacdrive/columns": [], "nacdrive/seed": 4.0, "nacdrive/return": 2}
    made = episode_row(row(**ours, **{"nacdrive/meta": '{"a": 1}'}), True).ours
    assert made == {"driver": "d", "columns": [], "seed": 4, "return": 2.0, "meta": {"a": 1}}


def strangers(tmp_path, change=lambda info: None, **options):
    """An export without what nacdrive wrote beside."""
    exported(tmp_path, [drive(3, 3), drive(9, 5)], **options)
    (tmp_path / "set/meta/nacdrive.json").unlink()
    path = tmp_path / "set/meta/info.json"
    info = json.loads(path.read_text())
    change(info)
    path.write_text(json.dumps(info))
    return tmp_path / "set"


@pytest.mark.parametrize("fps", [1e-3, 999_999])
def test_a_rate_within_reason_is_believed(tmp_path, fps):
    assert LeRobotSet.open(strangers(tmp_path, lambda info: info.update(fps=fps))).fps == fps


@pytest.mark.parametrize("fps", [0, -1, 10**6, "inf", None])
def test_a_rate_without_reason_is_not(tmp_path, fps):
    with pytest.raises(UserError, match=r"info.json is damaged"):
        LeRobotSet.open(strangers(tmp_path, lambda info: info.update(fps=fps)))


def test_a_strangers_episodes_are_told_by_their_tasks(tmp_path):
    folder = strangers(tmp_path, lambda info: info.update(robot_type=None))
    assert import_lerobot(folder, tmp_path / "back").frames == 8
    back = Recording.open(tmp_path / "back")
    episode = back.load(0)
    assert (back.meta["source"], back.meta["fps"], back.meta["expert"]) == ("lerobot", 12.5, "lerobot")
    assert (episode.driver, episode.meta) == ("lerobot", {"task": "drive along the road (udacity)"})
    assert episode.episode_return == pytest.approx(float(drive(3, 3).reward.astype(np.float64).sum()), rel=1e-6)
    assert (episode.choice == -1).all() and (episode.expert_choice == -1).all()
    np.testing.assert_array_equal(episode.speed_mps, drive(3, 3).speed_mps)
    np.testing.assert_array_equal(episode.reward, drive(3, 3).reward)


def test_a_strangers_state_of_other_numbers_is_no_speed(tmp_path):
    folder = strangers(tmp_path, lambda info: info["features"]["observation.state"].update(names=["x", "y"], shape=[2]))
    import_lerobot(folder, tmp_path / "back", source="gym:Kart-v0")
    episode = Recording.open(tmp_path / "back", source="gym:Kart-v0").load(1)
    assert np.isnan(episode.speed_mps).all() and len(episode) == 5


@pytest.mark.parametrize(("side", "kind"), [("left", "jpg"), ("center", "png")])
def test_names_of_images_tell_their_kind(tmp_path, side, kind):
    episode = drive(1, 2, jpeg=kind == "jpg", sides=True)
    export_lerobot(write(tmp_path / "recording", [episode]), tmp_path / "set")
    table = pq.read_table(tmp_path / "set/data/chunk-000/file-000.parquet")
    names = [value["path"] for value in table[f"observation.images.{side}"].to_pylist()]
    assert names == [f"{side}-000000-0000{i}.{kind}" for i in range(2)]


def test_png_and_jpeg_are_made_with_the_named_quality():
    frame = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    assert (decode_image(encode_png(frame)) == frame).all()
    assert encode_jpeg(frame) == encode_jpeg(frame, 75) and len(encode_jpeg(frame, 30)) < len(encode_jpeg(frame))
    for wrong in (frame[..., 0], frame[..., :2], frame.astype(np.int32), np.stack([frame] * 2, 3)):
        with pytest.raises(ValueError, match="a frame is uint8"):
            encode_png(wrong)
