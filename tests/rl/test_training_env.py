from __future__ import annotations

import numpy as np
import pytest

from nacdrive.rl.training_env import Shaping, TrainingEnv

GAS, LEFT = 3, 2


def drive(lap: TrainingEnv, actions: list[int]) -> list:
    return [(stack.copy(), *led_to) for stack, *led_to in (lap.step(action) for action in actions)]


def until_over(lap: TrainingEnv, action: int) -> tuple:
    for _ in range(500):
        _, _, terminated, truncated, info = lap.step(action)
        if "episode" in info:
            return terminated, truncated, info["episode"]
    raise AssertionError("the episode did not end")


def test_restored_lap_goes_on_exactly() -> None:
    actions = np.random.default_rng(0).choice(5, 90, p=(0.1, 0.15, 0.15, 0.5, 0.1)).tolist()
    lap = TrainingEnv(seed=7, index=2)
    lap.reset()
    drive(lap, actions[:30])
    lap.reset()
    stack = drive(lap, actions[30:60])[-1][0]
    state = lap.state()
    expected = drive(lap, actions[60:])

    other = TrainingEnv(seed=7, index=2)
    np.testing.assert_array_equal(other.restore(state), stack)
    for (frames, *led_to), action in zip(expected, actions[60:], strict=True):
        again, *same = other.step(action)
        np.testing.assert_array_equal(again, frames)
        assert same == led_to


def test_tracks_differ_between_environments_and_episodes() -> None:
    def tiles(lap: TrainingEnv) -> tuple:
        return tuple(lap.env.track[5])

    one, two = TrainingEnv(0, 0), TrainingEnv(0, 1)
    one.reset(), two.reset()
    first = tiles(one)
    one.reset()
    assert len({first, tiles(one), tiles(two)}) == 3


def test_grass_costs_reward_but_not_raw_return() -> None:
    lap = TrainingEnv(0, 0)
    totals = []
    for grass in (0.0, 0.8):
        lap.episode = -1
        lap.reset()
        lap.shaping = Shaping(grass=grass, missed_tile=0)
        rewards = [reward for _, reward, *_ in drive(lap, [GAS] * 40)]
        totals.append((sum(rewards), lap.raw_return))
    assert totals[0][1] == totals[1][1]
    assert totals[0][0] == pytest.approx(totals[0][1] * 0.01)
    assert totals[1][0] < totals[0][0] - 0.1


def test_fast_driving_costs_reward_above_the_limit_alone() -> None:
    lap = TrainingEnv(0, 0)
    totals = []
    for cost, limit in ((0.0, 10.0), (0.02, 1000.0), (0.02, 10.0)):
        lap.episode = -1
        lap.reset()
        lap.shaping = Shaping(grass=0, speed=cost, speed_limit=limit)
        totals.append(sum(reward for _, reward, *_ in drive(lap, [GAS] * 20)))
    assert totals[2] < totals[1] == totals[0]


def test_stall_ends_as_a_failure_after_patience() -> None:
    lap = TrainingEnv(0, 0)
    lap.shaping = Shaping(patience=5)
    lap.reset()
    terminated, truncated, episode = until_over(lap, 0)
    assert terminated and not truncated and episode["l"] <= 4 * 8


def test_stall_with_nearly_all_tiles_is_no_failure() -> None:
    lap = TrainingEnv(0, 0)
    lap.shaping = Shaping(patience=5)
    lap.reset()
    lap.env.tile_visited_count = len(lap.env.track) - 2
    terminated, truncated, _ = until_over(lap, 0)
    assert truncated and not terminated


def test_finished_lap_counts_as_truncated_so_that_its_value_goes_on() -> None:
    lap = TrainingEnv(0, 0)
    lap.reset()
    lap.env.tile_visited_count = len(lap.env.track)
    terminated, truncated, episode = until_over(lap, 0)
    assert truncated and not terminated and episode["finished"] == 1 and len(lap.actions) == 1


def test_leaving_the_field_is_a_failure_without_the_hundred() -> None:
    lap = TrainingEnv(0, 0)
    lap.shaping = Shaping(patience=10_000, grass=0)
    lap.reset()
    lap.env.car.hull.position = (1000.0, 1000.0)
    _, reward, terminated, _, info = lap.step(0)
    assert terminated and reward > -0.1 and info["episode"]["r"] < -90


def test_tile_left_behind_is_charged_once() -> None:
    lap = TrainingEnv(0, 0)
    lap.reset()
    for index in (0, 1, 3, 4):
        lap.env.road[index].road_visited = True
    lap.env.road[2].road_visited = False
    for tile in lap.env.road[5:]:
        tile.road_visited = False
    assert lap._missed() == 1
    assert lap._missed() == 0


def test_continuous_pedal_brakes_below_zero() -> None:
    lap = TrainingEnv(0, 0, continuous=True)
    lap.reset()
    for _ in range(10):
        lap.step(np.array([0.0, 1.0], dtype=np.float32))
    fast = lap.env.speed()
    for _ in range(10):
        lap.step(np.array([0.0, -0.5], dtype=np.float32))
    assert fast > 10 > lap.env.speed()
