from __future__ import annotations

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.drivers import load_expert
from nacdrive.drivers.constant import Constant
from nacdrive.drivers.options import check_expert
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.envs.registry import env_spec
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.rollout.drive import Drive


@pytest.mark.parametrize("make", [make_carracing, lambda: make_udacity_track(randomize=False)])
def test_it_gives_one_action_whatever_is_seen(make: type[DrivingEnv]) -> None:
    env, driver = make(), load_expert("constant")
    frame, info = env.reset(seed=3)
    driver.reset(env)
    first = driver.act(frame, info)
    for _ in range(4):
        frame, _, _, _, info = env.step(driver.act(frame, info))
    assert not driver.state().held, "it decides each time"
    assert driver.act(frame, info) == first and first.steering == 0 and info["speed_mps"] > 0.1
    assert first.throttle == 1.0 if env.actions else first == Action(0.0, 0.6, 0.0)
    env.close()


def test_of_five_actions_it_takes_the_nearest() -> None:
    env = make_carracing()
    for driver, name in ((Constant(steering=-0.7), "left"), (Constant(throttle=0.2), "nothing"), (Constant(), "gas")):
        driver.reset(env)
        assert env.actions[driver.act().choice] == name


def test_it_drives_in_every_verb_and_leaves_the_road_of_a_bend() -> None:
    for name in ("carracing", "udacity-track", "gym:CarRacing-v3"):
        check_expert(env_spec(name), "constant", name="--driver")
    drive = Drive("carracing", driver="constant", options={"renderer": "fast", "max_frames": 1000})
    with drive.open(1_000_000) as opened:
        *ticks, last = opened
        assert opened.env.metrics()["finished_lap"] == 0 and np.mean([tick.info["wheels_off"] for tick in ticks]) > 0.3
    assert last.episode_return < 300
