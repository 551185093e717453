"""A person at the page in place of the policy, while a simulator on the wire goes on driving."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.human import SILENCE_S, HumanControl, HumanOverride
from nacdrive.drivers.safety_stop import SafetyStop
from nacdrive.drivers.speed_control import SpeedControl, SpeedController
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv, Info
from nacdrive.envs.udacity import UdacityEnv
from nacdrive.rollout.background import BackgroundListener, split_drives
from nacdrive.rollout.recorder import corrections
from nacdrive.tasks.udacity import Udacity
from tests.helpers.udacity_loop import Loop
from tests.helpers.udacity_simulators import Simulator, until

BEND = 0.3
"""What the policy steers, always."""


class Bending:
    """A policy that steers to the right; counts its resets, and fails when told to."""

    name = "bending"

    def __init__(self) -> None:
        self.resets, self.failing = 0, False
        self.times: list[float] = []

    def reset(self, env: DrivingEnv) -> None:
        self.resets += 1

    def act(self, frame: Any, info: Info) -> Action:
        self.times.append(info["t_s"])
        if self.failing:
            raise RuntimeError("out of memory")
        return Action(BEND, 0.0, 0.0)


class Drive:
    """Control, policy, environment and an emulated simulator on the wire."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.control, self.policy = HumanControl(silence_s=4 * SILENCE_S, started_over="started over"), Bending()
        self.ticks: list[Tick] = []
        keeper = stack.enter_context(corrections(folder, source="udacity", fps=25))
        driver = HumanOverride(SafetyStop(SpeedControl(self.policy, SpeedController(9.0))), self.control)
        listener = stack.enter_context(
            BackgroundListener([self.ticks.append, split_drives(keeper, 1000, 0.04)], say=pytest.fail)
        )
        self.loop = stack.enter_context(Loop(UdacityEnv(port=0), driver, [listener]))
        self.said = self.loop.events
        self.car = stack.enter_context(Simulator(self.loop.env.port))
        assert self.car.drives()

    @property
    def told(self) -> tuple[float, float]:
        """The newest command."""
        return self.car.commands[-1]

    def person(self, *keys: str) -> None:
        """Browser 1 takes the wheel and holds ``keys``."""
        assert self.control.acquire(1)
        self.control.set_keys(1, keys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "corrections"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def drive(stack: ExitStack, folder: Path) -> Drive:
    return Drive(stack, folder)


@pytest.fixture
def heartbeat(stack: ExitStack) -> Callable[[Drive, str], None]:
    """Says that keys are held, again and again, as a browser does."""
    ending = Event()

    def beating(drive: Drive, *keys: str) -> None:
        def beat() -> None:
            while not ending.wait(0.05):
                drive.control.set_keys(1, keys)

        drive.person(*keys)
        thread = Thread(target=beat)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ending.set)

    return beating


def test_keys_steer_by_degrees_and_the_speed_controller_keeps_the_pedals(drive: Drive, heartbeat: Any) -> None:
    assert drive.told == (BEND, 1.0), "standing still: full throttle"
    heartbeat(drive, "left")
    assert until(lambda: drive.told == (-1.0, 1.0))
    drive.control.release(1)
    assert until(lambda: drive.told == (BEND, 1.0))
    assert until(lambda: "handed back" in drive.said)
    person = [tick for tick in drive.ticks if tick.human]
    steering = [tick.action.steering for tick in person]
    steps = -np.diff([0.0, *steering])
    # 3 full deflections a second, and 0.2 s at most are made up for at once.
    assert steps.min() >= 0 and steps.max() <= 0.6 + 1e-6 and steering[-1] == -1.0
    assert {tick.policy.steering for tick in person if tick.policy} == {BEND}, "the policy's stands beside"
    assert not any(tick.policy for tick in drive.ticks if not tick.human)


def test_up_and_down_drive_the_pedals(drive: Drive, heartbeat: Any) -> None:
    drive.car.speed_mph = 15.0
    heartbeat(drive, "down")
    assert until(lambda: drive.told == (0.0, -1.0))


def test_a_take_over_is_a_correction_that_training_reads(
    drive: Drive, heartbeat: Any, stack: ExitStack, folder: Path
) -> None:
    heartbeat(drive, "left", "up")
    assert until(lambda: sum(tick.human and tick.action.steering == -1.0 for tick in drive.ticks) > 20)
    drive.control.release(1)
    assert until(lambda: drive.told[0] == BEND)
    stack.close()
    recording = Recording.open(folder, source="udacity")
    assert len(recording) == 1
    episode = recording.load(0)
    assert episode.driver == "keyboard" and (episode.label <= 0).all() and episode.label[-1] == -1.0
    assert set(episode.meta["policy"]["steering"]) == {BEND}
    assert episode.t_s[0] >= 0 and np.diff(episode.t_s).min() >= 0.03 - 1e-9, "at the policy's pace, not the pictures'"
    (sample,) = Udacity().load([folder])
    assert sample.fields["target"].tolist() == episode.label.tolist()


def test_a_pause_brakes_straight_while_the_policys_clock_goes_on(drive: Drive) -> None:
    drive.car.speed_mph = 15.0
    drive.person("left")
    drive.control.pause()
    assert until(lambda: drive.told == (0.0, -1.0))
    began = drive.policy.times[-1]
    assert drive.car.drives() and drive.told == (0.0, -1.0) and drive.policy.times[-1] > began
    assert drive.policy.resets == 1 and drive.loop.env.safety is None
    assert not drive.ticks[-1].human, "standing still is no correction"
    drive.control.release(1)
    drive.control.resume()
    assert until(lambda: drive.told[0] == BEND)
    assert until(lambda: any(line.startswith("paused for") for line in drive.said))


def test_a_reset_forgets_and_says_once_that_the_car_stays(drive: Drive) -> None:
    before = drive.policy.resets
    drive.control.reset()
    assert until(lambda: drive.policy.resets == before + 1)
    assert until(lambda: drive.ticks and any("started over" in tick.events for tick in drive.ticks))
    assert drive.said.count("started over") == 1 and drive.car.drives() and drive.car.client.connections == 1


def test_a_browser_that_falls_silent_gives_the_wheel_back(drive: Drive) -> None:
    drive.person("left")
    assert until(lambda: drive.told[0] == -1.0)
    assert until(lambda: drive.told[0] == BEND)
    # A decision's events are told with its Tick, which waits for the next picture.
    assert until(lambda: any("nothing heard" in line for line in drive.said))
    assert drive.control.state["person"] is None


def test_the_safety_stop_has_the_last_word_over_a_person(drive: Drive, heartbeat: Any) -> None:
    drive.car.speed_mph = 15.0
    heartbeat(drive, "left", "up")
    assert until(lambda: drive.told == (-1.0, 1.0))
    drive.policy.failing = True
    assert until(lambda: drive.told == (0.0, -1.0)) and any("out of memory" in event for event in drive.said)
    assert until(lambda: not drive.ticks[-1].human)
    drive.policy.failing = False
    assert until(lambda: drive.told[0] == -1.0), "the person drives again"
