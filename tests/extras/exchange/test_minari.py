"""Minari data sets, opened with the library itself, and the way round."""

import errno
import io
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from PIL import Image

from nacdrive.common.action import Action
from nacdrive.datasets.recording import Recording
from nacdrive.envs.gym_spec import gym_spec_of
from nacdrive.envs.registry import CARRACING
from tests.helpers.exchange import SAMPLE, assert_same_recording, drive, recordings, write

h5py = pytest.importorskip("h5py", reason="needs h5py")
from nacdrive.extras.exchange.minari_export import GymSpec, dataset_id, export_minari  # noqa: E402
from nacdrive.extras.exchange.minari_import import import_minari  # noqa: E402


def library():
    return pytest.importorskip("minari", reason="needs the real Minari")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("minari") / "carracing-expert-v0"
    gym = gym_spec_of(Recording.open(SAMPLE).meta)
    assert export_minari(SAMPLE, folder, gym=GymSpec(*gym)).frames == 647
    return folder


@pytest.mark.nightly
def test_the_sample_comes_back_file_for_file(exported, tmp_path):
    made = import_minari(exported, tmp_path / "back")
    assert (made.episodes, made.frames) == (3, 647)
    assert_same_recording(SAMPLE, tmp_path / "back")
    import_minari(exported / "data", tmp_path / "again")
    assert_same_recording(SAMPLE, tmp_path / "again")


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(recordings(alike=True))
def test_any_recording_comes_back_as_it_was(episodes):
    with tempfile.TemporaryDirectory() as name:
        folder = write(Path(name) / "recording", episodes, license="CC0-1.0")
        export_minari(folder, Path(name) / "set")
        import_minari(Path(name) / "set", Path(name) / "back")
        assert_same_recording(folder, Path(name) / "back")


def test_minari_itself_lists_and_opens_an_export(exported, monkeypatch):
    minari = library()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(exported.parent))
    assert list(minari.list_local_datasets()) == ["carracing-expert-v0"]
    dataset = minari.load_dataset("carracing-expert-v0")
    assert minari.get_normalized_score(dataset, np.array([-40.6, 910.3])).tolist() == [0.0, 1.0]
    assert (dataset.total_episodes, dataset.total_steps) == (3, 647)
    recording = Recording.open(SAMPLE)
    for index, theirs in enumerate(dataset.iterate_episodes()):
        ours = recording.load(index)
        np.testing.assert_array_equal(theirs.observations[:-1], ours.decoded())
        np.testing.assert_array_equal(theirs.observations[-1], ours.decoded()[-1])
        np.testing.assert_array_equal(theirs.actions, ours.choice)
        np.testing.assert_array_equal(theirs.rewards, ours.reward)
        np.testing.assert_array_equal(theirs.infos["t_s"][:-1], ours.t_s)
        np.testing.assert_array_equal(theirs.infos["speed_mps"][:-1], ours.speed_mps)
        # The third lap ran out of time.
        ended, stopped = (theirs.terminations, theirs.truncations)[:: 1 if index < 2 else -1]
        assert ended.tolist() == [False] * (len(ours) - 1) + [True]
        assert not stopped.any()
        assert len(theirs.infos["t_s"]) == len(ours) + 1
        assert all(dataset.action_space.contains(action) for action in theirs.actions)
    seeds = [row["seed"] for row in dataset.storage.get_episode_metadata(range(3))]
    assert seeds == [3_000_000, 3_000_001, 3_000_002]


def test_the_environment_that_minari_recovers_drives_the_recorded_lap_again(exported):
    dataset = library().MinariDataset(exported / "data")
    env = dataset.recover_environment()
    assert (env.observation_space, env.action_space) == (dataset.observation_space, dataset.action_space)
    lap = dataset[0]
    frame, _ = env.reset(seed=3_000_000)
    for step in range(12):
        np.testing.assert_array_equal(frame, lap.observations[step])
        frame, reward, *_ = env.step(lap.actions[step])
        assert np.float32(reward) == lap.rewards[step]
    env.close()


