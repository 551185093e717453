from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nacdrive.common.errors import UserError
from nacdrive.drivers import load_expert
from nacdrive.drivers.predictive import AROUND, INERTIA, SURE, Predictive, Road, predict
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.envs.carracing.fast_renderer import FastCarRacing
from nacdrive.envs.start import bad_start
from nacdrive.rollout.drive import Drive
from tests.helpers.nightly import daily

EXPERT = "nacdrive.drivers.predictive:Predictive"


@pytest.fixture(scope="module")
def world() -> FastCarRacing:
    made = FastCarRacing()
    made.drawing = False
    return made


def centre_of(car: Any) -> Any:
    bodies = (car.hull, *car.wheels)
    return sum(np.array(body.worldCenter) * body.mass for body in bodies) / sum(body.mass for body in bodies)


def test_the_model_goes_where_the_simulator_goes(world: FastCarRacing) -> None:
    """For 0.24 s of any three decisions, from states all over a lap: road, grass, slides, and from one to the other."""
    world.reset(seed=1_000_000)
    driver, rng, road = Predictive(), np.random.default_rng(0), Road(np.array(world.track))
    driver.reset(world)
    errors = []
    for _ in range(80):
        choices = rng.choice(5, size=3, p=(0.1, 0.2, 0.2, 0.4, 0.1))
        expected = predict(world.car, road, 4)
        sequence = np.ravel_multi_index(tuple(choices), (5, 5, 5))
        for choice in choices:
            for _ in range(4):
                world.step(int(choice))
        errors.append(np.hypot(*(centre_of(world.car) - (expected.x[sequence], expected.y[sequence]))))
        for _ in range(8):  # on towards the line
            world.step(driver.act().choice)
    assert np.median(errors) < 0.01 and np.max(errors) < 1.0


def test_with_its_map_the_model_knows_where_a_car_goes_that_leaves_the_road(world: FastCarRacing) -> None:
    world.reset(seed=1_000_000)
    driver, rng = Predictive(), np.random.default_rng(0)
    driver.reset(world)
    road, endless, errors = Road(np.array(world.track)), Road(np.array(world.track)), []
    endless.cells[:] = 1
    for _ in range(60):
        choices = rng.choice(5, size=3, p=(0.1, 0.2, 0.2, 0.4, 0.1))
        expected = [predict(world.car, one, 10) for one in (road, endless)]
        sequence = np.ravel_multi_index(tuple(choices), (5, 5, 5))
        for choice in choices:
            for _ in range(10):
                world.step(int(choice))
        x, y = centre_of(world.car)
        errors.append([np.hypot(x - cars.x[sequence], y - cars.y[sequence]) for cars in expected])
        for _ in range(20):
            world.step(driver.act().choice)
    known, unknown = np.mean(errors, axis=0)
    assert known < 0.2 and known < 0.5 * unknown


def test_the_map_of_the_road_is_where_the_wheels_touch_it(world: FastCarRacing) -> None:
    world.reset(seed=1_000_001)
    driver, road, same = Predictive(), Road(np.array(world.track)), []
    driver.reset(world)
    for step in range(900):
        world.step(driver.act().choice if step % 60 < 40 else 1)  # off the road now and then
        for wheel in world.car.wheels:
            same.append(bool(road.under(*np.array(wheel.position))) == bool(wheel.tiles))
    assert np.mean(same) > 0.97
    assert not road.under(*(road.low - 10 * AROUND)), "beyond the map"


def test_its_moment_of_inertia_is_that_of_the_car(world: FastCarRacing) -> None:
    world.reset(seed=1)
    bodies = (world.car.hull, *world.car.wheels)
    centre = centre_of(world.car)
    inertia = 0.0
    for body in bodies:
        own = body.inertia - body.mass * float(np.square(body.localCenter).sum())
        inertia += own + body.mass * float(np.square(np.array(body.worldCenter) - centre).sum())
    assert inertia == pytest.approx(INERTIA, abs=0.01)


def episode(seed: int, rate: tuple[float, float] | None = None, driver: str = EXPERT, **options: Any) -> Any:
    drive = Drive(driver=driver, options={"renderer": "fast", **options}, camera=CameraNoise(rate=rate))
    with drive.open(seed) as opened:
        *_, last = opened
    return last


@pytest.mark.parametrize("seed", daily((1_000_000, 1_000_001, 1_000_003), ["1000000"]))
def test_drives_the_whole_lap_with_five_actions(seed: int) -> None:
    last = episode(seed)
    assert last.episode_return > 890 and last.next_info["laps"] == 1


