from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from nacdrive.common.action import Action
from nacdrive.common.camera_mount import upright
from nacdrive.common.errors import UserError
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.envs.udacity_track.env import Score, UdacityTrackEnv
from nacdrive.envs.udacity_track.track import TRACKS
from tests.helpers.nightly import daily

GAS = np.array([0.0, 1.0], dtype=np.float32)


@pytest.fixture(scope="module")
def env() -> UdacityTrackEnv:
    return make_udacity_track(cameras=("center", "left", "right"), repeat=2)


@pytest.mark.parametrize("track", daily((*TRACKS, "random"), ["random"]))
def test_gymnasiums_own_check(track: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    made = gymnasium.make("nacdrive.envs:nacdrive/UdacityTrack-v0", track=track, render_mode="rgb_array")
    check_env(made.unwrapped, skip_render_check=track != "lake")
    assert made.metadata["render_fps"] == 10
    frame, _ = made.reset(seed=1)
    np.testing.assert_array_equal(made.render(), frame)
    made.close()


def test_no_panda_before_an_environment_is_made() -> None:
    names = "nacdrive.envs.udacity_track, nacdrive.drivers.pure_pursuit"
    code = f"import sys, {names}; sys.exit('panda3d' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_pygame_draws_without_a_display_after_panda(env: UdacityTrackEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    pole = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    pole.reset()
    assert np.asarray(pole.render()).ndim == 3
    pole.close()


def test_same_seed_and_actions_same_frames_in_any_environment(env: UdacityTrackEnv) -> None:
    other = make_udacity_track(cameras=("center", "left", "right"), repeat=2)
    other.reset(seed=9)
    for _ in range(2):
        frames = [one.reset(seed=5)[0] for one in (env, other)]
        np.testing.assert_array_equal(*frames)
        for k in range(8):
            action = np.array([np.sin(k), 0.8], dtype=np.float32)
            steps = [one.step(action) for one in (env, other)]
            np.testing.assert_array_equal(steps[0][0], steps[1][0])
            assert steps[0][1] == steps[1][1] and steps[0][4]["lane_offset_m"] == steps[1][4]["lane_offset_m"]
    other.close()
    np.testing.assert_array_equal(env.step(GAS)[0].shape, (160, 320, 3))  # closing one leaves the other alone


def test_seeds_change_the_picture_but_not_the_road(env: UdacityTrackEnv) -> None:
    frames, curvatures = [], []
    for seed in (1, 2):
        frame, info = env.reset(seed=seed, options={"s": 300.0})
        frames.append(frame.astype(float))
        curvatures.append(info["curvature"])
    assert np.abs(frames[0] - frames[1]).mean() > 8 and curvatures[0] == curvatures[1]


def test_without_randomness_only_the_start_differs() -> None:
    plain = make_udacity_track(randomize=False)
    frames = [plain.reset(seed=seed, options={"s": 300.0})[0] for seed in (1, 2)]
    np.testing.assert_array_equal(*frames)
    assert plain.reset(seed=1)[1]["s_m"] != plain.reset(seed=2)[1]["s_m"]
    plain.close()


def road_middle(frame: np.ndarray, row: int = 95) -> float:
    """Column of the middle between the two inner yellow lines in one row of pixels, once the picture is upright."""
    red, _, blue = upright(frame)[row].astype(float).T
    yellow = np.flatnonzero(red - blue > 60)
    return float((yellow[yellow < 160].max() + yellow[yellow >= 160].min()) / 2)


def test_the_car_sees_the_road_on_the_side_where_it_is() -> None:
    plain = make_udacity_track(randomize=False, cameras=("center", "left", "right"))
    plain.reset(seed=0)
    middle = {}
    for offset in (-0.6, 0.0, 0.6):
        frame, info = plain.place(60.0, offset)
        assert info["lane_offset_m"] == pytest.approx(offset, abs=0.02)
        middle[offset] = road_middle(frame)
    # A car to the right of the middle sees the road to its left; so does the right camera.
    assert middle[-0.6] > middle[0.0] + 8 and middle[0.6] < middle[0.0] - 8
    assert middle[0.0] == pytest.approx(160, abs=6)
    views = plain.place(60.0)[1]["cameras"]
    assert road_middle(views["left"]) > 168 and road_middle(views["right"]) < 152
    plain.close()


def test_heading_to_the_right_turns_the_road_to_the_left(env: UdacityTrackEnv) -> None:
    env.reset(seed=0)
    _, info = env.place(60.0, heading=0.2, speed=8.0)
    assert info["heading_error"] == pytest.approx(0.2, abs=1e-3) and info["speed_mps"] == pytest.approx(8, abs=0.01)
    before = info["lane_offset_m"]
    for _ in range(5):
        *_, info = env.step(np.zeros(2, dtype=np.float32))
    assert info["lane_offset_m"] > before + 0.2


def test_wheels_beyond_the_edge_are_counted(env: UdacityTrackEnv) -> None:
    env.reset(seed=0)
    half = env.track.half_width
    shares = [env.place(60.0, offset)[1]["wheels_off"] for offset in (0.0, half - 1.1, half, -half, half + 1.2)]
    assert shares == [0, 0, 0.5, 0.5, 1]
    assert env.place(60.0, half)[1]["off_road"] and not env.place(60.0, half - 1.1)[1]["off_road"]


def test_leaving_the_road_costs_and_ends_or_is_mended() -> None:
    for recover in (False, True):
        made = make_udacity_track(recover=recover, max_seconds=30)
        made.reset(seed=0)
        made.place(60.0, made.track.half_width + 2, heading=0.8, speed=10.0)
        rewards, terminated, info = [], False, {}
        for _ in range(20):
            _, reward, terminated, _, info = made.step(GAS)
            rewards.append(reward)
            if terminated or info["put_back"]:
                break
        assert min(rewards) < 0
        assert terminated is not recover and info["put_back"] is recover and info["interventions"] == int(recover)
        if recover:
            *_, info = made.step(GAS)  # the step before showed where it had got to
            assert abs(info["lane_offset_m"]) < 0.1 and not info["off_road"] and not info["put_back"]
        made.close()


def test_info_tells_where_the_car_is(env: UdacityTrackEnv) -> None:
    env.reset(seed=0)
    point, along = env.track.at(60.0)
    _, info = env.place(60.0, heading=0.1)
    assert (info["x_m"], info["y_m"]) == pytest.approx(point[:2], abs=1e-3)
    assert np.cos(info["heading_rad"] - along + 0.1) == pytest.approx(1)


def test_a_car_with_all_wheels_off_the_road_is_put_back_and_pays_for_it() -> None:
    made = make_udacity_track(recover=True)
    made.reset(seed=0)
    assert made.metrics() == {}
    made.place(60.0, made.track.half_width - 0.5, heading=0.8, speed=8.0)
    events: list[str] = []
    while "intervention: put back on the road" not in events:
        _, _, terminated, _, info = made.step(Action(0.0, 0.3, 0.0))
        events += info["events"]
    assert not terminated and info["wheels_off"] == 1 and events[0] == "off road"  # seen once, where it had got to
    assert made.wheels_off() == 0 and made.car.speed == pytest.approx(3, abs=0.1)
    metrics = made.metrics()
    assert metrics["interventions"] == metrics["off_road_events"] == 1
    assert metrics["autonomy"] == pytest.approx(100 * max(0, 1 - 6 / metrics["seconds"]))
    assert made.episode_meta() == {"track": "lake", "camera_mount": "scene"}
    made.close()


def test_without_recovery_leaving_the_field_is_the_end_and_counts_as_an_intervention() -> None:
    made = make_udacity_track()
    made.reset(seed=0)
    made.place(60.0, made.track.half_width + 2, heading=0.8, speed=10.0)
    terminated = False
    while not terminated:
        _, _, terminated, _, info = made.step(GAS)
    assert info["ended"] == "left the field" and made.metrics()["interventions"] == 1
    made.close()


def test_stuck_car_is_lost() -> None:
    env = make_udacity_track(randomize=False, repeat=10)
    env.reset(seed=0)
    terminated, info = False, {"t_s": 0.0}
    env.car.brake_torque = 1e6  # as after braking across 5 mph
    while not terminated and info["t_s"] < 5:
        _, _, terminated, _, info = env.step(GAS)
    assert terminated and info["t_s"] == pytest.approx(4.0, abs=0.03)
    env.close()


def test_laps_and_time_end_an_episode() -> None:
    made = make_udacity_track(laps=0.02, max_seconds=8, repeat=10)
    made.reset(seed=0, options={"s": 1230.0})  # across the point where the lap is counted from
    truncated, count = False, 0
    while not truncated and count < 50:
        _, _, _, truncated, info = made.step(GAS)
        count += 1
    assert truncated and 0.02 <= info["progress"] < 0.03 and info["t_s"] < 8
    assert info["ended"] == "laps finished"
    made.reset(seed=0)
    for _ in range(40):
        *_, truncated, info = made.step(np.zeros(2, dtype=np.float32))
    assert truncated and info["t_s"] == pytest.approx(8) and abs(info["progress"]) < 0.002
    assert info["ended"] == "time is up"
    made.close()


def test_a_drive_that_got_nowhere_left_the_road_at_most_a_hundred_times_as_often_a_lap() -> None:
    score = Score(None)
    score.note({"lane_offset_m": 6.0, "speed_mps": 1.0}, 0.0, True, False, False)
    numbers = score.numbers({"t_s": 1.0, "progress": -0.01})
    assert (numbers["off_road_events"], numbers["off_road_per_lap"]) == (1, 100.0)


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="unknown track 'lakes': did you mean 'lake'"):
        make_udacity_track("lakes")
    with pytest.raises(UserError, match="unknown camera"):
        make_udacity_track(cameras=("center", "rear"))
    for wrong in ({"laps": float("nan")}, {"max_seconds": -1.0}, {"repeat": 0}):
        with pytest.raises(UserError, match="must be above 0"):
            make_udacity_track(**wrong)
    made = make_udacity_track()
    with pytest.raises(UserError, match="call reset"):
        made.step(GAS)
    made.reset(seed=0)
    with pytest.raises(UserError, match="finite"):
        made.step(np.array([np.nan, 0]))
    made.close()


def frame_sum(seed: int) -> int:
    made = make_udacity_track()
    frame, _ = made.reset(seed=seed)
    made.close()
    return int(frame.sum())


def test_made_in_worker_processes() -> None:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool:
        assert list(pool.map(frame_sum, [3])) == [frame_sum(3)]
