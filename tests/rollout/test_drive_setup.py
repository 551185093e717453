"""How a drive is put together: who holds an action for how long, which switches, which tracks, when it gets nowhere."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.base import Driver, Needs
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.envs.seeds import POLICY_RECORDING
from nacdrive.rollout.dagger import FIRST_SEED, DaggerRound, supervised
from nacdrive.rollout.drive import (
    Drive,
    Hold,
    action_repeat,
    check_repeat,
    driver_options,
    usual_expert,
    warn_of_pixels,
)
from tests.helpers.ticks import make_tick


class Own(Driver):
    name = "own"

    def __init__(self, **needs: Any) -> None:
        self._needs = Needs(**needs)
        self.asked = 0

    @property
    def needs(self) -> Needs:
        return self._needs

    def act(self, frame: Any, info: Any) -> Action:
        self.asked += 1
        return Action(self.asked / 10, 0.0, 0.0)


def spec_of(**more: Any) -> Any:
    return SimpleNamespace(**({"drivers_pace": True, "repeat": 4} | more))


@pytest.mark.parametrize(
    ("needs", "asked", "pace", "repeat"),
    [
        ({}, None, True, 4),
        ({}, 3, True, 3),
        ({"repeat": 2}, None, True, 2),
        ({"repeat": 2}, 3, True, 2),
        ({"repeat": 2, "any_pace": True}, 3, True, 3),
        ({"repeat": 2, "any_pace": True}, None, True, 2),
        # Where time is taken as it comes, only a fixed pace counts.
        ({"repeat": 2}, None, False, 4),
        ({"repeat": 2}, 3, False, 3),
        ({"repeat": 2, "fixed_pace": True}, 3, False, 2),
    ],
)
def test_an_action_is_held_as_its_driver_was_trained(needs: Any, asked: Any, pace: bool, repeat: int) -> None:
    spec, driver = spec_of(drivers_pace=pace), Own(**needs)
    assert action_repeat(spec, driver, asked) == repeat
    if asked in (None, repeat):
        check_repeat(spec, driver, asked)
    else:
        with pytest.raises(
            UserError, match=f"--repeat is {asked}, and own was trained to decide every {repeat} frames"
        ):
            check_repeat(spec, driver, asked)


def test_an_environment_gets_the_switches_that_it_has() -> None:
    spec: Any = SimpleNamespace(build=lambda continuous=False, recover=False, track=None: None)
    assert driver_options(spec, Own(continuous=True, colours=True), recover=True) == {
        "continuous": True,
        "recover": True,
    }
    assert driver_options(spec, Own(instruments=True), recover=False) == {}


def test_an_expert_that_decides_rarely_holds_what_it_said() -> None:
    expert = Own()
    hold = Hold(expert, 3)
    env: Any = None
    hold.reset(env)
    frame, info = np.zeros((2, 2, 3), np.uint8), {}
    steering = [hold.act(frame, info).steering for _ in range(7)]  # type: ignore[arg-type]
    assert steering == [0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.3]
    hold.reset(env)
    assert hold.act(frame, info).steering == 0.4  # type: ignore[arg-type]


def test_who_taught_a_policy_rides_along_where_the_environment_knows_him() -> None:
    spec: Any = SimpleNamespace(task="t", experts=("ppo", "line"), expert="ppo", steering_expert="line")

    def of(expert: Any, task: str = "t", *, steers: bool = False) -> str | None:
        meta, config = {"config": None if expert is None else {"expert": expert}}, SimpleNamespace(continuous=steers)
        policy: Any = SimpleNamespace(task=task, meta=meta, config=config)
        return usual_expert(spec, policy)

    # the chooser stands there where nobody is known to have taught one that steers
    assert [of("ppo", steers=True), of("somebody", steers=True)] == ["line", "line"]
    assert of("line", steers=True) == "line"
    assert [of(None), of("line"), of("somebody"), of("line", "u")] == ["ppo", "line", "ppo", "line"]
    own = "nacdrive.drivers.racing_line:cautious"
    assert of(own) == own and of(own, "u") == "ppo"
    # a built-in driver goes by its name, where the environment knows that
    spec.experts = ("ppo", "line", "racing-line")
    assert of("nacdrive.drivers.racing_line:RacingLine") == "racing-line"


def test_a_policy_of_official_pictures_is_warned_of_others() -> None:
    def warning_count(renderer: str | None, learnt: str | None, **meta: Any) -> int:
        meta |= {} if learnt is None else {"config": {"renderer": learnt}}
        policy: Any = SimpleNamespace(name="p", meta=meta)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_of_pixels(policy, renderer)
        return len(caught)

    pairs = [("fast", None), ("fast", "fast"), ("official", None), (None, None)]
    assert [warning_count(renderer, learnt) for renderer, learnt in pairs] == [1, 0, 0, 0]
    assert warning_count("fast", None, reinforced={}) == 0


def test_a_drive_is_as_usual_unless_told_otherwise_and_comes_back_from_its_file() -> None:
    usual = Drive()
    assert usual.to_json() == {"env": "carracing"} and Drive.from_json({"env": "carracing"}) == usual
    assert (usual.recover, usual.safety_stop, usual.random_start, usual.every_frame) == (True, True, False, False)
    assert (usual.beta, usual.steering_noise, usual.pace_s, usual.device) == (None, 0, None, "cpu")
    own = Drive(
        "udacity-track",
        Path("a/b.pt"),
        expert="geometric",
        camera=CameraNoise(noise=0.5),
        around=("m:W",),
        recover=False,
    )
    about = own.to_json()
    assert about["model"] == "b.pt" and set(about) == {"env", "model", "expert", "camera", "around", "recover"}
    assert Drive.from_json(about) == replace(own, model=Path("b.pt"))
    assert (
        own.name == "b.pt" and Drive(driver="line", expert="ppo").name == "line" and Drive(expert="ppo").name == "ppo"
    )
    for wrong in ({"env": "carracing", "wings": 2}, {"env": "carracing", "camera": {"rain": 1}}):
        with pytest.raises(UserError, match="described by another nacdrive"):
            Drive.from_json(wrong)
    assert Drive().rule == "gymnasium-1.4" and Drive(options={"rule": "all-tiles-95"}).rule == "all-tiles-95"
    assert Drive("udacity-track").rule is None


def test_no_two_rounds_and_no_two_of_twenty_seeds_drive_a_track_twice() -> None:
    rounds = [DaggerRound(Drive(), k, 1000, seed).tracks for seed in (0, 1, 19) for k in (1, 2, 25)]
    assert len(set().union(*rounds)) == 9000 and rounds[0][0] == FIRST_SEED == 3_500_000
    assert max(map(max, rounds)) < POLICY_RECORDING.stop
    assert DaggerRound(Drive(), 26, 3, 20).tracks == range(FIRST_SEED, FIRST_SEED + 3)
    assert list(DaggerRound(Drive(), 1, 3, 0, cases=((7, Drive()), (5, Drive()))).tracks) == [7, 5]


@pytest.mark.parametrize(("progress", "patience", "steps"), [
    ([0, 0, 0, 0, 0], 3, 3), ([0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.2, 0.2], 3, 7), ([0.1, 0.2, 0.3, 0.4], 1, 4),
    ([0.5, 0.4, 0.45, 0.5, 0.6], 4, 5), ([None] * 6, 2, 6),
])  # fmt: skip
def test_a_drive_that_gets_nowhere_ends(progress: list[Any], patience: int, steps: int) -> None:
    ticks = [
        make_tick(k, circuit=False, saliency=False, next_info={} if p is None else {"progress": p})
        for k, p in enumerate(progress)
    ]
    assert len(list(supervised(ticks, patience))) == steps  # type: ignore[arg-type]
    over = [*ticks[:2], make_tick(2, circuit=False, saliency=False, done=True, next_info={"progress": 0})]
    assert len(list(supervised(over, 1 if progress[0] is None else 3))) == 3  # type: ignore[arg-type]
