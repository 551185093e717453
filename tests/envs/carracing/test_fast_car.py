from __future__ import annotations

import numpy as np
import pytest

from nacdrive.envs.carracing.fast_renderer import FastCarRacing
from nacdrive.envs.carracing.lazy import LazyCarRacing


@pytest.mark.parametrize("seed", range(4))
def test_fast_car_is_where_the_official_one_is_to_the_last_bit(seed: int) -> None:
    official, fast = LazyCarRacing(), FastCarRacing()
    for env in (official, fast):
        env.drawing = False
        env.reset(seed=seed)
    choices = np.random.default_rng(seed).choice(5, 60, p=(0.1, 0.15, 0.15, 0.5, 0.1))
    for choice in np.repeat(choices, 6):
        assert official.step(choice)[1] == fast.step(choice)[1]
        assert tuple(official.car.hull.position) == tuple(fast.car.hull.position)
        assert official.car.hull.angle == fast.car.hull.angle
        for one, other in zip(official.car.wheels, fast.car.wheels, strict=True):
            assert (one.omega, one.phase, one.gas) == (other.omega, other.phase, other.gas)


def test_continuous_controls_give_the_same_drive() -> None:
    official, fast = LazyCarRacing(continuous=True), FastCarRacing(continuous=True)
    for env in (official, fast):
        env.drawing = False
        env.reset(seed=1)
    for action in np.random.default_rng(0).uniform((-1, 0, 0), (1, 1, 1), (200, 3)):
        action = action * (1, 1, float(action[1] < 0.3))
        assert official.step(action)[1] == fast.step(action)[1]
        assert tuple(official.car.hull.position) == tuple(fast.car.hull.position)
