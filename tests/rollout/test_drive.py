"""One way of driving: plain data that travels, put together in one place whoever asks for it."""

from __future__ import annotations

import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nacdrive.cli import drive as drive_verb
from nacdrive.common.action import KEYBOARD
from nacdrive.common.errors import UserError
from nacdrive.common.units import MPS_PER_MPH
from nacdrive.drivers.base import Driver, DriverWrapper
from nacdrive.drivers.human import HumanControl, HumanOverride
from nacdrive.drivers.mixture import Mixture
from nacdrive.drivers.safety_stop import SafetyStop
from nacdrive.drivers.speed_control import SpeedControl
from nacdrive.drivers.steering_noise import SteeringNoise
from nacdrive.envs.camera_noise import CameraNoise, NoisyCamera
from nacdrive.envs.carracing.env import CarRacingEnv
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.extras.arena.contestant import Contestant
from nacdrive.extras.hunt.config import HuntConfig
from nacdrive.models import save_policy
from nacdrive.rollout.drive import Drive, LoadedDrive
from nacdrive.rollout.eval_config import EvalConfig
from nacdrive.rollout.evaluate import RolloutWorker
from tests.helpers.udacity_policy import udacity_policy

SEED = 4_000_000
SHORT: dict[str, Any] = {"renderer": "fast", "max_frames": 40}
OWN = """
from nacdrive.common.action import Action
from nacdrive.drivers.base import DriverWrapper
class Straight:
    name = "straight"
    def reset(self, env): pass
    def act(self, frame, info): return Action(0.0, 1.0, 0.0)
class Gentle(DriverWrapper):
    def act(self, frame, info):
        action = super().act(frame, info)
        return Action(action.steering / 2, action.throttle, action.brake)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_straight.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_straight", raising=False)


def kinds(driver: Driver) -> list[type[Driver]]:
    """Of the driver and all that stands around it, the outermost first."""
    inner = driver.driver if isinstance(driver, DriverWrapper) else None
    return [type(driver), *(kinds(inner) if inner is not None else [])]


def kept_mph(driver: Driver) -> float | None:
    """Speed that is kept for a driver; None where it has its own pedals."""
    while isinstance(driver, DriverWrapper):
        if isinstance(driver, SpeedControl):
            return driver.controller.target_mps / MPS_PER_MPH
        driver = driver.driver
    return None


def test_a_drive_travels_into_any_process_and_any_file() -> None:
    drive = Drive(
        model=Path("/somewhere/nac_steady.pt"), options=SHORT, camera=CameraNoise(noise=0.1), around=("a:B",), beta=0.5
    )
    assert pickle.loads(pickle.dumps(drive)) == drive
    about = json.loads(json.dumps(drive.to_json()))
    assert about["model"] == "nac_steady.pt" and set(about) == {"env", "model", "options", "camera", "around", "beta"}
    assert Drive.from_json(about).to_json() == about and Drive.from_json(Drive().to_json()) == Drive()
    with pytest.raises(UserError, match="another nacdrive"):
        Drive.from_json({**about, "wings": 2})


def test_what_stands_around_a_driver_has_one_order(own: None) -> None:
    env = make_udacity_track("lake", randomize=False)
    drive = Drive(
        "udacity-track", expert="geometric", speed_mph=15.0, beta=0.5, steering_noise=1.0,
        around=("own_straight:Gentle",),
    )  # fmt: skip
    whole = kinds(LoadedDrive(drive).wrap(env, control=HumanControl()))
    names = [kind.__name__ for kind in whole]
    assert names == [
        "HumanOverride", "SafetyStop", "Gentle", "SteeringNoise", "SpeedControl", "Mixture", "FollowExpert",
    ]  # fmt: skip
    assert whole[:2] == [HumanOverride, SafetyStop] and whole[3:6] == [SteeringNoise, SpeedControl, Mixture]
    person = LoadedDrive(Drive("udacity-track", driver=KEYBOARD)).wrap(env, control=HumanControl())
    assert len(kinds(person)) == 2, "nobody stops a person in a simulator that waits"


@pytest.mark.parametrize(("driver", "mph"), [("geometric", 20.0), ("own_straight:Straight", None)])
def test_the_same_driver_has_the_same_speed_in_every_verb(
    driver: str, mph: float | None, own: None, tmp_path: Path
) -> None:
    """An expert that the environment knows by name keeps the usual speed; a driver of one's own has its own pedals."""
    env = make_udacity_track("lake", randomize=False)
    save_policy(udacity_policy(), tmp_path / "p.pt")
    beside = EvalConfig(env="udacity-track", expert=driver).driven(tmp_path / "p.pt")
    loaded = {
        "drive": drive_verb.load(drive_verb.DriveConfig(env="udacity-track", driver=driver, headless=True)),
        "eval": EvalConfig(env="udacity-track", driver=driver).driven(None).load(),
        "eval --expert": RolloutWorker(beside).expert,
        "arena": Contestant("a", Drive("udacity-track", driver=driver, speed_mph=20.0)).load(),
    }
    assert {verb: kept_mph(one.wrap(env)) for verb, one in loaded.items()} == dict.fromkeys(loaded, mph)


