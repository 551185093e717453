"""Minari data sets of strangers, written number by number: what is read, what is made of it, what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.datasets.images import encode_jpeg
from nacdrive.datasets.recording import Recording
from nacdrive.extras.exchange import minari_import
from nacdrive.extras.exchange.minari_export import (
    GymSpec,
    Spaces,
    dataset_id,
    export_minari,
)
from nacdrive.extras.exchange.minari_import import MinariSet, action_space, camera_spaces, import_minari
from tests.helpers.exchange import drive, write

h5py = pytest.importorskip("h5py", reason="needs h5py")

SIZE = (40, 48)
TWO_PEDALS = {"type": "Box", "dtype": "float32", "shape": [3], "low": [-1, 0, 0], "high": [1, 1, 1]}
ONE_PEDAL = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-1, -1], "high": [1, 1]}
CHOICES = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 3}


def picture(size=SIZE):
    return {"type": "Box", "dtype": "uint8", "shape": [*size, 3], "low": 0, "high": 255}


def frames_of(count, seed=0, size=SIZE):
    return np.random.default_rng(seed).integers(0, 256, (count, *size, 3), dtype=np.uint8)


def strangers_set(folder, episodes, actions=TWO_PEDALS, observations=None, **described):
    """A data set of ``episodes`` (dicts of columns) under these spaces, as Minari lays it out."""
    (folder / "data").mkdir(parents=True)
    found = {
        "total_episodes": len(episodes),
        "total_steps": sum(len(e["rewards"]) for e in episodes),
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "observation_space": json.dumps(observations or picture()),
        "action_space": json.dumps(actions),
        "minari_version": "0.5.3",
        **described,
    }
    found = {name: value for name, value in found.items() if value is not None}
    (folder / "data/metadata.json").write_text(json.dumps(found))
    with h5py.File(folder / "data/main_data.hdf5", "w") as file:
        for index, columns in enumerate(episodes):
            group = file.create_group(f"episode_{index}")
            for name, values in columns.items():
                if name == "seed":
                    group.attrs["seed"] = values
                else:
                    group[name] = values
    return folder


def episode(steps=3, actions=None, **more):
    return {
        "observations": frames_of(steps + 1),
        "actions": np.array([[-0.5, 1, 0], [0.25, 0, 0.5], [1, 0, 0]] if actions is None else actions, np.float32),
        "rewards": np.full(steps, 0.5),
        "terminations": np.zeros(steps, bool),
        "truncations": np.arange(steps) == steps - 1,
        **more,
    }


def imported(tmp_path, folder, **options):
    made = import_minari(folder, tmp_path / "back", **options)
    recording = Recording.open(tmp_path / "back")
    return made, recording, [recording.load(i) for i in range(len(recording))]


def test_a_strangers_drive_is_read_number_by_number(tmp_path):
    told = []
    infos = {"infos/t_s": [0.0, 0.1, 0.25, 0.4], "infos/speed_mps": [1.0, 2.0, 3.0, 4.0]}
    folder = strangers_set(tmp_path / "set", [episode(**infos, seed=77)])
    made, recording, (found,) = imported(tmp_path, folder, source="udacity", progress=told.append)
    assert (made.episodes, made.frames, told) == (1, 3, [3])
    assert (found.steering.tolist(), found.throttle.tolist()) == ([-0.5, 0.25, 1.0], [1.0, 0.0, 0.0])
    assert (found.brake.tolist(), found.reward.tolist()) == ([0.0, 0.5, 0.0], [0.5] * 3)
    assert (found.t_s.tolist(), found.speed_mps.tolist()) == ([0.0, 0.1, 0.25], [1.0, 2.0, 3.0])
    assert found.choice.tolist() == found.expert_choice.tolist() == [-1, -1, -1] and found.expert_logits is None
    assert (found.seed, found.driver, found.source, found.episode_return) == (77, "minari", "udacity", 1.5)
    assert found.meta == {"ended": "truncated"} and not found.side_frames
    np.testing.assert_array_equal(found.decoded(), frames_of(4)[:3])
    # Frames a second from the middle of the gaps: 0.1 and 0.15 s.
    assert recording.meta["fps"] == 8.0 and recording.meta["expert"] == "minari"
    assert recording.meta["recipe"] == {"imported": "set", "format": "minari"}


def test_what_a_stranger_does_not_tell_is_unknown_or_counted(tmp_path):
    ended = {"terminations": np.array([False, False, True])}
    folder = strangers_set(tmp_path / "set", [episode(), episode(**ended)], data_format=None)
    _, recording, (first, second) = imported(tmp_path, folder, fps=20.0)
    assert [e.seed for e in (first, second)] == [0, 1] and recording.meta["source"] == "minari"
    assert first.t_s.tolist() == [0.0, 0.05, 0.1] and np.isnan(first.speed_mps).all()
    assert (first.meta["ended"], second.meta["ended"]) == ("truncated", "terminated")


def test_one_number_for_both_pedals_brakes_where_it_is_negative(tmp_path):
    folder = strangers_set(tmp_path / "set", [episode(2, [[0, 0.5], [1, -0.25]])], ONE_PEDAL)
    _, _, (found,) = imported(tmp_path, folder, fps=10.0)
    assert (found.throttle.tolist(), found.brake.tolist()) == ([0.5, 0.0], [0.0, 0.25])
    assert found.steering.tolist() == [0.0, 1.0]


def test_choices_mean_what_the_environment_says(tmp_path):
    table = [Action(0.0, 0.5, 0.0), Action(-1.0, 0.0, 0.0), Action(0.0, 0.0, 0.8)]
    folder = strangers_set(tmp_path / "set", [episode(actions=[2, 0, 1])], CHOICES)
    _, _, (found,) = imported(tmp_path, folder, fps=10.0, action_of=table.__getitem__)
    assert found.choice.tolist() == [2, 0, 1]
    assert found.steering.tolist() == [0, 0, -1] and found.throttle.tolist() == [0, 0.5, 0]
    np.testing.assert_allclose(found.brake, [0.8, 0, 0])


@pytest.mark.parametrize("choice", [-1, 3])
def test_a_choice_that_is_none_is_refused(tmp_path, choice):
    folder = strangers_set(tmp_path / "set", [episode(actions=[0, choice, 1])], CHOICES)
    with pytest.raises(UserError, match=r"episode 0 in .*: an action is not one of 3"):
        import_minari(folder, tmp_path / "back", fps=10.0, action_of=lambda i: Action(0, 0, 0))


def test_encoded_pictures_keep_their_bytes_and_small_ones_are_pixels_whatever_is_said(tmp_path):
    encoded = [encode_jpeg(frame) for frame in frames_of(4)]
    pictures = np.empty(4, dtype=object)
    pictures[:] = [np.frombuffer(data, np.uint8) for data in encoded]

    def jpegs(folder, **columns):
        made = strangers_set(folder, [episode(**columns)], jpeg_encoding=None)
        with h5py.File(made / "data/main_data.hdf5", "r+") as file:
            del file["episode_0/observations"]
            column = file["episode_0"].create_dataset("observations", (4,), h5py.vlen_dtype(np.uint8))
            for i in range(4):
                column[i] = pictures[i]
        return made

    _, _, (found,) = imported(tmp_path, jpegs(tmp_path / "set"), fps=10.0)
    assert found.frames == encoded[:3]
    # Of one length they lie in a plain table.
    same = np.stack([np.frombuffer(encoded[0], np.uint8)] * 4)
    folder = strangers_set(tmp_path / "plain", [episode(observations=same)], jpeg_encoding=True)
    import_minari(folder, tmp_path / "again", fps=10.0)
    assert Recording.open(tmp_path / "again").load(0).frames == [encoded[0]] * 3
    # Minari before 0.5.3 stored pixels, and its description names no format.
    old = strangers_set(tmp_path / "old", [episode()], jpeg_encoding=None)
    _, _, (stored,) = imported(tmp_path / "pixels", old, fps=10.0)
    np.testing.assert_array_equal(stored.decoded(), frames_of(4)[:3])
    folder = strangers_set(tmp_path / "flat", [episode(observations=frames_of(4)[..., 0])], jpeg_encoding=True)
    with pytest.raises(UserError, match="not stored as JPEG, though the data set says so"):
        import_minari(folder, tmp_path / "never", fps=10.0)
    for size in ((31, 48), (48, 31)):
        columns = episode(observations=frames_of(4, size=size))
        folder = strangers_set(tmp_path / f"{size}", [columns], observations=picture(size), jpeg_encoding=True)
        import_minari(folder, tmp_path / f"small {size}", fps=10.0)
        np.testing.assert_array_equal(
            Recording.open(tmp_path / f"small {size}").load(0).decoded(), frames_of(4, size=size)[:3]
        )


def test_an_observation_after_the_last_action_may_be_missing(tmp_path):
    folder = strangers_set(tmp_path / "set", [episode(observations=frames_of(3))])
    _, _, (found,) = imported(tmp_path, folder, fps=10.0)
    np.testing.assert_array_equal(found.decoded(), frames_of(3))
    for rows in (2, 5):
        folder = strangers_set(tmp_path / f"{rows}", [episode(observations=frames_of(rows))])
        with pytest.raises(UserError, match=rf"'observations' has the shape \({rows}, 40, 48, 3\) in an episode of 3"):
            import_minari(folder, tmp_path / "never", fps=10.0)


def test_three_cameras_are_told_by_their_names(tmp_path):
    cameras = {name: picture() for name in ("left", "center", "right")}
    columns = episode()
    del columns["observations"]
    columns |= {f"observations/{name}": frames_of(4, seed) for seed, name in enumerate(cameras)}
    folder = strangers_set(tmp_path / "set", [columns], observations={"type": "Dict", "subspaces": cameras})
    _, _, (found,) = imported(tmp_path, folder, fps=10.0)
    for seed, name in enumerate(cameras):
        np.testing.assert_array_equal(found.decoded(name), frames_of(4, seed)[:3])


def test_many_frames_are_read_a_few_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(minari_import, "BATCH", 4)
    steps = 9
    columns = episode(steps, np.zeros((steps, 3)))
    _, _, (found,) = imported(tmp_path, strangers_set(tmp_path / "set", [columns]), fps=10.0)
    np.testing.assert_array_equal(found.decoded(), frames_of(steps + 1)[:steps])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"infos/t_s": [0.0]}, "'infos'|'t_s' has the shape"),
        ({"infos/t_s": np.zeros(5)}, r"'t_s' has the shape \(5,\) in an episode of 3 steps"),
        ({"rewards": np.zeros((3, 2))}, "'rewards' has the shape"),
        ({"rewards": np.zeros(3, "S1")}, "'rewards' holds no numbers"),
        ({"actions": np.zeros((3, 2))}, r"its actions are \[3, 2\], and its space says 3 a step"),
        ({"actions": np.zeros((3, 4097))}, "'actions' has the shape"),
        ({"actions": np.zeros((2, 3))}, "'actions' has the shape"),
        ({"actions": np.full((3, 3), 1.5)}, "has a steering from 1.5 to 1.5, and -1 .. 1 is asked for"),
        ({"observations": np.zeros((4, 40, 48, 3), np.int16)}, r"frames are int16 \[40, 48, 3\], and the data set say"),
        ({"observations": np.zeros((4, 40, 48, 4), np.uint8)}, r"frames are uint8 \[40, 48, 4\]"),
    ],
)
def test_columns_that_do_not_fit_are_named(tmp_path, changed, words):
    folder = strangers_set(tmp_path / "set", [episode(**changed)])
    with pytest.raises(UserError, match=words) as caught:
        import_minari(folder, tmp_path / "back", fps=10.0)
    assert "get the data set again" in str(caught.value) or "get it again" in str(caught.value)
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("times", [None, [0.0, 0.0, 0.0, 0.0], [0.3, 0.2, 0.1, 0.0]])
def test_without_times_that_run_the_rate_is_asked_for(tmp_path, times):
    infos = {} if times is None else {"infos/t_s": times}
    folder = strangers_set(tmp_path / "set", [episode(**infos)])
    with pytest.raises(UserError, match="does not tell when its frames were taken: give --fps"):
        import_minari(folder, tmp_path / "back")
    _, _, (found,) = imported(tmp_path, folder, fps=10.0)
    assert found.t_s.tolist() == pytest.approx([0.0, 0.1, 0.2])


def test_one_frame_alone_tells_no_rate_and_two_do(tmp_path):
    one = episode(1, [[0, 0, 0]], **{"infos/t_s": [0.0, 0.1]})
    with pytest.raises(UserError, match="give --fps"):
        import_minari(strangers_set(tmp_path / "one", [one]), tmp_path / "back")
    two = episode(2, [[0, 0, 0]] * 2, **{"infos/t_s": [0.0, 0.08, 0.16]})
    import_minari(strangers_set(tmp_path / "two", [two]), tmp_path / "back")
    assert Recording.open(tmp_path / "back").meta["fps"] == 12.5


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({"minari_version": "0.6.0"}, "of version 0.6.0, and this nacdrive reads 0.4 and 0.5"),
        ({"minari_version": None}, "of version None"),
        ({"minari_version": "0.5.3.post1" + "x" * 30}, "of version 0.5.3.post1xxxxxxxxx, "),
        ({"data_format": "parquet" + "x" * 30}, "stored as parquet" + "x" * 13 + ", and"),
        ({"total_episodes": 0}, "damaged .3 steps in 0 episodes"),
        ({"total_episodes": 4}, "damaged .3 steps in 4 episodes"),
        ({"total_steps": 10**8 + 1}, "100000001 steps in 1 episodes"),
        ({"total_steps": "many"}, "damaged"),
        ({"action_space": "{"}, "damaged"),
        ({"action_space": None}, "lacks 'action_space': it would have to be asked of the environment"),
    ],
)
def test_a_description_that_cannot_be_is_named(tmp_path, described, words):
    folder = strangers_set(tmp_path / "set", [episode()], **described)
    with pytest.raises(UserError, match=words):
        MinariSet.open(folder)


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        ([], "is damaged in what nacdrive wrote there: get it again"),
        ({"version": 2, "recording": {"source": "x"}}, "is of a nacdrive version 2: install a newer"),
        ({"version": "9" * 40, "recording": {}}, "is damaged in what nacdrive wrote there"),
        ({"version": 1}, "metadata.json is damaged in what nacdrive wrote there: get it again"),
        ({"version": 1, "recording": {}}, "metadata.json is damaged in what nacdrive wrote there"),
        ({"version": 1, "recording": {"source": 3}}, "metadata.json is damaged in what nacdrive wrote there"),
    ],
)
def test_what_nacdrive_wrote_there_is_checked(tmp_path, ours, words):
    folder = strangers_set(tmp_path / "set", [episode()], nacdrive=ours)
    with pytest.raises(UserError, match=words):
        MinariSet.open(folder)


def test_the_limits_of_a_description_are_allowed(tmp_path):
    for name, described in (("frames", {"total_steps": 10**8}), ("episodes", {"total_episodes": 3})):
        found = MinariSet.open(strangers_set(tmp_path / name, [episode()], **described))
        assert (found.episodes, found.frames) in ((1, 10**8), (3, 3))
    for version in ("0.4.3", "0.5.0"):
        found = MinariSet.open(strangers_set(tmp_path / version, [episode()], minari_version=version))
        assert (found.pedals, found.choices, found.jpeg, found.header) == (2, 0, False, None)
        assert (found.cameras, found.shapes) == ({"center": ("observations",)}, {"center": SIZE})


def test_a_data_set_is_found_by_its_folder_or_by_its_data(tmp_path, monkeypatch):
    folder = strangers_set(tmp_path / "set", [episode()])
    assert MinariSet.open(folder / "data").folder == folder
    monkeypatch.chdir(folder / "data")
    assert MinariSet.open(Path()).folder == folder
    with pytest.raises(UserError, match=r"no Minari data set in .* \(no data/metadata.json\)"):
        MinariSet.open(tmp_path)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (TWO_PEDALS, (2, 0)),
        (ONE_PEDAL, (1, 0)),
        (CHOICES, (0, 3)),
        ({**CHOICES, "n": 1}, (0, 1)),
        ({**CHOICES, "n": 4096}, (0, 4096)),
    ],
)
def test_a_space_of_driving_is_known(space, expected):
    assert action_space(Path("set"), space) == expected


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({**CHOICES, "n": 0}, "Discrete"),
        ({**CHOICES, "n": 4097}, "Discrete"),
        ({**CHOICES, "n": "3"}, "Discrete"),
        ({**CHOICES, "start": 1}, "Discrete"),
        ({**TWO_PEDALS, "low": [0, 0, 0]}, r"Box \[3\] from \[0, 0, 0\] to \[1, 1, 1\]"),
        ({**TWO_PEDALS, "high": [1, 1, 2]}, r"Box \[3\] from \[-1, 0, 0\] to \[1, 1, 2\]"),
        ({**ONE_PEDAL, "low": [-1, 0]}, r"Box \[2\] from \[-1, 0\] to"),
        ({**ONE_PEDAL, "high": [1, 2]}, r"Box \[2\] from"),
        ({**ONE_PEDAL, "shape": [2, 1]}, r"Box \[2, 1\] from"),
        ({"type": "Text", "shape": [3], "low": [-1, 0, 0], "high": [1, 1, 1]}, "Text"),
    ],
)
def test_a_space_of_something_else_is_described(space, said):
    with pytest.raises(UserError, match=f"the action space of set is {said}.*: driving takes choices"):
        action_space(Path("set"), space)


def test_a_long_space_is_described_in_a_hundred_and_twenty_characters():
    space = {"type": "Box", "shape": [1], "low": [7] * 200, "high": 1}
    with pytest.raises(UserError) as caught:
        action_space(Path("set"), space)
    said = str(caught.value).split(" is ", 1)[1].split(": driving")[0]
    assert len(said) == 120 and said.startswith("Box [1] from [7, 7")


def dict_of(**parts):
    return {"type": "Dict", "subspaces": parts}


def test_the_only_picture_looks_ahead_whatever_it_is_called():
    numbers = {"type": "Box", "dtype": "float32", "shape": [4]}
    grey, wide = {**picture(), "shape": [40, 48, 1]}, {**picture(), "dtype": "float32"}
    found, shapes = camera_spaces(Path("set"), dict_of(camera=picture(), imu=numbers, grey=grey, wide=wide))
    assert (found, shapes) == ({"center": ("observations", "camera")}, {"center": SIZE})
    found, shapes = camera_spaces(Path("set"), dict_of(center=picture(), left=picture((20, 30)), top=picture()))
    assert found == {"center": ("observations", "center"), "left": ("observations", "left")}
    assert shapes == {"center": SIZE, "left": (20, 30)}
    found, _ = camera_spaces(Path("set"), dict_of(left=picture()))
    assert found == {"center": ("observations", "left")}, "it is the only one there"


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (dict_of(top=picture(), left=picture()), "several pictures, and none is called 'center'"),
        (dict_of(), r"no picture \(Dict\)"),
        ({"type": "Box", "dtype": "uint8", "shape": [40, 48]}, r"no picture \(Box \[40, 48\]\)"),
        ({"type": "Box", "dtype": "uint8", "shape": [9] * 60}, r"no picture \(Box \[9(, 9){12},\)"),
        (dict_of(camera=3), r"no picture \(Dict\)"),
        ({"type": "Text"}, r"no picture \(Text\)"),
    ],
)
def test_observations_that_are_no_pictures_are_described(space, said):
    with pytest.raises(UserError, match=f"the observations of set are {said}: driving takes uint8 frames"):
        camera_spaces(Path("set"), space)


@pytest.mark.parametrize("shape", [[0, 48, 3], [40, 10_000, 3], [8192, 8192, 3], ["a", 48, 3], [None, 48, 3]])
def test_pictures_of_a_size_that_no_camera_has_are_refused(shape):
    with pytest.raises(UserError, match="set says that its pictures have the shape"):
        camera_spaces(Path("set"), {**picture(), "shape": shape})


def test_a_column_that_unpacks_to_absurdly_much_is_not_read(tmp_path, monkeypatch):
    folder = strangers_set(tmp_path / "set", [episode()])
    with h5py.File(folder / "data/main_data.hdf5", "r+") as file:
        del file["episode_0/observations"]
        file["episode_0"].create_dataset("observations", (4, *SIZE, 3), "u1", chunks=True, compression="gzip")
    unpacked = 4 * 40 * 48 * 3
    monkeypatch.setattr(minari_import, "HARMLESS_BYTES", unpacked)
    import_minari(folder, tmp_path / "back", fps=10.0)
    monkeypatch.setattr(minari_import, "HARMLESS_BYTES", unpacked - 1)
    with pytest.raises(UserError, match="'observations' unpacks to 0 MiB"):
        import_minari(folder, tmp_path / "never", fps=10.0)


def test_only_filters_that_come_with_hdf5_and_h5py_are_run(tmp_path):
    z = h5py.h5z
    ours = (z.FILTER_DEFLATE, z.FILTER_SHUFFLE, z.FILTER_FLETCHER32, z.FILTER_SZIP, z.FILTER_NBIT, z.FILTER_SCALEOFFSET)
    assert set(minari_import.FILTERS) == {*ours, z.FILTER_LZF}
    for i, options in enumerate(
        ({"compression": "lzf"}, {"fletcher32": True}, {"shuffle": True, "compression": "gzip"})
    ):
        folder = strangers_set(tmp_path / f"{i}", [episode()])
        with h5py.File(folder / "data/main_data.hdf5", "r+") as file:
            del file["episode_0/observations"]
            file["episode_0"].create_dataset("observations", data=frames_of(4), **options)
        import_minari(folder, tmp_path / f"back {i}", fps=10.0)
        np.testing.assert_array_equal(Recording.open(tmp_path / f"back {i}").load(0).decoded(), frames_of(4)[:3])


def test_more_pictures_than_an_episode_may_have_are_refused(tmp_path, monkeypatch):
    same = np.stack([np.frombuffer(encode_jpeg(frames_of(1)[0]), np.uint8)] * 4)
    folder = strangers_set(tmp_path / "set", [episode(observations=same)], jpeg_encoding=True)
    monkeypatch.setattr(minari_import.limits, "MAX_EPISODE_BYTES", 3 * same.shape[1])
    import_minari(folder, tmp_path / "back", fps=10.0)
    monkeypatch.setattr(minari_import.limits, "MAX_EPISODE_BYTES", 3 * same.shape[1] - 1)
    with pytest.raises(UserError, match="more than 0 GiB of pictures"):
        import_minari(folder, tmp_path / "never", fps=10.0)


# ---------------------------------------------------------------- what an export says


def exported(tmp_path, episodes, gym=None, name="set-v0", **options):
    folder = write(tmp_path / "recording", episodes, **options)
    told = []
    made = export_minari(folder, tmp_path / name, gym=gym, progress=told.append)
    description = json.loads((tmp_path / name / "data/metadata.json").read_text())
    return made, told, description, tmp_path / name / "data/main_data.hdf5"


def test_an_export_says_what_minari_asks_for(tmp_path):
    made, told, found, path = exported(tmp_path, [drive(1, 3, ended="lap finished"), drive(2, 4)], license="MIT")
    assert (made.episodes, made.frames, told) == (2, 7, [3, 7])
    assert (found["total_episodes"], found["total_steps"], found["data_format"]) == (2, 7, "hdf5")
    assert found["jpeg_encoding"] is False and "env_spec" not in found
    assert (found["dataset_id"], found["minari_version"], found["algorithm_name"]) == ("set-v0", "0.5.4", "geometric")
    assert json.loads(found["observation_space"]) == {
        "type": "Box",
        "dtype": "uint8",
        "shape": [12, 16, 3],
        "low": np.zeros((12, 16, 3), int).tolist(),
        "high": np.full((12, 16, 3), 255).tolist(),
    }
    assert json.loads(found["action_space"]) == TWO_PEDALS
    assert found["nacdrive"]["version"] == 1 and found["nacdrive"]["recording"]["license"] == "MIT"
    assert found["dataset_size"] == round(path.stat().st_size / 1e6, 1)
    assert found["description"] == "Driving in 'udacity' by 'geometric', recorded with nacdrive, 12.5 frames a second."
    with h5py.File(path) as file:
        assert list(file) == ["episode_0", "episode_1"]
        first, second = file["episode_0"], file["episode_1"]
        assert [dict(g.attrs) for g in (first, second)] == [
            {"id": 0, "seed": 1, "total_steps": 3},
            {"id": 1, "seed": 2, "total_steps": 4},
        ]
        assert first["terminations"][:].tolist() == [False, False, True] and not first["truncations"][:].any()
        assert second["truncations"][:].tolist() == [False, False, False, True] and not second["terminations"][:].any()
        assert (first["observations"].shape, first["actions"].shape) == ((4, 12, 16, 3), (3, 3))
        times, episode_ = first["infos/t_s"][:], drive(1, 3, ended="lap finished")
        assert times[:3].tolist() == episode_.t_s.tolist()
        assert times[3] - times[2] == pytest.approx(np.median(np.diff(episode_.t_s)))
        assert first["infos/steering"][:].tolist() == [*episode_.steering, episode_.steering[-1]]
        np.testing.assert_array_equal(first["observations"][:], [*episode_.decoded(), episode_.decoded()[-1]])
        assert first["actions"].maxshape == (None, 3) and first["rewards"].chunks == (3,)


def test_the_one_frame_of_an_episode_is_followed_a_second_later(tmp_path):
    _, _, _, path = exported(tmp_path, [drive(1, 1)])
    with h5py.File(path) as file:
        assert np.diff(file["episode_0/infos/t_s"][:]).tolist() == pytest.approx([1.0])


def test_frames_are_written_a_few_at_a_time_and_all_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr("nacdrive.extras.exchange.minari_export.BATCH", 2)
    _, _, _, path = exported(tmp_path, [drive(1, 5)])
    with h5py.File(path) as file:
        frames = drive(1, 5).decoded()
        np.testing.assert_array_equal(file["episode_0/observations"][:], [*frames, frames[-1]])


@pytest.mark.parametrize(("size", "jpeg"), [((32, 40), True), ((40, 32), True), ((31, 40), False), ((40, 31), False)])
def test_jpeg_frames_stay_encoded_where_minari_takes_them_for_images(tmp_path, size, jpeg):
    _, _, found, path = exported(tmp_path, [drive(1, 2, size=size, jpeg=True)])
    assert found["jpeg_encoding"] is jpeg
    if jpeg:
        with h5py.File(path) as file:
            assert [row.tobytes() for row in file["episode_0/observations"][:]][:2] == drive(
                1, 2, size=size, jpeg=True
            ).frames


def test_one_png_among_jpegs_makes_all_of_them_pixels(tmp_path):
    episodes = [drive(1, 2, size=(33, 40), jpeg=True), drive(2, 2, size=(33, 40))]
    assert exported(tmp_path, episodes)[2]["jpeg_encoding"] is False


def test_the_number_of_choices_is_that_of_the_scores_or_of_the_highest_driven(tmp_path):
    for name, episodes, expected in (
        ("scores", [drive(1, 3, choices=5, logits=True)], 5),
        ("driven", [drive(1, 40, choices=4), drive(2, 3, choices=2)], 4),
        ("mixed", [drive(1, 3, choices=4), drive(2, 3)], 0),
    ):
        recording = Recording.open(write(tmp_path / name, episodes))
        spaces = Spaces.of(recording, 2)
        assert spaces.choices == expected
        action = spaces.action
        assert action == ({**CHOICES, "n": expected} if expected else TWO_PEDALS)
        driven = spaces.actions_of(episodes[0])
        assert driven.shape == ((len(episodes[0]),) if expected else (3, 3))


def test_an_environment_of_one_pedal_gets_throttle_less_brake(tmp_path):
    _, _, found, path = exported(tmp_path, [drive(1, 3)], GymSpec("{}", 1))
    assert json.loads(found["action_space"]) == ONE_PEDAL and found["env_spec"] == "{}"
    episode_ = drive(1, 3)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(
            file["episode_0/actions"][:], np.stack([episode_.steering, episode_.throttle - episode_.brake], 1)
        )


@pytest.mark.parametrize(("pedals", "choices", "kept"), [(0, 3, True), (2, 3, False), (0, 0, False), (2, 0, True)])
def test_the_environment_is_named_only_where_its_actions_are_those_driven(tmp_path, pedals, choices, kept):
    _, _, found, _ = exported(tmp_path, [drive(1, 3, choices=choices)], GymSpec("{}", pedals))
    assert ("env_spec" in found) == kept


def test_cameras_in_some_episodes_only_are_refused(tmp_path):
    folder = write(tmp_path / "recording", [drive(1, 2, sides=True), drive(2, 2)])
    with pytest.raises(UserError, match="side cameras in some episodes only"):
        export_minari(folder, tmp_path / "set")


@pytest.mark.parametrize("episodes", [[(12, 16), (12, 18)], [(12, 16), (14, 16)]])
def test_frames_of_two_sizes_are_refused(tmp_path, episodes):
    folder = write(tmp_path / "recording", [drive(i, 2, size=size) for i, size in enumerate(episodes)])
    with pytest.raises(UserError, match=r"frame 0 \(center\) of the episode of seed 1 has another size"):
        export_minari(folder, tmp_path / "set")


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("lap-v0", "lap-v0"), ("lap-v", "lap-v-v0"), ("lap", "lap-v0"), ("a b+c", "a-b-c-v0"), ("++", "recording-v0")],
)
def test_a_folder_names_its_data_set(folder, expected):
    assert dataset_id(Path("x") / folder) == expected
