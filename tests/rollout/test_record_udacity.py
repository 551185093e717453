"""Recordings of the built-in tracks: labelled by the teacher, whatever the wheel did; the same whoever records."""

import dataclasses

import numpy as np
import pytest
from nacdrive.rollout.lake_drive import Kicks, drive_lake

from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.datasets.udacity_log import read_log
from nacdrive.rollout.record import record_episodes
from nacdrive.rollout.record_config import LakeDrive, RecordConfig

DRIVE = LakeDrive("both", seconds=2.0, sides=False)


def test_a_drive_depends_on_its_seed_alone_and_both_tracks_take_turns():
    one, two, other = drive_lake(DRIVE, 4), drive_lake(DRIVE, 4), drive_lake(DRIVE, 5)
    assert one.frames == two.frames
    np.testing.assert_array_equal(one.steering, two.steering)
    assert (one.meta["track"], other.meta["track"]) == ("lake", "mountain")
    assert len(one) == 25
    assert one.t_s[1] == pytest.approx(0.08)
    assert one.decoded().shape == (25, 160, 320, 3)


def test_the_label_is_what_the_teacher_would_do_not_what_the_disturbed_wheel_did():
    kicked = drive_lake(dataclasses.replace(DRIVE, noise=2.0, seconds=6.0), 6)
    calm = drive_lake(dataclasses.replace(DRIVE, noise=0.0, seconds=6.0), 6)
    np.testing.assert_array_equal(calm.label, calm.steering)
    assert np.abs(kicked.label - kicked.steering).max() > 0.1
    assert np.abs(calm.steering).max() <= 1


class FullLock:
    """A pupil that only ever steers to the right."""

    def reset(self):
        self.seen = 0

    def step(self, frame, t_s, speed_mps=None):
        from nacdrive.common.action import Action

        self.seen += 1
        return Action(1.0, 0.0, 0.0)

    def neurons(self):
        return {}


def test_a_pupil_drives_and_the_teacher_labels():
    pupil = FullLock()
    drive = dataclasses.replace(DRIVE, beta=0.0, noise=0.0, seconds=30.0)
    episode = drive_lake(drive, 8, pupil=pupil, driver="full lock")
    assert pupil.seen == len(episode)
    assert episode.meta["ended"] == "left the field"
    assert (episode.steering[-10:] == 1).all()
    assert (episode.label[-10:] < 0).all()


def test_a_kick_turns_the_car_by_a_bounded_angle_at_every_speed():
    for speed in (3.0, 8.0, 13.0):
        kicks = Kicks(1.0, 0.08, np.random.default_rng(0))
        sizes = np.array([kicks(speed) - kicks.tremble for _ in range(5000)])
        turn = speed / 2.6 * np.tan(np.radians(25 * sizes)) * 0.08
        edges = np.flatnonzero(np.diff(np.r_[0, sizes != 0, 0]))
        turns = [turn[a:b].sum() for a, b in edges.reshape(-1, 2)]
        assert len(turns) > 50
        assert 0.2 < np.abs(turns).max() < 0.8


def test_a_recording_is_resumed_and_written_in_the_simulators_layout_too(tmp_path, capsys):
    from nacdrive.cli.record import run

    config = RecordConfig(
        env="udacity", episodes=1, max_frames=40, workers=1, out=tmp_path / "r", log=tmp_path / "log", track="lake"
    )
    assert run(config) == 0
    first = (tmp_path / "r" / "episode-3000000.parquet").read_bytes()
    record_episodes(dataclasses.replace(config, episodes=2, resume=True, log=None))
    recording = Recording.open(tmp_path / "r", source="udacity")
    assert [info.seed for info in recording.episodes] == [3_000_000, 3_000_001]
    assert recording.episodes[0].path.read_bytes() == first
    assert set(recording.load(0).side_frames) == {"left", "right"}
    assert recording.meta["fps"] == 12.5
    rows = read_log(tmp_path / "log").rows
    np.testing.assert_allclose([row.steering for row in rows], recording.load(0).steering, atol=1e-6)
    assert "driving_log.csv" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"env": "udacity", "expert": "ppo"}, "no --expert but geometric"),
        ({"env": "udacity", "min_return": 3.0}, "no --min-return"),
        ({"log": "x"}, "give --sim udacity"),
        ({"env": "udacity", "noise": 3.0}, "--noise is 3"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, told):
    with pytest.raises(UserError, match=told):
        RecordConfig(**options)


def test_defaults_follow_the_environment():
    assert RecordConfig().expert == "ppo"
    assert RecordConfig().out.name == "carracing-expert"
    assert (RecordConfig(env="udacity").expert, RecordConfig(env="udacity").out.name) == (
        "geometric",
        "udacity-geometric",
    )
