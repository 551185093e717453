"""Where an episode begins: in the middle of the road, beside it, turned, at speed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nacdrive.cli.eval import EvalConfig
from nacdrive.cli.main import parse
from nacdrive.common.errors import UserError
from nacdrive.envs.base import DrivingEnv
from nacdrive.envs.registry import env_spec
from nacdrive.envs.start import Start, bad_start
from nacdrive.rollout.drive import Drive

PLACES = [("carracing", 11.0), ("udacity-track", 3.0)]
"""An environment, and metres from the middle of its road at which at least two wheels are off it."""


def made(env: str, **start: float) -> DrivingEnv:
    options = {"renderer": "fast"} if env_spec(env).honours("renderer") else {}
    return env_spec(env).make(options | start)


@pytest.mark.parametrize(("name", "beside"), PLACES)
def test_an_episode_begins_where_it_is_asked_to(name: str, beside: float) -> None:
    usual, asked = made(name), made(name, start_offset=beside, start_heading=20.0, start_speed=12.0)
    _, middle = usual.reset(seed=7)
    _, there = asked.reset(seed=7)
    assert there["lane_offset_m"] - middle["lane_offset_m"] == pytest.approx(beside, abs=0.2)
    turned = (middle["heading_rad"] - there["heading_rad"]) % math.tau
    assert turned == pytest.approx(math.radians(20), abs=0.02)
    assert middle["speed_mps"] == pytest.approx(0, abs=0.1) and there["speed_mps"] == pytest.approx(12, abs=0.5)
    assert middle["wheels_off"] == 0 and there["t_s"] == 0
    usual.close()
    asked.close()


def test_beside_the_road_of_carracing_no_wheel_touches_it_and_the_car_can_come_back() -> None:
    env = made("carracing", start_offset=11.0)
    frame, info = env.reset(seed=7)
    assert info["wheels_off"] == 1 and not (frame == made("carracing").reset(seed=7)[0]).all()
    env.reset(seed=7, options={"offset": 0.0})
    for _ in range(3):
        _, _, _, _, info = env.step(3)
    assert info["wheels_off"] == 0 and info["progress"] > 0


def test_bad_starts_are_on_either_side_turned_any_way_and_at_rest_half_of_the_time() -> None:
    starts = [bad_start(np.random.default_rng(seed)) for seed in range(400)]
    offset, heading, speed = (np.array([start[name] for start in starts]) for name in ("offset", "heading", "speed"))
    assert -14 <= offset.min() < -12 and 12 < offset.max() <= 14
    assert -math.pi <= heading.min() < -3 and 3 < heading.max() <= math.pi
    assert 160 < (speed == 0).sum() < 240 and 13 < speed.max() <= 15
    assert bad_start(np.random.default_rng(0), 50.0)["offset"] == pytest.approx(starts[0]["offset"] / 14 * 50)


def test_a_start_without_options_is_the_usual_one() -> None:
    assert Start().place == {} and Start(start_offset=0.0).place == {"offset": 0.0}


def test_a_drive_begins_alike_in_every_process_and_file() -> None:
    options = {"renderer": "fast", "max_frames": 8, "start_offset": 9.0, "start_speed": 20.0}
    drive = Drive(driver="constant", options=options | {"continuous": True}, safety_stop=False)
    again = Drive.from_json(drive.to_json())
    with drive.open(5) as first, again.open(5) as second:
        assert [tick.x_m for tick in first] == [tick.x_m for tick in second]
    assert drive.options["start_offset"] == 9.0


def test_a_verb_takes_a_start_where_the_environment_has_one_and_else_refuses_it() -> None:
    line = ["--start-offset", "2", "--start-heading", "-5"]
    assert parse(EvalConfig, "nacdrive eval", line).options()["start_heading"] == -5
    with pytest.raises(UserError, match=r"^--start-offset is for carracing and udacity-track, and --env gym:X does"):
        parse(EvalConfig, "nacdrive eval", [*line, "--env", "gym:X"])


@pytest.mark.parametrize("value", [31.0, float("nan")])
def test_a_start_that_is_none_is_refused(value: float) -> None:
    with pytest.raises(UserError, match="--start-offset is"):
        Start(start_offset=value)
