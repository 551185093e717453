from __future__ import annotations

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.envs.camera_noise import Camera, CameraNoise

GREY = np.full((96, 96, 3), 128, np.uint8)


def test_nothing_is_changed_by_default() -> None:
    assert not CameraNoise().active and str(CameraNoise()) == "none"
    assert Camera(CameraNoise())(GREY) is GREY


def test_noise_has_the_asked_strength_in_shares_of_full_scale() -> None:
    seen = Camera(CameraNoise(noise=0.1))(GREY).astype(float)
    assert seen.mean() == pytest.approx(128, abs=1) and seen.std() == pytest.approx(25.5, rel=0.03)
    assert (GREY == 128).all()


def test_blackout_happens_as_often_as_asked_and_is_wholly_black() -> None:
    camera = Camera(CameraNoise(blackout=0.3))
    black = [not camera(GREY).any() for _ in range(2000)]
    assert np.mean(black) == pytest.approx(0.3, abs=0.04)
    assert not Camera(CameraNoise(blackout=1))(GREY).any()


def test_delay_hands_out_old_frames() -> None:
    camera = Camera(CameraNoise(delay_steps=2))
    frames = [np.full((4, 4, 3), k, np.uint8) for k in range(5)]
    assert [int(camera(frame)[0, 0, 0]) for frame in frames] == [0, 0, 0, 1, 2]
    camera.reset(1)
    assert camera(frames[4])[0, 0, 0] == 4


def test_brightness_clips() -> None:
    assert (Camera(CameraNoise(brightness=0.5))(GREY) == 64).all()
    assert (Camera(CameraNoise(brightness=3))(GREY) == 255).all()


def test_same_seed_same_disturbance_whatever_went_before() -> None:
    camera = Camera(CameraNoise(noise=0.05, blackout=0.2))
    first = []
    for seed in (5, 6, 5):
        camera.reset(seed)
        first.append(np.stack([camera(GREY) for _ in range(8)]))
    assert np.array_equal(first[0], first[2]) and not np.array_equal(first[0], first[1])


@pytest.mark.parametrize(
    "setting", [{"noise": -0.1}, {"blackout": 1.1}, {"blackout": -1}, {"delay_steps": -1}, {"brightness": -1}]
)
def test_senseless_settings_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(UserError, match="give a"):
        CameraNoise(**setting)  # type: ignore[arg-type]


def test_settings_in_words() -> None:
    said = str(CameraNoise(noise=0.1, blackout=0.25, delay_steps=2, brightness=0.7))
    assert said == "noise 0.1 of full scale, 25% of the frames black, frames 2 decisions late, brightness x 0.7"
