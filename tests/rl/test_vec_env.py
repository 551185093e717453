from __future__ import annotations

import importlib.util
import multiprocessing

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.rl.training_env import Shaping
from nacdrive.rl.vec_env import ParallelVecEnv


def drive(laps: ParallelVecEnv, steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    seen = [laps.reset()]
    for _ in range(steps):
        laps.step_async(rng.integers(0, 5, laps.num_envs))
        frames, rewards, dones, _ = laps.step_wait()
        seen += [frames, rewards, dones]
    return seen


def test_number_of_processes_changes_nothing() -> None:
    results = []
    for workers in (1, 3):
        laps = ParallelVecEnv(3, workers, seed=4)
        results.append(drive(laps, 12))
        laps.close()
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_end_of_an_episode_hands_out_the_last_frames_and_the_raw_return() -> None:
    laps = ParallelVecEnv(1, 1, seed=4)
    laps.shape(Shaping(patience=3))
    laps.reset()
    for _ in range(20):
        laps.step_async(np.array([0]))
        frames, _, dones, infos = laps.step_wait()
        if dones[0]:
            break
    laps.close()
    assert dones[0] and infos[0]["TimeLimit.truncated"] is False
    assert infos[0]["terminal_observation"].shape == (4, 48, 48)
    assert set(infos[0]["episode"]) == {"r", "l", "tiles", "finished"}
    # The next episode has begun: all four frames are its first one.
    assert (frames[0] == frames[0][0]).all()


def test_dead_worker_gives_one_sentence() -> None:
    laps = ParallelVecEnv(1, 1, seed=4)
    laps.reset()
    (worker,) = multiprocessing.active_children()
    worker.kill()
    worker.join()
    with pytest.raises(UserError, match="--resume"):
        laps.step_async(np.array([0]))
        laps.step_wait()
    laps.close()


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_a_ray_cluster_changes_nothing() -> None:
    results = []
    for ray in (None, "local"):
        laps = ParallelVecEnv(2, 2, seed=4, ray=ray)
        results.append(drive(laps, 10))
        laps.close()
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
