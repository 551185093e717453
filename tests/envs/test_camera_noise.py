from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.camera_noise import Camera, CameraNoise, NoisyCamera
from nacdrive.envs.carracing.env import make_carracing

NAN = math.nan
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


def test_a_blackout_lasts_as_long_as_asked() -> None:
    camera = Camera(CameraNoise(blackout=0.05, blackout_steps=6))
    black = "".join("x" if not camera(GREY).any() else "." for _ in range(4000)).strip("x")
    lengths = [len(run) for run in black.split(".") if run]
    assert min(lengths) == 6 and max(lengths) > 6
    assert black.count("x") / len(black) == pytest.approx(1 - 0.95**6, abs=0.04)
    camera.reset(0)
    seen = [camera(GREY).any() for _ in range(40)]
    camera.reset(0)
    assert [camera(GREY).any() for _ in range(40)] == seen
    # As a slider of the arena does.
    camera.change(replace(camera.disturbance, blackout=0.0))
    assert all([camera(GREY).any() for _ in range(100)][6:])


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
    "setting",
    [
        *({"noise": value} for value in (-0.1, NAN, math.inf)),
        *({"blackout": value} for value in (1.1, -1, NAN)),
        *({"brightness": value} for value in (-1, NAN, math.inf)),
        {"delay_steps": -1},
        {"blackout": 0.1, "blackout_steps": 0},
    ],
)
def test_senseless_settings_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(UserError, match="give "):
        CameraNoise(**setting)  # type: ignore[arg-type]


def test_settings_in_words() -> None:
    said = str(CameraNoise(noise=0.1, blackout=0.25, delay_steps=2, brightness=0.7))
    assert said == "noise 0.1 of full scale, 25% of the frames black, frames 2 decisions late, brightness x 0.7"
    assert "a blackout of 6 decisions" in str(CameraNoise(blackout=0.04, blackout_steps=6))


def test_an_environment_is_seen_through_it_and_the_true_frame_is_told() -> None:
    noise = CameraNoise(noise=0.05, blackout=0.3, delay_steps=1)
    plain, noisy = make_carracing(renderer="fast"), NoisyCamera(make_carracing(renderer="fast"), noise)
    for seed in (4, 9):
        camera = Camera(noise)
        camera.reset(seed)
        frame, _ = plain.reset(seed=seed)
        seen, info = noisy.reset(seed=seed)
        for _ in range(12):
            np.testing.assert_array_equal(seen, camera(frame))
            np.testing.assert_array_equal(info["clean_frame"], frame)
            frame, reward, *_ = plain.step(3)
            seen, noisy_reward, _, _, info = noisy.step(plain.action_of(3))
            assert reward == noisy_reward


def test_through_it_all_else_is_the_environments_own() -> None:
    env = make_carracing(renderer="fast", repeat=2)
    noisy = NoisyCamera(env, CameraNoise(noise=0.1))
    noisy.reset(seed=1)
    assert isinstance(noisy, DrivingEnv)
    assert (noisy.name, noisy.actions, noisy.step_s, noisy.realtime) == ("carracing", env.actions, 0.04, False)
    assert noisy.action_space is env.action_space and noisy.unwrapped is env
    assert noisy.metrics() == env.metrics() and noisy.episode_meta() == env.episode_meta()
    assert noisy.world is env.world and noisy.native_action(env.action_of(2)) == 2
    with pytest.raises(AttributeError, match="no_such"):
        noisy.no_such  # noqa: B018


def test_without_a_seed_each_episode_has_another_disturbance() -> None:
    camera, seen = Camera(CameraNoise(noise=0.1)), []
    for _ in range(2):
        camera.reset(None)
        seen.append(camera(GREY))
    assert not np.array_equal(*seen)