@pytest.mark.parametrize("jpeg", [True, False])
def test_minari_itself_shows_the_frames_of_three_cameras_as_they_are(tmp_path, jpeg):
    episode = drive(jpeg=jpeg, sides=True, size=(40, 48), label=True, steps=5)
    folder = write(tmp_path / "recording", [episode, drive(8, 3, jpeg=jpeg, sides=True, size=(40, 48))])
    export_minari(folder, tmp_path / "drive-v3")
    assert json.loads((tmp_path / "drive-v3/data/metadata.json").read_text())["jpeg_encoding"] is jpeg
    import_minari(tmp_path / "drive-v3", tmp_path / "back")
    assert_same_recording(folder, tmp_path / "back", frames="bytes")
    theirs = library().MinariDataset(tmp_path / "drive-v3/data")[0]
    for camera in ("center", "left", "right"):
        np.testing.assert_array_equal(theirs.observations[camera][:-1], episode.decoded(camera))
    np.testing.assert_array_equal(theirs.actions[:, 0], episode.steering)
    assert theirs.truncations[-1]


def test_pedals_of_the_built_in_track_are_one_number_and_come_back_as_two(tmp_path):
    recipe = {"track": "lake", "seconds": 20.0, "noise": 1.0, "sides": True, "repeat": 2, "parked_cars": 3}
    folder = write(tmp_path / "recording", [drive(sides=True)], recipe=recipe)
    made_in = gym_spec_of(Recording.open(folder).meta)
    options = json.loads(made_in[0])["kwargs"]
    assert options["cameras"] == ["center", "left", "right"]
    assert (options["repeat"], options["parked_cars"]) == (2, 3)
    export_minari(folder, tmp_path / "set", gym=GymSpec(*made_in))
    theirs = library().MinariDataset(tmp_path / "set/data")
    assert theirs.action_space.shape == (2,)
    episode = drive(sides=True)
    np.testing.assert_array_equal(theirs[0].actions[:, 1], episode.throttle - episode.brake)
    import_minari(tmp_path / "set", tmp_path / "back")
    assert_same_recording(folder, tmp_path / "back")


def test_an_environment_of_choices_is_left_out_where_somebody_steered(tmp_path):
    folder = write(tmp_path / "recording", [drive(source="carracing")], recipe={"max_frames": 1000})
    made_in = gym_spec_of(Recording.open(folder).meta)
    assert made_in is not None
    export_minari(folder, tmp_path / "set", gym=GymSpec(*made_in))
    assert "env_spec" not in json.loads((tmp_path / "set/data/metadata.json").read_text())


@pytest.mark.parametrize(
    "meta",
    [
        {"source": "udacity", "recipe": {"track": "both"}},
        {"source": "udacity", "recipe": {"imported": "log"}},
        {"source": "carracing", "recipe": {"merged": []}},
        {"source": "gym:Other-v1", "recipe": {"max_frames": 9}},
    ],
)
def test_what_is_not_one_environment_names_none(meta):
    assert gym_spec_of(meta) is None


def test_the_name_of_the_folder_is_the_data_sets_where_minari_allows_it():
    assert dataset_id(Path("x/lake-drive-v12")) == "lake-drive-v12"
    assert dataset_id(Path("x/my drive (2)")) == "my-drive-2-v0"
    assert dataset_id(Path("..."))[-3:] == "-v0"


def strangers_set(folder: Path, action_space, actions, *, infos=None, seed=None, jpeg=False):
    """A data set written by Minari itself."""
    minari = library()
    gymnasium = pytest.importorskip("gymnasium")
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    frames = np.random.default_rng(3).integers(0, 256, (len(actions) + 1, 40, 48, 3), dtype=np.uint8)
    space = gymnasium.spaces.Dict(
        {"camera": gymnasium.spaces.Box(0, 255, (40, 48, 3), np.uint8), "imu": gymnasium.spaces.Box(-1, 1, (4,))}
    )
    (folder / "data").mkdir(parents=True)
    storage = MinariStorage.new(folder / "data", space, action_space, data_format="hdf5", jpeg_encoding=jpeg)
    last = [False] * (len(actions) - 1) + [True]
    rewards = [0.5] * len(actions)
    observations = {"camera": list(frames), "imu": [np.zeros(4, np.float32)] * len(frames)}
    buffer = EpisodeBuffer(
        seed=seed, observations=observations, actions=list(actions), rewards=rewards, terminations=last,
        truncations=[False] * len(actions), infos=infos,
    )  # fmt: skip
    storage.update_episodes([buffer])
    storage.update_metadata({"dataset_id": "x-v0", "minari_version": minari.__version__})
    return frames


