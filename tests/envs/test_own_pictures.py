"""Pictures and actions of environments of others, as drivers see and give them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.envs.gym_env import GymEnv, _image_keys, _is_picture, _rgb, adapt


class Room(gymnasium.Env):
    """Counts its steps; its picture is as bright as that."""

    observation_space: Any = spaces.Box(0, 255, (8, 9, 3), np.uint8)
    metadata = {"render_fps": 10}

    def __init__(self, actions: Any = None) -> None:
        self.action_space = actions or spaces.Discrete(3, start=1)
        self.taken: list[Any] = []

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.picture(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.taken.append(action)
        return self.picture(), 0.5, self.steps == 7, False, {"wheels_off": self.steps / 8, "progress": self.steps / 7}

    def picture(self) -> Any:
        return np.full((8, 9, 3), self.steps, np.uint8)


def test_an_action_is_held_for_its_frames_and_an_episode_ends_amid_them() -> None:
    room = Room()
    env = GymEnv(room, "own:room", repeat=3)
    assert env.step_s == pytest.approx(0.3) and env.actions == ("action 0", "action 1", "action 2")
    env.reset(seed=0)
    results = [env.step(Action(0, 0, 0, choice=1)) for _ in range(3)]
    assert room.taken == [2] * 7, "choices are counted from where the environment's begin"
    assert [reward for _, reward, *_ in results] == [1.5, 1.5, 0.5]
    assert [info["t_s"] for *_, info in results] == pytest.approx([0.3, 0.6, 0.7])
    assert [terminated for _, _, terminated, *_ in results] == [False, False, True]
    assert "ended" not in results[1][-1] and results[2][-1]["ended"] == "the episode is over"
    assert results[0][0].max() == 3 and env.render().max() == 7
    assert env.metrics() == pytest.approx({"progress": 1, "wheels_off": sum(range(1, 8)) / 7 / 8})
    assert env.episode_meta()["actions"] == list(env.actions)


def test_an_episode_is_over_after_the_most_frames() -> None:
    env = adapt(Room(), "own:room", repeat=2, max_frames=4)
    env.reset(seed=0)
    results = [env.step(Action(0, 0, 0, choice=0)) for _ in range(2)]
    assert [truncated for *_, truncated, _ in results] == [False, True] and results[1][-1]["ended"] == "time is up"
    with pytest.raises(UserError, match="nothing to render"):
        GymEnv(Room(), "own:room").render()


@pytest.mark.parametrize(
    ("space", "action", "native"),
    [
        (spaces.Box(-1, 1, (1,)), Action(-0.5, 1, 0), [-0.5]),
        (spaces.Box(-2, 4, (2,)), Action(0.0, 0.25, 0.75), [1, -0.5]),
        (spaces.Box(np.array([-1, 0], np.float32), np.array([1, 10], np.float32)), Action(2.0, 0.5, 0.0), [1, 5]),
        (spaces.Box(np.array([-1, 0], np.float32), np.array([1, 10], np.float32)), Action(-2.0, 0.0, 1.0), [-1, 0]),
        (
            spaces.Box(np.array([-1, 0, 0], np.float32), np.array([1, 1, 2], np.float32)),
            Action(0.25, 0.5, 0.75),
            [0.25, 0.5, 1.5],
        ),
    ],
)
def test_steering_and_pedals_are_scaled_to_what_the_environment_takes(space: Any, action: Action, native: Any) -> None:
    passed_on = GymEnv(Room(space), "own:room").native_action(action)
    assert passed_on.dtype == space.dtype and passed_on.tolist() == pytest.approx(native)


@pytest.mark.parametrize(
    ("space", "is_one"),
    [
        (spaces.Box(0, 255, (8, 8), np.uint8), True),
        (spaces.Box(0, 255, (7, 8), np.uint8), False),
        (spaces.Box(0, 255, (3, 8, 9), np.uint8), True),
        (spaces.Box(0, 255, (1, 8, 9), np.uint8), True),
        (spaces.Box(0, 255, (9, 8, 1), np.uint8), True),
        (spaces.Box(0, 255, (8, 9, 4), np.uint8), False),
        (spaces.Box(0, 1, (8, 9, 3), np.float32), True),
        (spaces.Box(0, 2, (8, 9, 3), np.float32), False),
        (spaces.Box(-1, 1, (8, 9, 3), np.float32), False),
        (spaces.Box(0, 1, (8, 9, 3), np.int64), False),
        (spaces.Box(0, 255, (3, 8, 8, 3), np.uint8), False),
        (spaces.Discrete(3), False),
    ],
)
def test_what_is_a_picture(space: Any, is_one: bool) -> None:
    assert _is_picture(space) is is_one and _image_keys(space) == (("",) if is_one else ())


def test_any_picture_becomes_rows_of_red_green_and_blue() -> None:
    grey = np.array([[0.0, 0.5], [1.5, -1]])
    assert _rgb(grey).tolist() == [[[0] * 3, [128] * 3], [[255] * 3, [0] * 3]]
    first = np.arange(3 * 8 * 9, dtype=np.uint8).reshape(3, 8, 9)
    np.testing.assert_array_equal(_rgb(first), first.transpose(1, 2, 0))
    np.testing.assert_array_equal(_rgb(first[:1]), first[0][..., None].repeat(3, 2))
    last = first.transpose(1, 2, 0)
    assert _rgb(last).shape == (8, 9, 3) and _rgb(last).flags["C_CONTIGUOUS"]
