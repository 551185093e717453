"""CarRacing in the page is Gymnasium's: the same roads, drives, rewards and pictures for the same seeds and actions."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nacdrive.envs.carracing.env import CarRacingEnv
from nacdrive.envs.carracing.sprites import score_picture
from nacdrive.extras.playground.html import STEPS, sprites

CLOSE_M = 1e-6
"""Of two roads of one seed."""
DRIFT_M = 0.02
"""Of two drives with the same actions after five seconds: sines differ in the last of 32 bits."""
PICTURES_EVERY = 25
SHORT, LAP = 250, 1000
Engine = Callable[[list[dict[str, Any]]], Any]


@dataclass
class Driven:
    """A drive in Python."""

    seed: int
    track: NDArray[np.float64]
    actions: list[list[float]] = field(default_factory=list)
    rows: list[list[float]] = field(default_factory=list)
    """Of each frame: x, y, angle, speed, reward, tiles."""
    pictures: list[NDArray[np.uint8]] = field(default_factory=list)

    def job(self) -> dict[str, Any]:
        """The same drive for the page's engine."""
        return {"seed": self.seed, "actions": self.actions, "pictures_every": PICTURES_EVERY * bool(self.pictures)}


def drive(env: CarRacingEnv, seed: int, frames: int, *, pictures: bool) -> Driven:
    """Along the road with a hand that is pushed now and then, so that tyres slip, joints reach their limits and the car
    comes on to the grass.
    """
    frame, _ = env.reset(seed=seed)
    driven = Driven(seed, np.array(env.world.track))
    rng = np.random.default_rng(seed)
    push = 0.0
    if pictures:
        driven.pictures.append(frame)
    for k in range(frames):
        hull = env.world.car.hull
        place = np.array(hull.position)
        ahead = driven.track[(((driven.track[:, 2:] - place) ** 2).sum(axis=1).argmin() + 4) % len(driven.track), 2:]
        dx, dy = ahead - place
        error = (np.arctan2(-dx, dy) - hull.angle + np.pi) % (2 * np.pi) - np.pi
        if k % 40 == 0:
            push = rng.normal(0, 0.5) * (k % 80 == 0)
        speed = env.world.speed()
        brake = 0.3 if speed > 45 else 0.95 if k % 200 > 190 else 0.0
        action = np.array([np.clip(push - 2 * error, -1, 1), 0.4 * (speed < 35), brake], np.float32)
        env.world.drawing = pictures
        frame, reward, terminated, truncated, _ = env.step(action)
        driven.actions.append(action.tolist())
        x, y = hull.position
        driven.rows.append([x, y, hull.angle, env.world.speed(), float(reward), env.world.tile_visited_count])
        if pictures and (k + 1) % PICTURES_EVERY == 0:
            driven.pictures.append(frame)
        if terminated or truncated:
            break
    return driven


@pytest.fixture(scope="module")
def env() -> CarRacingEnv:
    return CarRacingEnv(renderer="fast", continuous=True, repeat=1, observation="rgb", instruments=True)


@pytest.fixture(scope="module")
def drives(env: CarRacingEnv, engine: Engine) -> list[tuple[Driven, Any]]:
    """Two short ones, and roads alone of seeds that numpy spreads otherwise."""
    python = [drive(env, seed, SHORT, pictures=True) for seed in (4_000_007, 4_000_011)]
    python += [drive(env, seed, 0, pictures=False) for seed in (0, 1, 2**31 - 1)]
    return list(zip(python, engine([one.job() for one in python]), strict=True))


def test_a_seed_gives_the_same_road(drives: list[tuple[Driven, Any]]) -> None:
    for python, page in drives:
        np.testing.assert_allclose(page["stations"], python.track, atol=CLOSE_M, rtol=0)


def test_the_same_actions_give_the_same_five_seconds(drives: list[tuple[Driven, Any]]) -> None:
    for python, page in drives[:2]:
        mine, true = np.array(page["rows"]), np.array(python.rows)
        assert len(mine) == SHORT
        np.testing.assert_allclose(mine[:, :2], true[:, :2], atol=DRIFT_M, rtol=0)
        np.testing.assert_allclose(mine[:, 2], true[:, 2], atol=1e-3, rtol=0)
        np.testing.assert_allclose(mine[:, 3], true[:, 3], atol=1e-2, rtol=0)
        np.testing.assert_allclose(mine[:, 4], true[:, 4], atol=1e-9, rtol=0)
        np.testing.assert_array_equal(mine[:, 5], true[:, 5])


def test_the_same_state_gives_the_same_picture(drives: list[tuple[Driven, Any]]) -> None:
    for python, page in drives[:2]:
        mine = np.array(page["pictures"], np.int16).reshape(-1, 96, 96, 3)
        apart = np.abs(mine - np.array(python.pictures, np.int16)).max(axis=3)
        assert (apart == 0).mean(axis=(1, 2)).min() >= 0.999
        assert apart.max() <= 2


@pytest.mark.nightly
def test_whole_laps_have_the_same_return(env: CarRacingEnv, engine: Engine) -> None:
    python = [drive(env, seed, LAP, pictures=False) for seed in range(4_000_000, 4_000_006)]
    for one, page in zip(python, engine([one.job() for one in python]), strict=True):
        mine, true = np.array(page["rows"]), np.array(one.rows)
        assert abs(len(mine) - len(true)) <= 10
        assert abs(mine[:, 4].sum() - true[:, 4].sum()) <= 2


def test_every_angle_of_the_wheels_has_its_picture() -> None:
    made = sprites()
    count = len(base64.b64decode(made["red"])) // len(base64.b64decode(made["stays"])) * len(STEPS)
    assert made["firstAngle"] == -45 and count == len(STEPS) == 91, "joints let them go to 40 hundredths both ways"


def test_every_score_that_a_lap_can_reach_has_its_picture() -> None:
    """A lap is worth 1,000 points at most; the page takes the picture by its place."""
    scores = base64.b64decode(sprites()["scores"])
    highest = score_picture("1000", rgb=True)[..., 0].tobytes()
    assert scores.endswith(highest) and len(scores) == 1102 * len(highest)