@pytest.mark.parametrize(("low", "high"), [(6.0, 6.0), (5.0, 20.0), (20.0, 20.0)])
def test_drives_on_where_its_decisions_come_rarely_or_unevenly(low: float, high: float) -> None:
    assert episode(1_000_001, (low, high)).episode_return > 800


@pytest.mark.parametrize("heading", daily((90.0, 180.0), ["90.0"]))
def test_a_car_that_stands_beside_the_road_turned_away_is_brought_back(heading: float) -> None:
    last = episode(1_000_002, max_frames=500, start_offset=12.0, start_heading=heading)
    assert last.progress > 0.2


def test_a_car_that_stands_on_the_road_gets_gas_whichever_way_it_faces() -> None:
    # Steering first and gas at the next decision is always the best of three decisions ahead.
    scores = [episode(1_000_000, max_frames=4, start_heading=heading).action.logits for heading in range(-180, 180, 45)]
    assert [int(row.argmax()) for row in scores] == [3] * 8
    assert max(np.sort(row)[-2] for row in scores) == -SURE


def test_ppo_rescued_is_ppo_on_the_road_and_predictive_off_it() -> None:
    usual, beside = {"max_frames": 200}, {"max_frames": 500, "start_offset": 14.0, "start_heading": -90.0}
    assert episode(1_000_000, driver="ppo-rescued", **usual).episode_return == (
        episode(1_000_000, driver="ppo", **usual).episode_return
    )
    assert (
        episode(1_000_002, driver="ppo-rescued", **beside).progress
        > 0.2
        > episode(1_000_002, driver="ppo", **beside).progress
    )


def test_ppo_rescued_leaves_a_car_that_drives_the_wrong_way_to_ppo() -> None:
    wrong_way = {"max_frames": 4, "start_heading": 180.0, "start_speed": 30.0}
    its, ppos = (episode(1_000_000, driver=one, **wrong_way).action for one in ("ppo-rescued", "ppo"))
    np.testing.assert_array_equal(its.logits, ppos.logits)


@pytest.mark.parametrize(
    ("offset", "heading", "is_back"), [(55.0, 1.57, True), (-55.0, -1.57, True), (90.0, 0.0, False)]
)
def test_where_no_road_is_in_sight_ppo_rescued_circles_until_one_is(
    offset: float, heading: float, is_back: bool
) -> None:
    with Drive(driver="ppo-rescued", options={"renderer": "fast", "max_frames": 400}).open(1_000_000) as opened:
        opened.start = {"offset": offset, "heading": heading, "speed": 15.0}
        ticks = list(opened)
    assert (ticks[-1].progress > 0.1) == is_back
    if not is_back:  # too far out
        assert {tick.action.choice for tick in ticks[30:]} == {2, 3}, "to one side, and gas"
        assert all(15 < tick.speed_mps < 25 for tick in ticks[30:])


def test_a_road_is_in_sight_where_the_picture_shows_one() -> None:
    env, driver, right = make_carracing(renderer="fast"), Predictive(), []
    for seed in range(60):
        frame, _ = env.reset(seed=1_000_000 + seed % 5, options=bad_start(np.random.default_rng(seed), 60.0))
        for _ in range(15):  # it begins with the whole track in the picture
            frame, *_ = env.step(0)
        driver.reset(env)
        pixels = frame[:82].astype(int)
        grey = (np.ptp(pixels, axis=2) < 12) & (abs(pixels.mean(axis=2) - 107) < 22)
        right.append(driver.is_road_in_sight() == (grey.sum() > 30))  # the car has some, too
    env.close()
    assert np.mean(right) > 0.9


def test_its_scores_name_the_action_that_it_takes() -> None:
    env: Any = make_carracing(renderer="fast")
    env.reset(seed=3)
    driver: Any = load_expert(EXPERT)
    driver.reset(env)
    action = driver.act(np.zeros((96, 96, 3), np.uint8), {"t_s": 0.0})
    assert action.logits.shape == (5,) and action.logits.argmax() == action.choice == 3  # gas, from rest
    assert action.logits.max() == 0
    env.close()


def test_it_needs_five_actions_and_a_track() -> None:
    with pytest.raises(UserError, match=r"read.* the track: call reset"):
        Predictive().act()
    with pytest.raises(UserError, match="one of five actions"):
        Predictive().reset(make_carracing(renderer="fast", continuous=True))
