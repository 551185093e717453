"""Drivers of one's own: what they raise is said in one sentence, and stops a car that is watched over safely."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nacdrive.common.errors import UserError
from nacdrive.drivers import DRIVERS, load_driver, load_expert
from nacdrive.drivers.base import Needs
from nacdrive.drivers.options import check_expert
from nacdrive.drivers.safety_stop import SafetyStop
from nacdrive.envs.carracing.env import make_carracing
from nacdrive.envs.registry import CARRACING, env_spec
from nacdrive.rollout.drive import action_repeat, driver_options
from nacdrive.rollout.rollout import rollout

NOBODYS = "~nobody-of-that-name/x.pt"
OWN = """
from nacdrive.common.action import Action
from nacdrive.drivers.base import Driver, DriverState
class Gas:
    def reset(self, env): self.env, self.count = env, 0
    def act(self, frame, info): return self.env.action_of(3)
class Raises(Gas):
    def act(self, frame, info): raise ValueError("no road in sight")
class Forgets(Gas):
    def act(self, frame, info): pass
class Steers(Gas):
    def act(self, frame, info): return Action(0.5, 1.0, 0.0)
class NoAct:
    def reset(self, env): pass
class Declares(Gas): continuous, repeat = True, 2
class Says(Driver):
    name = "says"
    def reset(self, env): self.env, self.count = env, 0
    def act(self, frame, info):
        self.count += 1
        return self.env.action_of(3)
    def state(self):
        events = (f"decision {self.count}",) * (self.count < 3)
        return DriverState(held=self.count > 1, finished=self.count == 3, events=events)
class Needy(Gas):
    def __init__(self, file): pass
"""


def test_a_driver_that_no_environment_calls_its_own_drives_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DRIVERS._registered, "gas", "own_driver:Gas")
    for env in ("carracing", "udacity-track"):
        check_expert(env_spec(env), "gas", name="--driver")
    assert load_expert("gas").name == "gas"
    with pytest.raises(UserError, match=r"unknown expert 'gaz'.*constant"):
        check_expert(env_spec("carracing"), "gaz")
    with pytest.raises(UserError, match="--driver racing-line does not know udacity-track: give geometric"):
        check_expert(env_spec("udacity-track"), "racing-line", name="--driver")


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_driver.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_driver", raising=False)


def test_it_drives_under_its_own_name() -> None:
    driver = load_driver("own_driver:Gas")
    ticks = list(rollout(make_carracing(renderer="fast", max_frames=40), driver, 1))
    assert driver.name == "Gas" and len(ticks) == 10 and (ticks[-1].speed_mps or 0) > 5


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Raises", "the driver 'own_driver:Raises' failed: ValueError: no road in sight"),
        ("Forgets", "the driver 'own_driver:Forgets' gave NoneType instead of an Action"),
        ("Steers", r"carracing takes one of 5 actions \(nothing, right, left, gas, brake\), and its driver gave"),
    ],
)
def test_what_goes_wrong_in_it_is_one_sentence(name: str, sentence: str) -> None:
    env = make_carracing(renderer="fast", max_frames=40)
    with pytest.raises(UserError, match=sentence):
        list(rollout(env, load_driver(f"own_driver:{name}"), 1))


def test_under_a_safety_stop_it_is_a_reason_to_brake() -> None:
    env = make_carracing(renderer="fast")
    ticks = list(rollout(env, SafetyStop(load_driver("own_driver:Raises")), 1))
    assert ticks[-1].failure == "the driver 'own_driver:Raises' failed: ValueError: no road in sight"
    assert ticks[-1].events[-1] == "stopped safely"


def test_what_it_declares_counts_and_the_rest_is_as_usual() -> None:
    assert load_driver("own_driver:Gas").needs == Needs()
    declared = SafetyStop(load_driver("own_driver:Declares"))
    assert declared.needs == Needs(continuous=True, repeat=2)
    assert driver_options(CARRACING, declared) == {"continuous": True}
    assert action_repeat(CARRACING, declared) == action_repeat(CARRACING, declared, 8) == 2


def test_what_a_driver_of_the_base_class_says_of_a_decision_reaches_the_tick() -> None:
    ticks = list(rollout(make_carracing(renderer="fast"), load_driver("own_driver:Says"), 1))
    assert [tick.held for tick in ticks] == [False, True, True]
    assert [tick.events for tick in ticks] == [("started", "decision 1"), ("decision 2",), ("time is up",)]


def test_one_that_cannot_be_made_is_named() -> None:
    with pytest.raises(UserError, match=r"'own_driver:NoAct' has no act\(frame, info\)"):
        load_driver("own_driver:NoAct")
    with pytest.raises(UserError, match="'own_driver:Needy' cannot be made"):
        load_driver("own_driver:Needy")
    with pytest.raises(UserError, match="module 'own_driver' has no 'Absent'"):
        load_driver("own_driver:Absent")


def test_a_home_folder_that_nobody_has_is_a_sentence() -> None:
    with pytest.raises(UserError, match=f"the home folder in {NOBODYS} is not known: give the whole path"):
        check_expert(CARRACING, NOBODYS)
    with pytest.raises(UserError, match="is not known: give the whole path"):
        load_expert(NOBODYS)