@pytest.mark.parametrize("speed", [None, 12.0])
def test_the_same_options_describe_the_same_drive_in_every_verb(speed: float | None, tmp_path: Path) -> None:
    save_policy(udacity_policy(), model := tmp_path / "p.pt")
    same: dict[str, Any] = {"env": "udacity-track", "model": str(model), "speed": speed, "laps": 2.0, "track": "lake"}
    same |= {"expert": "geometric", "disturbance": CameraNoise(noise=0.1), "max_frames": 50}
    drives = [
        EvalConfig(**same).driven(model),
        HuntConfig(**same).driven(model),
        drive_verb.load(drive_verb.DriveConfig(**same, headless=True)).drive,
    ]
    # Evaluations name their tracks themselves.
    drives[0] = replace(drives[0], track="lake")
    options = [{name: one.options[name] for name in ("laps", "max_frames")} for one in drives]
    assert options == [{"laps": 2.0, "max_frames": 50}] * 3
    assert len({str(replace(one, options={})) for one in drives}) == 1 and drives[0].speed_mph == (speed or 20.0)


def test_an_open_drive_yields_ticks_and_closes_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[CarRacingEnv] = []
    monkeypatch.setattr(CarRacingEnv, "close", lambda env: closed.append(env))
    drive = Drive(driver="geometric", expert="ppo", options=SHORT, camera=CameraNoise(brightness=0.5))
    with drive.open(SEED) as opened:
        assert isinstance(opened.env, NoisyCamera)
        ticks = list(opened)
        assert not closed
    assert closed == [opened.env.unwrapped]
    assert len(ticks) == 10 and all(tick.expert is not None for tick in ticks)
    assert np.array_equal(ticks[0].frame, np.rint(ticks[0].info["clean_frame"] * np.float32(0.5)).astype(np.uint8))
    with drive.open(SEED) as again:
        assert [tick.action for tick in again] == [tick.action for tick in ticks]
    with drive.load().open(SEED, env=opened.env):
        pass
    assert closed == [opened.env.unwrapped, again.env.unwrapped], "one that was open already stays open"


def test_an_expert_of_another_rate_does_not_ride_along_unless_it_is_learnt_from() -> None:
    drive = Drive(driver="geometric", expert="ppo", options={**SHORT, "repeat": 2})
    assert (drive.load().repeat, drive.load().expert_repeat, drive.load().companion) == (2, 4, None)
    with pytest.raises(UserError, match="--repeat is 3, and ppo was trained to decide every 4 frames"):
        _ = Drive(driver="ppo", options={"repeat": 3}).load().driver
    assert LoadedDrive(Drive(expert="ppo", beta=0.5), repeat=2).companion is not None


def test_noise_of_the_wheel_needs_a_wheel() -> None:
    with pytest.raises(UserError, match="carracing has none"):
        Drive(driver="geometric", options=SHORT, steering_noise=1.0).open(SEED)


def test_actions_and_rate_are_the_environments_own() -> None:
    assert Drive(driver="racing-line", options=SHORT).load().actions == ()
    assert len(Drive(driver="geometric", options=SHORT).load().actions) == 5
    assert Drive(driver="racing-line").load().fps == 25 and Drive(driver="geometric").load().fps == 12.5
