"""Data sets of strangers that are damaged, foreign or hostile: one sentence, and nothing half-written."""

import io
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nacdrive.cli.main import dispatch
from nacdrive.common.errors import UserError
from nacdrive.common.result_folder import release_folders
from nacdrive.datasets.images import encode_png
from nacdrive.datasets.recording import Recording
from nacdrive.extras.exchange.lerobot_export import export_lerobot
from nacdrive.extras.exchange.lerobot_import import import_lerobot
from tests.helpers.exchange import assert_same_recording, drive, write

DATA = "data/chunk-000/file-000.parquet"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
CENTER = "observation.images.center"


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """A recording and what its exports are."""
    folder = tmp_path_factory.mktemp("sets")
    write(folder / "recording", [drive(1, 3, sides=True, label=True), drive(2, 4, sides=True)])
    export_lerobot(folder / "recording", folder / "lerobot")
    release_folders()
    return folder


@pytest.fixture
def lerobot(sets, tmp_path):
    """A LeRobot data set to be spoilt."""
    return Path(shutil.copytree(sets / "lerobot", tmp_path / "set"))


@pytest.fixture
def minari(sets, tmp_path):
    """A Minari data set to be spoilt."""
    pytest.importorskip("h5py", reason="needs h5py")
    if not (sets / "minari").exists():
        from nacdrive.extras.exchange.minari_export import export_minari

        export_minari(sets / "recording", sets / "minari")
        release_folders()
    return Path(shutil.copytree(sets / "minari", tmp_path / "set"))


def refused(folder, words, *options):
    """The sentence with which an import refuses, having written nothing."""
    out = folder.parent / "out"
    before = sorted(folder.parent.iterdir())
    with pytest.raises(UserError, match=words) as caught:
        dispatch(["recordings", "import", str(folder), "--out", str(out), *options])
    assert sorted(folder.parent.iterdir()) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit_json(path, change):
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def edit_table(path, change):
    pq.write_table(change(pq.read_table(path)), path)


def replaced(table, name, values):
    return table.set_column(table.column_names.index(name), name, values)


def with_image(table, data):
    column = table[CENTER].to_pylist()
    column[1] = {"bytes": data, "path": None}
    return replaced(table, CENTER, pa.array(column, table.schema.field(CENTER).type))


