from __future__ import annotations

from itertools import pairwise

import gymnasium
import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.envs.carracing.env import ACTIONS, make_carracing, to_action

KEYS = {"t_s", "speed_mps", "progress", "laps", "wheels_off", "off_road", "lane_offset_m", "x_m", "y_m", "heading_rad"}


def choices(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).choice(5, size=count, p=(0.1, 0.15, 0.15, 0.5, 0.1)).tolist()


@pytest.mark.parametrize("renderer", ["official", "fast"])
@pytest.mark.parametrize("repeat", [1, 4])
def test_rewards_are_those_of_gym_make(renderer: str, repeat: int) -> None:
    ours = make_carracing(renderer=renderer, repeat=repeat)
    theirs = gymnasium.make("CarRacing-v3", continuous=False).unwrapped
    theirs._render = lambda mode: None  # drawing has no part in the rewards and takes 98 % of the time
    # The second lap: gym.make goes on in the world of the first one, ours starts a fresh one.
    steps = 100 // repeat if renderer == "fast" else 25  # it draws every one
    for seed in (3, 8):
        ours.reset(seed=seed)
        theirs.reset(seed=seed)
        for choice in choices(seed, steps):
            expected = sum(theirs.step(choice)[1] for _ in range(repeat))
            assert ours.step(choice)[1] == pytest.approx(expected, abs=1e-9)


def test_last_frame_is_the_official_one() -> None:
    ours = make_carracing(repeat=4)
    theirs = gymnasium.make("CarRacing-v3", continuous=False)
    first, _ = theirs.reset(seed=5)
    frame, _ = ours.reset(seed=5)
    np.testing.assert_array_equal(frame, first)
    for choice in choices(5, 5):
        for _ in range(4):
            expected = theirs.step(choice)[0]
        np.testing.assert_array_equal(ours.step(choice)[0], expected)


def test_info_tells_time_speed_and_progress() -> None:
    env = make_carracing(renderer="fast")
    frame, info = env.reset(seed=1)
    assert set(info) >= KEYS and info["t_s"] == 0 and info["events"] == ()
    for _ in range(25):
        frame, _, _, _, info = env.step(ACTIONS.index("gas"))
    assert frame.shape == (96, 96, 3) and frame.dtype == np.uint8
    assert set(info) >= KEYS and info["t_s"] == 2.0 and "ended" not in info
    assert info["speed_mps"] > 20 and 0 < info["progress"] < 0.5 and info["laps"] == 0


def test_info_tells_where_the_car_is() -> None:
    env = make_carracing(renderer="fast")
    _, info = env.reset(seed=1)
    assert abs(info["lane_offset_m"]) < 0.5
    x, y = info["x_m"], info["y_m"]
    for _ in range(25):
        _, _, _, _, info = env.step(ACTIONS.index("gas"))
    ahead = np.array((info["x_m"] - x, info["y_m"] - y))
    along = np.array((np.cos(info["heading_rad"]), np.sin(info["heading_rad"])))
    assert ahead @ along > 0.95 * np.linalg.norm(ahead) > 5  # it drives where it points
    # The middle of the road at its nearest tile; to the right is positive.
    tiles = np.array([tile[2:4] for tile in env.world.track])
    nearest = np.linalg.norm(tiles - (info["x_m"], info["y_m"]), axis=1).min()
    assert 0 <= abs(info["lane_offset_m"]) <= nearest
    before = info["lane_offset_m"]
    for _ in range(5):
        _, _, _, _, info = env.step(ACTIONS.index("right"))
    assert info["lane_offset_m"] > before + 1


def test_leaving_the_road_is_an_event_said_once() -> None:
    env = make_carracing(renderer="fast")
    env.reset(seed=1)
    events, off = [], []
    for _ in range(60):
        _, _, terminated, truncated, info = env.step(ACTIONS.index("gas"))
        events += info["events"]
        off.append(info["off_road"])
        if terminated or truncated:
            break
    assert off[-1] and events == ["off road"] * sum(now and not before for before, now in pairwise([False, *off]))
    assert env.metrics() == {"finished_lap": 0}
    assert env.episode_meta() == {"finished_lap": False, "tiles_visited": info["progress"]}


@pytest.mark.parametrize("continuous", [False, True])
def test_an_action_in_nacdrive_units_does_what_its_native_form_does(continuous: bool) -> None:
    ours, theirs = (make_carracing(renderer="fast", continuous=continuous) for _ in range(2))
    native = np.array([0.4, 0.5, 0.0], dtype=np.float32) if continuous else 1
    action = Action(0.4, 0.5, 0.0) if continuous else ours.action_of(1)
    for env in (ours, theirs):
        env.reset(seed=3)
    for _ in range(20):
        frame, reward, *_ = ours.step(action)
        expected, expected_reward, *_ = theirs.step(native)
        np.testing.assert_array_equal(frame, expected)
        assert reward == expected_reward


def test_episode_is_truncated_at_the_frame_limit() -> None:
    env = make_carracing(renderer="fast", max_frames=6)
    env.reset(seed=1)
    assert env.step(0)[3] is False
    _, _, terminated, truncated, info = env.step(0)
    assert truncated and not terminated and info["t_s"] == 0.12 and info["ended"] == "time is up"


def test_leaving_the_field_ends_the_episode_without_a_lap() -> None:
    env = make_carracing(renderer="fast", max_frames=10_000)
    env.reset(seed=1)
    terminated = False
    for _ in range(2000):
        _, reward, terminated, _, info = env.step(3)
        if terminated:
            break
    assert terminated and not info["laps"] and reward <= -99 and info["ended"] == "left the field"


def test_a_seed_gives_the_same_lap_whatever_was_driven_before() -> None:
    def drive(env: object, seed: int) -> list[float]:
        env.reset(seed=seed)  # type: ignore[attr-defined]
        return [env.step(choice)[1] for choice in choices(0, 40)]  # type: ignore[attr-defined]

    used, fresh = make_carracing(renderer="fast"), make_carracing(renderer="fast")
    drive(used, 1)
    assert drive(used, 2) == drive(fresh, 2)


@pytest.mark.parametrize(
    ("name", "steering", "throttle", "brake"),
    [("nothing", 0, 0, 0), ("right", 1, 0, 0), ("left", -1, 0, 0), ("gas", 0, 1, 0), ("brake", 0, 0, 0.8)],
)
def test_choices_in_nacdrive_units(name: str, steering: float, throttle: float, brake: float) -> None:
    action = to_action(ACTIONS.index(name))
    assert (action.steering, action.throttle, action.brake) == (steering, throttle, brake)


def test_action_right_turns_the_car_clockwise() -> None:
    env = make_carracing(renderer="fast")
    env.reset(seed=1)
    for _ in range(15):
        env.step(ACTIONS.index("gas"))
    before = env.world.car.hull.angle
    for _ in range(3):
        env.step(ACTIONS.index("right"))
    assert env.world.car.hull.angle < before


def test_bad_input_gives_one_sentence() -> None:
    with pytest.raises(UserError, match="did you mean 'fast'"):
        make_carracing(renderer="fasst")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="at least 1"):
        make_carracing(repeat=0)
    with pytest.raises(UserError, match="no action"):
        to_action(5)
    with pytest.raises(UserError, match="reset"):
        make_carracing().step(0)