def test_a_strangers_data_set_is_read_frame_for_frame(tmp_path):
    gymnasium = pytest.importorskip("gymnasium")
    space = gymnasium.spaces.Box(np.array([-1, 0, 0], np.float32), np.ones(3, np.float32))
    actions = np.array([[-0.5, 1, 0], [0.25, 0, 0.5], [1, 0, 0]], np.float32)
    frames = strangers_set(tmp_path / "set", space, actions, infos={"t_s": [0.0, 0.1, 0.25, 0.4]}, seed=77)
    import_minari(tmp_path / "set", tmp_path / "back", source="udacity")
    back = Recording.open(tmp_path / "back", source="udacity")
    episode = back.load(0)
    np.testing.assert_array_equal(episode.decoded(), frames[:-1])
    np.testing.assert_array_equal(np.stack([episode.steering, episode.throttle, episode.brake], 1), actions)
    assert episode.t_s.tolist() == [0.0, 0.1, 0.25]
    assert (episode.seed, episode.driver, episode.episode_return) == (77, "minari", 1.5)
    assert episode.meta == {"ended": "terminated"}
    assert back.meta["fps"] == pytest.approx(8.0)


def test_choices_of_a_stranger_mean_what_the_named_environment_says(tmp_path):
    gymnasium = pytest.importorskip("gymnasium")
    frames = strangers_set(tmp_path / "set", gymnasium.spaces.Discrete(5), np.array([3, 1, 2, 4, 0]), jpeg=True)
    import_minari(tmp_path / "set", tmp_path / "back", source="carracing", fps=50.0, action_of=CARRACING.action_of)
    episode = Recording.open(tmp_path / "back", source="carracing").load(0)
    assert episode.choice.tolist() == [3, 1, 2, 4, 0]
    assert episode.steering.tolist() == [0, 1, -1, 0, 0]
    assert episode.throttle.tolist() == [1, 0, 0, 0, 0]
    np.testing.assert_allclose(episode.brake, [0, 0, 0, 0.8, 0])
    np.testing.assert_allclose(episode.t_s, [0, 0.02, 0.04, 0.06, 0.08])
    buffer = io.BytesIO()
    Image.fromarray(frames[2]).save(buffer, format="JPEG")
    assert episode.frames[2] == buffer.getvalue()
    assert episode.meta == {"ended": "terminated"}


def test_one_pedal_brakes_where_it_is_negative(tmp_path):
    gymnasium = pytest.importorskip("gymnasium")
    space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    strangers_set(tmp_path / "set", space, np.array([[0, 0.5], [0, -0.25]], np.float32))
    import_minari(tmp_path / "set", tmp_path / "back", fps=10.0, action_of=lambda i: Action(0, 0, 0))
    episode = Recording.open(tmp_path / "back").load(0)
    assert (episode.throttle.tolist(), episode.brake.tolist()) == ([0.5, 0], [0, 0.25])
    assert episode.seed == 0


def export_with_little_room(folder, out):
    """In a process that may write 60 kB into a file."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
    try:
        export_minari(folder, out)
    except OSError as error:
        os._exit(error.errno)
    os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the child is forked")
def test_a_file_that_cannot_be_written_to_its_end_is_an_error_and_leaves_nothing(tmp_path):
    folder = write(tmp_path / "r", [drive(seed, 8, size=(60, 80)) for seed in range(3)])
    child = os.fork()
    if child == 0:
        export_with_little_room(folder, tmp_path / "x-v0")
    # HDF5 ends the process by a segmentation fault if a write of its own fails.
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == errno.EFBIG
    left = [path.name for path in (tmp_path / "x-v0").iterdir()] if (tmp_path / "x-v0").exists() else []
    assert set(left) <= {".nacdrive-lock", ".nacdrive-result"}
