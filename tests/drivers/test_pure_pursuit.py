from __future__ import annotations

import hashlib

import gymnasium
import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.drivers import load_driver
from nacdrive.drivers.pure_pursuit import ContinuousPursuit, DiscretePursuit, PurePursuit
from nacdrive.envs.camera_noise import CameraNoise, NoisyCamera
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.envs.udacity_track.env import UdacityTrackEnv
from nacdrive.envs.udacity_track.track import TRACKS


@pytest.fixture(scope="module", params=TRACKS)
def env(request: pytest.FixtureRequest) -> UdacityTrackEnv:
    return make_udacity_track(request.param, randomize=False, laps=0.15)


def at_work(env: gymnasium.Env) -> PurePursuit:
    driver = PurePursuit()
    driver.reset(env)
    return driver


def test_drives_part_of_a_lap_in_its_lane(env: UdacityTrackEnv) -> None:
    frame, info = env.reset(seed=4)
    driver, truncated, offsets = at_work(env), False, []
    while not truncated:
        frame, _, terminated, truncated, info = env.step(driver.act(frame, info))
        assert not terminated and not info["off_road"]
        offsets.append(abs(info["lane_offset_m"]))
    assert np.mean(offsets) < 0.3 and max(offsets) < 0.8
    assert env.laps * env.track.length / info["t_s"] > 9  # metres per second


@pytest.mark.parametrize(("offset", "heading"), [(-3.0, -0.3), (2.0, 0.4), (3.4, 0.0)])
def test_comes_back_from_anywhere_on_the_road(env: UdacityTrackEnv, offset: float, heading: float) -> None:
    env.reset(seed=0)
    driver = at_work(env)
    _, info = env.place(500.0, offset, heading, speed=6.0)
    for _ in range(40):
        *_, terminated, _, info = env.step(driver.act())
        assert not terminated
    assert abs(info["lane_offset_m"]) < 0.5 and abs(info["heading_error"]) < 0.25


def test_it_steers_towards_the_middle(env: UdacityTrackEnv) -> None:
    env.reset(seed=0)
    driver = at_work(env)
    straight = int(np.argmin(np.convolve(np.abs(env.track.curvature), np.ones(40), "same")))
    steering = {}
    for offset in (-2.0, 0.0, 2.0):
        env.place(straight * env.track.spacing, offset, speed=8.0)
        steering[offset] = driver.act().steering
    assert steering[-2.0] > 0.1 > abs(steering[0.0]) and steering[2.0] < -0.1
    env.place(straight * env.track.spacing, heading=2.5)
    assert driver.act().steering == -1.0  # turned around: full lock the short way


def test_one_driver_drives_either_simulator_seen_through_any_camera() -> None:
    driver = load_driver("geometric")
    for plain in (make_carracing(renderer="fast"), make_udacity_track(randomize=False)):
        env = NoisyCamera(plain, CameraNoise(blackout=1))
        frame, info = env.reset(seed=3)
        driver.reset(env)
        for _ in range(15):
            frame, _, terminated, _, info = env.step(driver.act(frame, info))
        assert not terminated and info["speed_mps"] > 5 and not info["off_road"]
        env.close()


def test_its_decisions_are_what_they_always_were() -> None:
    """Recordings and published numbers depend on every one of them: digest of the first version's."""
    lap = make_carracing(renderer="fast", max_frames=400)
    frame, info = lap.reset(seed=1_000_002)
    driver, choices, truncated = at_work(lap), [], False
    while not truncated:
        choices.append(driver.act(frame, info).choice)
        frame, _, _, truncated, info = lap.step(choices[-1])
    assert hashlib.sha256(bytes(choices)).hexdigest()[:12] == "346b3bfd51b5"

    track = make_udacity_track("mountain", randomize=False, repeat=4)
    track.reset(seed=3, options={"offset": 1.0, "heading": 0.1, "speed": 7.0})
    driver, steering = PurePursuit(ContinuousPursuit(top_speed=9.0)), []
    driver.reset(track)
    for _ in range(60):
        action = driver.act()
        steering += [round(action.steering, 6), round(action.throttle, 6), round(action.brake, 6)]
        track.step(action)
    # Since the car has the simulator's own wheelbase, wheels and torque.
    assert hashlib.sha256(repr(steering).encode()).hexdigest()[:12] == "c2de18970634"


def test_top_speeds_of_recordings_are_drawn() -> None:
    drawn = [PurePursuit().vary(np.random.default_rng(seed))["top_speed_mps"] for seed in range(20)]
    assert 5 < min(drawn) < 7 and 11 < max(drawn) < 13.4
    driver = PurePursuit()
    assert driver.vary(np.random.default_rng(3)) == {"top_speed_mps": driver.parameters.top_speed}


def test_mistakes_are_named(env: UdacityTrackEnv) -> None:
    with pytest.raises(UserError, match="let somebody else drive CartPoleEnv"):
        at_work(gymnasium.make("CartPole-v1"))
    with pytest.raises(UserError, match=r"call reset\(env\)"):
        PurePursuit().act()
    with pytest.raises(UserError, match="udacity-track is driven with ContinuousPursuit"):
        PurePursuit(DiscretePursuit()).reset(env)


def test_it_swings_out_where_a_slow_car_is_seen_and_back_before_both_are_level() -> None:
    env = make_udacity_track("lake", randomize=False, slow_cars=1)
    env.reset(seed=0)
    driver = at_work(env)
    s = float(np.argmin(np.convolve(np.abs(env.track.curvature), np.ones(80), "same")) * env.track.spacing)

    def steering(gap: float, offset: float) -> float:
        env.traffic.cars.s[:] = s + gap
        env.place(s, offset, speed=11.0)
        return driver.act().steering

    assert steering(60.0, 0.0) == steering(24.0, 0.0) > steering(17.0, 0.0) > steering(13.0, 0.0)
    # At its place beside the car it stays out, until the car's middle is 2.5 m ahead, and then turns back.
    assert abs(steering(10.0, -1.6) - steering(3.0, -1.6)) < 0.02 < steering(-3.0, -1.6) - steering(3.0, -1.6)
