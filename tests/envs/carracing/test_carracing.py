from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.envs.carracing.env import ACTIONS, make_carracing, to_action

KEYS = {"t_s", "speed_mps", "frame", "tiles_visited", "wheels_on_grass", "finished_lap"}


def choices(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).choice(5, size=count, p=(0.1, 0.15, 0.15, 0.5, 0.1)).tolist()


@pytest.mark.parametrize("renderer", ["official", "fast"])
@pytest.mark.parametrize("repeat", [1, 4])
def test_rewards_are_those_of_gym_make(renderer: str, repeat: int) -> None:
    ours = make_carracing(renderer=renderer, repeat=repeat)
    theirs = gymnasium.make("CarRacing-v3", continuous=False).unwrapped
    theirs._render = lambda mode: None  # drawing has no part in the rewards and takes 98 % of the time
    # The second lap: gym.make goes on in the world of the first one, ours starts a fresh one.
    for seed in (3, 8):
        ours.reset(seed=seed)
        theirs.reset(seed=seed)
        for choice in choices(seed, 200 // repeat):
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
    assert set(info) == KEYS and info["t_s"] == 0 and info["frame"] == 0
    for _ in range(25):
        frame, _, _, _, info = env.step(ACTIONS.index("gas"))
    assert frame.shape == (96, 96, 3) and frame.dtype == np.uint8
    assert set(info) == KEYS and info["frame"] == 100 and info["t_s"] == 2.0
    assert info["speed_mps"] > 20 and 0 < info["tiles_visited"] < 0.5 and info["finished_lap"] is False


def test_every_frame_hands_out_all_frames() -> None:
    env = make_carracing(renderer="fast", every_frame=True)
    _, info = env.reset(seed=1)
    assert len(info["frames"]) == 1
    frame, reward, _, _, info = env.step(3)
    assert len(info["frames"]) == 4 and info["frame_times_s"] == [0.02, 0.04, 0.06, 0.08]
    assert sum(info["frame_rewards"]) == reward
    np.testing.assert_array_equal(info["frames"][-1], frame)
    assert all(one is not other for one, other in zip(info["frames"], info["frames"][1:], strict=False))


def test_episode_is_truncated_at_the_frame_limit() -> None:
    env = make_carracing(renderer="fast", max_frames=6)
    env.reset(seed=1)
    assert env.step(0)[3] is False
    _, _, terminated, truncated, info = env.step(0)
    assert truncated and not terminated and info["frame"] == 6


def test_leaving_the_field_ends_the_episode_without_a_lap() -> None:
    env = make_carracing(renderer="fast", max_frames=10_000)
    env.reset(seed=1)
    terminated = False
    for _ in range(2000):
        _, reward, terminated, _, info = env.step(3)
        if terminated:
            break
    assert terminated and not info["finished_lap"] and reward <= -99


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