def huge_png():
    """A PNG that says it has 30,000 x 30,000 pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(10**6))) + chunk(b"IEND", b"")
    )


def drop_feature(name):
    return lambda info: info["features"].pop(name)


def set_feature(name, key, value):
    return lambda info: info["features"][name].update({key: value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop_feature("action"), "without actions"),
        (set_feature("action", "names", ["x", "y", "z"]), "named x, y, z"),
        (set_feature("action", "names", None), "named nothing"),
        (set_feature("action", "names", [["steering"], 3]), "actions of .* are named"),
        (set_feature("action", "shape", [2]), "are named"),
        (set_feature(CENTER, "shape", [12, 99, 3]), "16 x 12 pixels instead of 99 x 12"),
        (set_feature(CENTER, "shape", [12, 16, 4]), "shape"),
        (set_feature(CENTER, "shape", [10**9, 10**9, 3]), "shape"),
        (set_feature(CENTER, "shape", "wide"), "shape"),
        (
            lambda info: [info["features"][n].update(dtype="video") for n in list(info["features"]) if "images" in n],
            "videos",
        ),
        (lambda info: [info["features"].pop(n) for n in list(info["features"]) if "images" in n], "no camera"),
        (drop_feature(CENTER), "none is called"),
        (lambda info: info.update(codebase_version="v2.1"), "v2.1.*convert"),
        (lambda info: info.update(codebase_version="v4.0"), "version v4.0"),
        (lambda info: info.update(codebase_version=["?"]), "version"),
        (lambda info: info.pop("codebase_version"), "version None"),
        (lambda info: info.update(total_frames=8), "8 frames in 2 episodes, and meta/episodes lists 7"),
        (lambda info: info.update(total_frames=10**30), "lists 7"),
        (lambda info: info.update(data_path="../../{chunk_index.__class__}"), "another place"),
        (lambda info: info.update(features=[1]), "damaged"),
        (lambda info: info.update(fps="fast"), "damaged"),
        (lambda info: info.update(fps=-1), "damaged"),
        (drop_feature("observation.images.left"), "episode 0 .* lacks observation.images.left"),
        (drop_feature("observation.state"), "episode 0 .* lacks observation.state"),
        (drop_feature("expert.steering"), "episode 0 .* lacks expert.steering"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_lerobot_description_that_does_not_fit_is_one_sentence(lerobot, change, words):
    edit_json(lerobot / "meta/info.json", change)
    refused(lerobot, words)


def gap(table):
    return replaced(table, "frame_index", pa.array([0, 1, 5, 0, 1, 2, 3]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop_columns(["action"]), "lacks column 'action'"),
        (lambda t: t.drop_columns([CENTER]), f"lacks column '{CENTER}'"),
        (lambda t: t.slice(1), "6 frames where 7 are listed"),
        (gap, "other rows"),
        (lambda t: replaced(t, "action", pa.array(["left"] * 7)), "no usable"),
        (lambda t: replaced(t, "action", pa.array([[0.0, 0.0, 0.0]] * 6 + [None])), "gaps in 'action'"),
        (lambda t: replaced(t, "action", pa.array([[0.0, 0.0]] * 7)), "actions of 2 numbers"),
        (lambda t: replaced(t, "action", pa.array([[0.0, 0.0, 0.0]] * 6 + [[0.0]])), "gaps in 'action'|numbers"),
        (lambda t: replaced(t, "action", pa.array([[7.5, 0.0, 0.0]] * 7)), "steering from 7.5 to 7.5"),
        (lambda t: replaced(t, "action", pa.array([[float("nan"), 0.0, 0.0]] * 7)), "steering from nan"),
        (lambda t: replaced(t, "t_s", pa.array([0.5] * 7)), "must increase"),
        (lambda t: replaced(t, "choice", pa.array([10.0**300] * 7)), "no usable .*choice"),
        (lambda t: with_image(t, b"GIF89a" + bytes(50)), "no PNG or JPEG"),
        (lambda t: with_image(t, encode_png(np.zeros((40, 40, 3), np.uint8))), "40 x 40 pixels instead of 16 x 12"),
        (lambda t: with_image(t, drive(1).frames[0][:300]), "not a readable image"),
        (lambda t: with_image(t, huge_png()), "more pixels"),
        (lambda t: with_image(t, None), "no picture"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_lerobot_frames_that_do_not_fit_are_one_sentence(lerobot, change, words):
    edit_table(lerobot / DATA, change)
    refused(lerobot, words)


@pytest.mark.parametrize("name", [DATA, EPISODES])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.99])
def test_a_truncated_parquet_file_is_named(lerobot, name, share):
    path = lerobot / name
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    refused(lerobot, f"{Path(name).name} is truncated or damaged")


@pytest.mark.parametrize("name", [DATA, EPISODES])
def test_a_missing_parquet_file_is_named(lerobot, name):
    (lerobot / name).unlink()
    refused(lerobot, f"{Path(name).name} is missing")


def test_no_link_is_followed_out_of_a_data_set(lerobot, tmp_path):
    (lerobot / DATA).rename(tmp_path / "elsewhere.parquet")
    (lerobot / DATA).symlink_to(tmp_path / "elsewhere.parquet")
    refused(lerobot, "link that leads out")


def test_a_column_that_says_it_is_endless_is_not_read(lerobot):
    endless = pa.array([list(range(3))] * 6 + [[1] * 40_000], pa.list_(pa.float32()))
    edit_table(lerobot / DATA, lambda t: replaced(t, "action", endless))
    refused(lerobot, "holds more in 'action")


def test_rows_of_another_episode_are_not_taken_for_this_ones(lerobot):
    indices = pa.array([0, 0, 1, 1, 1, 1, 1], pa.int64())
    edit_table(lerobot / DATA, lambda t: replaced(t, "episode_index", indices))
    refused(lerobot, "is made of other rows than those listed")


def test_a_column_may_not_unpack_to_thousands_of_times_what_is_stored(tmp_path):
    h5py = pytest.importorskip("h5py", reason="needs h5py")
    from nacdrive.extras.exchange.minari_import import Reader

    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        column = file.create_dataset("x", (10**8,), "u1", chunks=(10**6,), compression="gzip")
        column[:1000] = np.random.default_rng(0).integers(0, 256, 1000)
        file.flush()
        assert 2000 * column.id.get_storage_size() < 10**8 < 2_000_000 * column.id.get_storage_size()
        with pytest.raises(ValueError, match="unpacks to 95 MiB"):
            Reader(h5py, file, None, tmp_path).column(file, "x")


def test_descriptions_without_end_are_not_read(lerobot, monkeypatch):
    (lerobot / "meta/info.json").write_text("[" * 10_000)
    refused(lerobot, "not readable as JSON")
    monkeypatch.setattr("nacdrive.common.foreign_json.MAX_JSON_BYTES", 5000)
    refused(lerobot, "longer than")


def test_what_nacdrive_wrote_beside_is_checked_too(lerobot):
    path = lerobot / "meta/nacdrive.json"
    whole = path.read_text()
    edit_json(path, lambda ours: ours.update(version=99))
    refused(lerobot, "version 99: install a newer nacdrive")
    for part, value in (("fps", "x"), ("recipe", 3), ("dropped", [1]), ("license", "a b\nc"), ("source", None)):
        path.write_text(whole)
        edit_json(path, lambda ours, part=part, value=value: ours["recording"].update({part: value}))
        refused(lerobot, "damaged")


def spoil(path, change):
    import h5py

    with h5py.File(path, "r+") as file:
        change(file)


def other(name, value):
    """A description in which one thing is another."""
    return lambda found: found.update({name: value if isinstance(value, (str, int)) else json.dumps(value)})


BOX = {"type": "Box", "dtype": "float32", "shape": [17], "low": [0], "high": [1]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other("action_space", BOX), r"action space .* is Box \[17\]"),
        (other("action_space", {"type": "MultiBinary", "n": 4}), "is MultiBinary"),
        (other("action_space", {"type": "Discrete", "start": 0, "n": 10**9}), "is Discrete"),
        (other("observation_space", BOX), "no picture"),
        (other("observation_space", {"type": "Dict", "subspaces": {"a": BOX}}), "no picture"),
        (other("observation_space", {"type": "Dict", "subspaces": 3}), "no picture"),
        (other("observation_space", "{"), "damaged"),
        (other("minari_version", "1.0.0"), "version 1.0.0"),
        (other("data_format", "arrow"), "stored as arrow"),
        (other("total_steps", 0), "damaged"),
        (lambda found: found.pop("observation_space"), "lacks 'observation_space'"),
        (lambda found: found["nacdrive"].update(version=99), "newer nacdrive"),
        (lambda found: found["nacdrive"]["recording"].update(fps=None), "damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_minari_description_that_does_not_fit_is_one_sentence(minari, change, words):
    edit_json(minari / "data/metadata.json", change)
    refused(minari, words)


def bomb(file):
    del file["episode_1/observations/center"]
    shape = (5, 60_000, 60_000, 3)
    file["episode_1/observations"].create_dataset("center", shape, "u1", chunks=(1, 600, 600, 3), compression="gzip")


def external(file):
    del file["episode_1/rewards"]
    file["episode_1"].create_dataset("rewards", (4,), "f4", external=[("/etc/hostname", 0, 16)])


def virtual(file):
    import h5py

    del file["episode_1/rewards"]
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("/etc/hostname", "x", (4,))
    file["episode_1"].create_virtual_dataset("rewards", layout)


def linked(kind):
    def change(file):
        import h5py

        del file["episode_1/rewards"]
        link = h5py.ExternalLink("/etc/hostname", "/x") if kind == "external" else h5py.SoftLink("/episode_0/rewards")
        file["episode_1/rewards"] = link

    return change


def put(name, values):
    def change(file):
        del file[name]
        file[name] = values

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (bomb, "unpacks to|the shape"),
        (external, "another file"),
        (virtual, "another file"),
        (linked("external"), "missing or a link"),
        (linked("soft"), "missing or a link"),
        (lambda file: file.pop("episode_1"), "episode_1"),
        (put("episode_1/rewards", np.zeros((0,))), "rewards"),
        (put("episode_1/infos/steering", np.full(5, 3.0)), "steering from 3 to 3"),
        (put("episode_1/infos/t_s", np.zeros(5)), "must increase"),
        (put("episode_1/infos/t_s", [b"a"] * 5), "no numbers"),
        (put("episode_1/infos/choice", np.zeros((5, 10_000))), "choice"),
        (put("episode_1/observations/center", np.zeros((5, 9, 9, 3), np.uint8)), r"frames are uint8 \[9, 9, 3\]"),
        (put("episode_1/nacdrive", "[1]"), "no JSON object"),
        (put("episode_1/nacdrive", 5), "no text"),
        (lambda file: file["episode_1"].attrs.pop("seed"), "seed"),
        (lambda file: file["episode_0/infos"].pop("expert_steering"), "infos lack expert_steering"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_minari_file_that_does_not_fit_is_one_sentence(minari, change, words):
    spoil(minari / "data/main_data.hdf5", change)
    refused(minari, words)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.97])
def test_a_truncated_hdf5_file_is_named(minari, share):
    path = minari / "data/main_data.hdf5"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    refused(minari, "main_data.hdf5")


def test_choices_without_a_meaning_and_frames_without_a_time_are_asked_for(minari):
    discrete = json.dumps({"type": "Discrete", "start": 0, "n": 5})
    edit_json(minari / "data/metadata.json", lambda found: (found.pop("nacdrive"), found.update(action_space=discrete)))
    refused(minari, "give what was driven, such as --source carracing")
    spoil(minari / "data/main_data.hdf5", lambda file: [file[f"episode_{i}/infos"].pop("t_s") for i in range(2)])
    refused(minari, "give --fps", "--source", "carracing")
    refused(minari, "its space says 1 a step", "--source", "carracing", "--fps", "50")


def test_an_import_into_a_folder_that_holds_something_leaves_it_alone(lerobot, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    for options in ([], ["--overwrite"]):
        with pytest.raises(UserError, match=r"already holds files|mine\.txt"):
            dispatch(["recordings", "import", str(lerobot), "--out", str(out), *options])
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


def test_a_recording_that_is_to_be_replaced_stays_until_the_new_one_is_whole(sets, lerobot, tmp_path):
    out = write(tmp_path / "out", [drive(77)])
    with pytest.raises(UserError, match="give --overwrite or another --out"):
        dispatch(["recordings", "import", str(lerobot), "--out", str(out)])
    whole = (lerobot / DATA).read_bytes()
    edit_table(lerobot / DATA, gap)
    with pytest.raises(UserError, match="other rows"):
        dispatch(["recordings", "import", str(lerobot), "--out", str(out), "--overwrite"])
    assert Recording.open(out).episodes[0].seed == 77
    (lerobot / DATA).write_bytes(whole)
    dispatch(["recordings", "import", str(lerobot), "--out", str(out), "--overwrite"])
    assert_same_recording(sets / "recording", out)


@pytest.mark.parametrize("name", ["lerobot", "minari"])
def test_an_export_that_fails_writes_nothing(tmp_path, name):
    if name == "minari":
        pytest.importorskip("h5py", reason="needs h5py")
    folder = write(tmp_path / "recording", [drive(1), drive(2, size=(20, 20))])
    out = tmp_path / "out"
    with pytest.raises(UserError, match=r"seed 2 has .*export its parts apart"):
        dispatch(["recordings", "export", str(folder), "--to", name, "--out", str(out)])
    release_folders()
    assert not out.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["recording"]


@pytest.mark.parametrize("name", ["lerobot", "minari"])
def test_an_export_replaces_only_its_own(tmp_path, name):
    if name == "minari":
        pytest.importorskip("h5py", reason="needs h5py")
    folder = write(tmp_path / "recording", [drive(1)])
    command = ["recordings", "export", str(folder), "--to", name, "--out", str(tmp_path / "out")]
    assert dispatch(command) == 0
    with pytest.raises(UserError, match="--overwrite"):
        dispatch(command)
    assert dispatch([*command, "--overwrite"]) == 0
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=r"mine\.txt was not made by nacdrive"):
        dispatch([*command, "--overwrite"])
    assert (tmp_path / "out" / "mine.txt").exists()


@pytest.mark.parametrize("times", [12, pytest.param(60, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", ["lerobot", "minari"])
def test_random_damage_ends_in_a_recording_or_in_one_sentence(request, name, times):
    folder = request.getfixturevalue(name)
    files = [path for path in sorted(folder.rglob("*.*")) if path.is_file() and path.name[0] != "."]
    noise = random.Random(5)
    for _ in range(times):
        path = noise.choice(files)
        whole = path.read_bytes()
        data = bytearray(whole)
        for _ in range(noise.choice([1, 3, 20])):
            place = max(0, len(data) - 1 - noise.randrange(min(len(data), noise.choice([3000, len(data)]))))
            if noise.random() < 0.8:
                data[place] = noise.randrange(256)
            else:
                del data[place : place + 40]
        path.write_bytes(data)
        try:
            dispatch(["recordings", "import", str(folder), "--from", name, "--out", str(folder.parent / "out")])
            shutil.rmtree(folder.parent / "out")
        except UserError as error:
            assert "\n" not in str(error)
        path.write_bytes(whole)
        assert [entry.name for entry in folder.parent.iterdir()] == ["set"]


def test_scores_of_several_widths_are_refused(tmp_path):
    episodes = [drive(1, choices=3, logits=True), drive(2, choices=4, logits=True)]
    with pytest.raises(UserError, match="scores of 3 and 4 actions"):
        export_lerobot(write(tmp_path / "recording", episodes), tmp_path / "out")


@pytest.mark.parametrize("name", ["lerobot", "minari", "udacity"])
def test_an_altered_episode_is_not_exported(tmp_path, name):
    if name == "minari":
        pytest.importorskip("h5py", reason="needs h5py")
    folder = write(tmp_path / "recording", [drive(1), drive(2)])
    path = sorted(folder.glob("*.parquet"))[1]
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="altered since it was recorded"):
        dispatch(["recordings", "export", str(folder), "--to", name, "--out", str(tmp_path / "out")])
    release_folders()
    assert not (tmp_path / "out").exists()


def test_options_that_mean_nothing_to_a_format_are_refused(lerobot, tmp_path):
    refused(lerobot, "--fps means nothing to an import from lerobot", "--fps", "5")
    refused(tmp_path / "set", "no Minari data set", "--from", "minari")
    refused(tmp_path / "set", r"no driving_log\.csv", "--from", "udacity")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "no LeRobot data set", "--from", "lerobot")
    refused(tmp_path / "nowhere", r"no driving_log\.csv")


def test_ctrl_c_leaves_nothing_behind(lerobot, tmp_path, monkeypatch):
    import nacdrive.extras.exchange.lerobot_import as module

    real = module.read_episode
    monkeypatch.setattr(
        module,
        "read_episode",
        lambda found, i, *rest: (_ for _ in ()).throw(KeyboardInterrupt) if i else real(found, i, *rest),
    )
    before = sorted(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        import_lerobot(lerobot, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


def test_the_command_line_says_one_sentence_and_ends_with_2(lerobot):
    edit_json(lerobot / "meta/info.json", drop_feature("action"))
    command = [
        sys.executable,
        "-m",
        "nacdrive",
        "recordings",
        "import",
        str(lerobot),
        "--out",
        str(lerobot.parent / "out"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}, timeout=120)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("nacdrive: ")
    assert "without actions" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (lerobot.parent / "out").exists()
    assert io.StringIO(done.stdout).read() == ""
