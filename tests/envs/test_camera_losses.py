"""Frames that are lost, or come late: what is shown is told with the time when it was taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.policy import PolicyDriver
from nacdrive.envs.camera_noise import Camera, CameraNoise, NoisyCamera
from nacdrive.envs.udacity_track import make_udacity_track

FRAMES = [np.full((2, 2, 3), k, np.uint8) for k in range(200)]


def shown(noise: CameraNoise, seed: int = 0) -> tuple[list[int], list[float]]:
    """Number of the frame that is shown at each decision, and when it was taken."""
    camera = Camera(noise)
    camera.reset(seed)
    numbers, times = [], []
    for k, frame in enumerate(FRAMES):
        numbers.append(int(camera(frame, 0.1 * k)[0, 0, 0]))
        times.append(camera.taken_s)
    return numbers, times


@pytest.mark.parametrize(
    "noise",
    [
        CameraNoise(dropped=0.3),
        CameraNoise(late=3),
        CameraNoise(dropped=0.2, late=2),
        CameraNoise(dropped=0.3, delay_steps=5),
        CameraNoise(late=2, delay_steps=3),
    ],
    ids=str,
)
def test_the_frame_that_is_shown_was_taken_when_it_is_said(noise: CameraNoise) -> None:
    numbers, times = shown(noise)
    np.testing.assert_allclose(times, 0.1 * np.array(numbers))
    assert numbers[0] == 0 and (np.diff(numbers) >= 0).all()  # none overtakes another
    assert all(k >= number for k, number in enumerate(numbers))
    assert (numbers, times) == shown(noise) and numbers != shown(noise, seed=1)[0]


def test_so_many_are_lost_as_was_asked_and_none_is_later_than_the_most() -> None:
    lost = [number != k for k, number in enumerate(shown(CameraNoise(dropped=0.3))[0])]
    assert np.mean(lost) == pytest.approx(0.3, abs=0.09)
    behind = [k - number for k, number in enumerate(shown(CameraNoise(late=3))[0])]
    assert max(behind) == 3 and min(behind) == 0


def test_losses_leave_noise_and_blackouts_as_they_are() -> None:
    grey = np.full((8, 8, 3), 128, np.uint8)
    cameras = [Camera(CameraNoise(noise=0.1, blackout=0.3, dropped=share)) for share in (0.0, 0.5)]
    for camera in cameras:
        camera.reset(3)
    for k in range(20):
        np.testing.assert_array_equal(cameras[0](grey, 0.1 * k), cameras[1](grey, 0.1 * k))


class Remembers:
    """A policy that notes when it is asked."""

    name = "remembers"

    def __init__(self) -> None:
        self.times: list[float] = []

    def reset(self) -> None:
        self.times.clear()

    def step(self, frame: Any, t_s: float, speed_mps: float | None) -> Action:
        self.times.append(t_s)
        return Action(len(self.times) / 100, 0.2, 0.0)


def test_a_policy_decides_once_on_each_frame_at_the_time_it_was_taken() -> None:
    env = NoisyCamera(make_udacity_track("lake", randomize=False), CameraNoise(dropped=0.4, late=1))
    policy = Remembers()
    driver = PolicyDriver(policy)  # type: ignore[arg-type]
    frame, info = env.reset(seed=2)
    driver.reset(env)
    taken, held = [], 0
    for _ in range(25):
        taken.append(info["frame_t_s"])
        action = driver.act(frame, info)
        held += driver.state().held
        assert action.steering == len(policy.times) / 100  # a lost frame: the last decision again
        frame, _, _, _, info = env.step(action)
    assert policy.times == sorted(set(taken)) and held == 25 - len(policy.times) > 4
    env.close()


def test_without_losses_no_time_of_the_frame_is_told() -> None:
    env = NoisyCamera(make_udacity_track("lake", randomize=False), CameraNoise(delay_steps=2))
    assert "frame_t_s" not in env.reset(seed=0)[1]
    env.close()


def test_losses_that_make_no_sense_are_named() -> None:
    for wrong in (1.0, -0.1, float("nan")):
        with pytest.raises(UserError, match=r"--dropped is .*: give "):
            CameraNoise(dropped=wrong)
    with pytest.raises(UserError, match="--late is -1"):
        CameraNoise(late=-1)
    assert str(CameraNoise(dropped=0.2, late=3)) == "20% of the frames lost, frames up to 3 decisions late"
