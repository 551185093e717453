from __future__ import annotations

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.drivers.pure_pursuit_track import LakeDriver, LakeExpert, to_lake
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.envs.udacity_track.env import UdacityTrackEnv
from nacdrive.envs.udacity_track.track import TRACKS


@pytest.fixture(scope="module", params=TRACKS)
def env(request: pytest.FixtureRequest) -> UdacityTrackEnv:
    return make_udacity_track(request.param, randomize=False, laps=0.15)


def test_drives_part_of_a_lap_in_its_lane(env: UdacityTrackEnv) -> None:
    frame, _ = env.reset(seed=4)
    driver, truncated, offsets = LakeExpert().new_episode(env), False, []
    while not truncated:
        frame, _, terminated, truncated, info = env.step(to_lake(driver.observe(frame)))
        assert not terminated and not info["off_road"]
        offsets.append(abs(info["lane_offset_m"]))
    assert np.mean(offsets) < 0.3 and max(offsets) < 0.8
    assert env.laps * env.course.length / info["t_s"] > 9  # metres per second


@pytest.mark.parametrize(("offset", "heading"), [(-3.0, -0.3), (2.0, 0.4), (3.4, 0.0)])
def test_comes_back_from_anywhere_on_the_road(env: UdacityTrackEnv, offset: float, heading: float) -> None:
    env.reset(seed=0)
    driver = LakeDriver(env)
    _, info = env.place(500.0, offset, heading, speed=6.0)
    for _ in range(40):
        *_, terminated, _, info = env.step(to_lake(driver.step()))
        assert not terminated
    assert abs(info["lane_offset_m"]) < 0.5 and abs(info["heading_error"]) < 0.25


def test_label_steers_towards_the_middle(env: UdacityTrackEnv) -> None:
    env.reset(seed=0)
    driver = LakeDriver(env)
    straight = int(np.argmin(np.convolve(np.abs(env.course.curvature), np.ones(40), "same")))
    labels = {}
    for offset in (-2.0, 0.0, 2.0):
        env.place(straight * env.course.spacing, offset, speed=8.0)
        labels[offset] = driver.label()
    assert labels[-2.0] > 0.1 > abs(labels[0.0]) and labels[2.0] < -0.1
    env.place(straight * env.course.spacing, heading=2.5)
    assert driver.label() == -1.0  # turned around: full lock the short way


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="built-in tracks alone"):
        LakeDriver(make_carracing())
    with pytest.raises(UserError, match="new_episode"):
        LakeExpert().act(np.zeros((160, 320, 3), dtype=np.uint8))
