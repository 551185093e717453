from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.carracing.env import CarRacingEnv
from nacdrive.envs.gym_env import GymEnv, adapt, make_gym

RGB = spaces.Box(0, 255, (24, 32, 3), np.uint8)


class Foreign(gymnasium.Env[Any, Any]):
    """Counts its steps into the picture and remembers what it was given."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, observes: spaces.Space[Any], acts: spaces.Space[Any], render_mode: str | None = None) -> None:
        self.observation_space, self.action_space, self.render_mode = observes, acts, render_mode
        self.given: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.given = []
        return self._observation(self.observation_space), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.given.append(action)
        count = len(self.given)
        said = {"speed_mps": 3.0, "progress": count / 10, "wheels_off": count % 2, "own": "word"}
        return self._observation(self.observation_space), 1.0, count >= 10, False, said

    def render(self) -> Any:
        return np.full((24, 32, 3), len(self.given), np.uint8)

    def _observation(self, space: spaces.Space[Any]) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._observation(part) for key, part in space.items()}
        assert isinstance(space, spaces.Box)
        value = len(self.given) / (1 if space.dtype == np.uint8 else 255)
        return np.full(space.shape, value, space.dtype)


WHEEL = spaces.Box(-1, 1, (2,), np.float32)
FLAT = spaces.Box(-1, 1, (4,), np.float32)


@pytest.mark.parametrize(
    ("observes", "render_mode"),
    [
        (RGB, None),
        (spaces.Box(0, 255, (24, 32), np.uint8), None),
        (spaces.Box(0, 255, (24, 32, 1), np.uint8), None),
        (spaces.Box(0, 255, (3, 24, 32), np.uint8), None),
        (spaces.Box(0, 1, (24, 32, 3), np.float32), None),
        (spaces.Dict(speed=FLAT, rgb=RGB), None),
        (FLAT, "rgb_array"),
    ],
    ids=["rgb", "grey", "one channel", "channels first", "0 to 1", "dict", "rendered"],
)
def test_whatever_shows_pictures_is_seen_in_rgb(observes: spaces.Space[Any], render_mode: str | None) -> None:
    env = GymEnv(Foreign(observes, WHEEL, render_mode))
    frame, _ = env.reset(seed=1)
    for count in range(1, 4):
        assert frame.shape == (24, 32, 3) == env.observation_space.shape and frame.dtype == np.uint8
        frame, *_ = env.step(Action(0.0, 0.0, 0.0))
        assert (frame == count).all() and (env.render() == count).all()


@pytest.mark.parametrize(
    ("acts", "native"),
    [
        (spaces.Box(-1, 1, (1,), np.float32), [0.5]),
        (spaces.Box(-1, 1, (2,), np.float32), [0.5, -0.25]),
        (spaces.Box(np.array([-1, 0, 0]), np.array([1, 1, 1]), dtype=np.float64), [0.5, 0.25, 0.5]),
        (spaces.Box(np.array([-30, 0]), np.array([30, 10]), dtype=np.float32), [15, 0]),
        (spaces.Box(-1, 1, (3,), np.float32), [0.5, -0.5, 0.0]),
        (spaces.Box(0, 1, (1,), np.float32), [0.75]),
        (spaces.Box(0, 1, (3,), np.float32), [0.75, 0.25, 0.5]),
    ],
    ids=[
        "steering",
        "steering and pedal",
        "steering, gas and brake",
        "other bounds",
        "three from -1",
        "steering from 0",
        "three from 0",
    ],
)
def test_actions_are_stretched_to_the_bounds(acts: spaces.Space[Any], native: list[float]) -> None:
    foreign = Foreign(RGB, acts)
    env = GymEnv(foreign)
    env.reset(seed=1)
    env.step(Action(0.5, 0.25, 0.5))
    np.testing.assert_allclose(foreign.given[0], native)


def test_discrete_actions_have_names_that_tell_what_they_do() -> None:
    foreign = Foreign(RGB, spaces.Discrete(3, start=1))
    env = GymEnv(foreign, actions=("idle", "turn left", "accelerate"))
    env.reset(seed=1)
    assert (env.action_of(1).steering, env.action_of(2).throttle) == (-1, 1)
    env.step(env.action_of(2))
    assert foreign.given == [3]
    with pytest.raises(UserError, match=r"takes one of 3 actions \(idle, turn left, accelerate\), and its driver gave"):
        env.step(Action(0.0, 1.0, 0.0))
    assert GymEnv(Foreign(RGB, spaces.Discrete(2))).actions == ("action 0", "action 1")


def test_a_wrapper_of_the_users_may_name_the_actions() -> None:
    class Named(gymnasium.Wrapper):  # type: ignore[type-arg]
        def get_action_meanings(self) -> tuple[str, ...]:
            return ("wait", "left")

    env = GymEnv(gymnasium.wrappers.TimeLimit(Named(Foreign(RGB, spaces.Discrete(2))), 9))
    assert env.actions == ("wait", "left") and env.action_of(1).steering == -1
    assert env.episode_meta() == {"env": "gym", "actions": ["wait", "left"]}


def test_actions_of_any_other_form_are_made_by_the_users_function() -> None:
    foreign = Foreign(RGB, spaces.Dict(turn=spaces.Discrete(3)))
    env = GymEnv(foreign, to_native=lambda action: {"turn": round(action.steering) + 1})
    env.reset(seed=1)
    env.step(Action(0.9, 0.0, 0.0))
    assert foreign.given == [{"turn": 2}]


def test_time_follows_from_the_frame_rate_and_the_repetition() -> None:
    foreign = Foreign(RGB, WHEEL)
    env = GymEnv(foreign, repeat=3)
    _, info = env.reset(seed=1)
    assert info["t_s"] == 0 and env.step_s == pytest.approx(0.15)
    _, reward, terminated, _, info = env.step(Action(0.0, 1.0, 0.0))
    assert info["t_s"] == pytest.approx(0.15) and reward == 3 and len(foreign.given) == 3 and not terminated
    assert (info["speed_mps"], info["progress"], info["own"]) == (3.0, 0.3, "word")
    while not terminated:
        _, reward, terminated, truncated, info = env.step(Action(0.0, 1.0, 0.0))
    assert reward == 1 and not truncated and info["ended"] == "the episode is over"
    assert env.metrics() == {"progress": 1.0, "wheels_off": 0.5}


def test_what_happens_in_any_frame_of_a_decision_is_told_with_it() -> None:
    class Eventful(Foreign):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            *rest, info = super().step(action)
            events: dict[int, Any] = {1: 7, 2: ("off road",), 3: None, 4: ["back"]}
            return *rest, info | {"events": events.get(len(self.given), ())}  # type: ignore[return-value]

    env = GymEnv(Eventful(RGB, WHEEL), repeat=4)
    assert env.reset(seed=1)[1]["events"] == ()
    *_, info = env.step(Action(0.0, 1.0, 0.0))
    assert info["events"] == ("off road", "back") and info["wheels_off"] == 0.5
    *_, info = env.step(Action(0.0, 1.0, 0.0))
    assert info["events"] == ()


def test_an_episode_ends_after_the_frames_that_were_asked_for() -> None:
    env = GymEnv(Foreign(RGB, WHEEL), repeat=2, max_frames=5)
    env.reset(seed=1)
    ends = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_what_does_not_fit_is_said_in_one_sentence() -> None:
    with pytest.raises(UserError, match=r"own shows no pictures: its observations are Box\(4,\)"):
        GymEnv(Foreign(FLAT, WHEEL), "own")
    with pytest.raises(UserError, match=r"nothing fits the actions of own, MultiBinary\(4\).*to_native"):
        GymEnv(Foreign(RGB, spaces.MultiBinary(4)), "own")
    with pytest.raises(UserError, match="nothing fits the actions"):
        GymEnv(Foreign(RGB, spaces.Box(-np.inf, np.inf, (2,))), "own")
    with pytest.raises(UserError, match="has 3 actions, and 2 names are given: left, right"):
        GymEnv(Foreign(RGB, spaces.Discrete(3)), "own", actions=("left", "right"))
    with pytest.raises(UserError, match="own made dict, and not a Gymnasium environment"):
        adapt({}, "own")
    with pytest.raises(UserError, match=r"'ALE/Pong-v5': .*[^?]\. One .* gym:MODULE:ALE/Pong-v5, as in .*gym:ale_py:"):
        make_gym("ALE/Pong-v5", name="gym:ALE/Pong-v5")
    with pytest.raises(UserError, match=r"make 'CarRacin-v3': .*Did you mean.*CarRacing[^M]*$"):
        make_gym("CarRacin-v3", name="gym:CarRacin-v3")


def test_what_an_environment_raises_is_said_in_one_sentence() -> None:
    env = GymEnv(Foreign(RGB, WHEEL), "own")
    with pytest.raises(UserError, match=r"own failed in step\(\): AssertionError"):
        env.reset(seed=1)
        env.step(np.full(2, 7.0, np.float32))


def test_an_environment_of_before_gymnasium_026_is_said_to_be_one() -> None:
    class Old(Foreign):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, _, info = super().step(action)
            return observation, reward, terminated, info

    env = GymEnv(Old(RGB, WHEEL), "own")
    env.reset(seed=1)
    with pytest.raises(UserError, match=r"own failed in step\(\): .*has to give 5 values, as since Gymnasium 0.26"):
        env.step(Action(0.0, 0.0, 0.0))


def test_a_picture_of_another_size_is_no_frame_of_the_episode() -> None:
    foreign = Foreign(RGB, WHEEL)
    env = GymEnv(foreign, "own")
    env.reset(seed=1)
    foreign.observation_space = spaces.Box(0, 255, (20, 32, 3), np.uint8)
    with pytest.raises(UserError, match=r"own shows pictures of \(24, 32, 3\), and one of \(20, 32, 3\)"):
        env.step(Action(0.0, 0.0, 0.0))


def test_any_id_of_gymnasium_works() -> None:
    pole = make_gym("CartPole-v1", name="gym:CartPole-v1", max_frames=7)
    frame, _ = pole.reset(seed=2)
    assert frame.shape == (400, 600, 3) and pole.step_s == pytest.approx(1 / 50)
    pole.close()
    official = make_gym("CarRacing-v3", name="gym:CarRacing-v3", repeat=2)
    frame, _ = official.reset(seed=2)
    again, _, _, _, info = official.step(Action(0.0, 1.0, 0.0))
    assert frame.shape == (96, 96, 3) and info["t_s"] == pytest.approx(0.04) and (frame != again).any()
    official.close()


def test_our_own_environments_need_no_adapter() -> None:
    made = make_gym("nacdrive/CarRacingFast-v0", name="gym:nacdrive/CarRacingFast-v0")
    assert isinstance(made, CarRacingEnv) and isinstance(made, DrivingEnv)
    limited = gymnasium.wrappers.TimeLimit(CarRacingEnv(renderer="fast"), 3)
    assert isinstance(adapt(limited, "limited"), GymEnv)  # the limit counts


def test_the_adapter_is_a_sound_gymnasium_environment() -> None:
    check_env(GymEnv(Foreign(RGB, WHEEL)), skip_render_check=True)
