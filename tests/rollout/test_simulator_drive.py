"""A policy at the wheel of a simulator that connects: paced, shown, filmed, recorded; from the command line too."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.drivers.tick import Tick
from nacdrive.envs.udacity.wheel import Decision
from nacdrive.models import PolicyConfig
from nacdrive.models.files import save_policy
from nacdrive.models.policy import Policy
from nacdrive.rollout.simulator import SimulatorDriver, at_rate, in_pieces
from tests.helpers.udacity_simulators import Simulator, until

FRAME = np.zeros((160, 320, 3), np.uint8)


class Counting:
    """A driver that steers by how often it was asked since its drive began."""

    def __init__(self) -> None:
        self.asked = 0

    def reset(self) -> None:
        self.asked = 0

    def step(self, frame: Any, t_s: float, speed_mps: float | None = None) -> Action:
        self.asked += 1
        return Action(self.asked / 100, 0.0, 0.0)

    def neurons(self) -> Mapping[str, Any]:
        return {"phi": np.float32([self.asked])}


def decision(step: int, t_s: float, drive: int = 0) -> Decision:
    return Decision(drive, step, t_s, FRAME, 5.0, Action(0.1, 0.2, 0.0), 1.0, None)


def tick(step: int, t_s: float, drive: int = 0) -> Tick:
    return Tick(drive, drive, step, t_s, FRAME, Action(0.1, 0.2, 0.0))


def test_listeners_are_told_in_order_and_with_events() -> None:
    told: list[Tick] = []
    driver = SimulatorDriver(Counting(), [told.append], watched=lambda: True, neurons_every=1, say=lambda text: None)
    with driver:
        driver.begin()
        driver.on_event("The simulator has connected.")
        for step in range(20):
            driver.decide(FRAME, step * 0.02, 5.0)
            driver.on_decision(decision(step, step * 0.02))
        # Neurons are read while the listeners are not behind.
        assert until(lambda: len(told) == 20)
        driver.decide(FRAME, 0.4, 5.0)
        driver.on_decision(decision(20, 0.4))
        assert until(lambda: len(told) == 21)
    assert [one.step for one in told] == list(range(21)) and driver.lost == 0
    assert told[0].events == ("started", "The simulator has connected.") and told[1].events == ()
    assert told[0].budget_ms is None and told[1].budget_ms == pytest.approx(20.0)
    assert told[-1].neurons["phi"] == [21.0]
    assert "21 commands in 1 drives" in driver.summary()


def test_a_memory_is_used_to_the_pace_of_its_training() -> None:
    with SimulatorDriver(Counting(), pace_s=0.1) as driver:
        driver.begin()
        steering = [driver.decide(FRAME, step * 0.02, 5.0).steering for step in range(11)]
        assert steering == [0.01] * 5 + [0.02] * 5 + [0.03]
        driver.begin()
        assert driver.decide(FRAME, 0.0, 5.0).steering == 0.01


def test_a_slow_listener_holds_up_nobody() -> None:
    driver = SimulatorDriver(Counting(), [lambda one: time.sleep(0.002)])
    with driver:
        began = time.monotonic()
        for step in range(1000):
            driver.on_decision(decision(step, step * 0.02))
        assert time.monotonic() - began < 1.0
    assert driver.lost > 0 and driver.lost < 1000


def test_a_listeners_failure_is_kept_for_the_main_thread() -> None:
    def fail(one: Tick) -> None:
        raise UserError("no space left on the disk")

    driver = SimulatorDriver(Counting(), [fail])
    with driver:
        driver.on_decision(decision(0, 0.0))
        assert until(lambda: driver.failure is not None)
        for step in range(600):
            driver.on_decision(decision(step, step * 0.02))
    assert isinstance(driver.failure, UserError)


def test_a_policy_for_other_pictures_is_refused_before_anything_listens() -> None:
    class Small(Counting):
        def step(self, frame: Any, t_s: float, speed_mps: float | None = None) -> Action:
            raise ValueError("trained on frames of (96, 96, 3)")

    with pytest.raises(UserError, match="96"), SimulatorDriver(Small()):
        pass


@pytest.mark.parametrize("rate", [10.0, 25.0, 47.0, 60.0])
def test_a_film_runs_in_real_time_whatever_the_simulators_rate(rate: float) -> None:
    told: list[Tick] = []
    listener = at_rate(told.append, 25.0)
    for drive in range(2):
        for step in range(int(4 * rate) + 1):
            listener(tick(step, step / rate, drive))
    assert len(told) == pytest.approx(2 * (4 * 25 + 1), abs=2)


def test_a_recording_is_kept_in_pieces() -> None:
    told: list[Tick] = []
    listener = in_pieces(told.append, 4)
    for step in range(10):
        listener(tick(step, 7 + step * 0.5))
    listener(tick(0, 0.0, drive=1))
    assert [one.step for one in told] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 0]
    assert [one.done for one in told] == [False, False, False, True] * 2 + [False] * 3
    assert told[4].t_s == 0.0 and told[5].t_s == 0.5


def small_policy(path: Path, window: int = 2) -> Path:
    torch.manual_seed(0)
    config = PolicyConfig(
        "udacity",
        "nac-steady",
        (),
        window,
        1,
        0.04,
        160,
        320,
        None,
        (60, 135),
        (33, 100),
        True,
        d_model=16,
        num_heads=2,
    )
    save_policy(Policy.new(config, "small"), path)
    return path


def test_the_command_drives_films_records_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from nacdrive.cli.drive import DriveConfig, run

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    config = DriveConfig(
        sim="udacity",
        model=str(small_policy(tmp_path / "small.pt")),
        port=port,
        page_port=0,
        seconds=6.0,
        record=tmp_path / "kept",
        video=tmp_path / "film.mp4",
    )
    command = Thread(target=run, args=(config,))
    command.start()
    with Simulator(port, "de-DE", frame_s=0.02) as car:
        assert car.drives(30)
        # Standing still at --speed 20: full throttle.
        assert car.commands[-1][1] == 1.0 and abs(car.commands[-1][0]) < 1
        command.join(60)
        assert not command.is_alive() and car.client.lost == 0
    said = capsys.readouterr().out
    for words in (
        "watch at http://127.0.0.1",
        f"Waiting for the simulator on port {port}",
        "has connected",
        "in 1 drives",
    ):
        assert words in said
    recording = Recording.open(tmp_path / "kept", source="udacity")
    episode = recording.load(0)
    assert len(episode) >= 30 and episode.decoded().shape[1:] == (160, 320, 3) and (episode.choice == -1).all()
    assert (tmp_path / "film.mp4").stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"speed": 45.0}, "--speed"),
        ({"allow_control": True, "headless": True}, "needs the page"),
        ({"pace": -1.0}, "--pace"),
        ({"seconds": 0.0}, "--seconds"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    from nacdrive.cli.drive import DriveConfig

    with pytest.raises(UserError, match=words):
        DriveConfig(sim="udacity", **options)


def test_the_port_is_the_pages_without_a_simulator_and_the_simulators_with_one() -> None:
    from nacdrive.cli.drive import DriveConfig

    assert DriveConfig().page == 8090 and DriveConfig(port=1234).page == 1234
    assert DriveConfig(port=1234, page_port=0).page == 0
    assert DriveConfig(sim="udacity", port=1234).page == 8090


def test_decisions_that_are_held_between_two_of_the_policy_are_marked() -> None:
    told: list[Tick] = []
    driver = SimulatorDriver(Counting(), [told.append], pace_s=0.08, watched=lambda: True, neurons_every=1, say=print)
    with driver:
        driver.begin()
        for step in range(9):
            driver.decide(FRAME, step * 0.04, 5.0)
            driver.on_decision(decision(step, step * 0.04))
    assert [one.held for one in told] == [step % 2 == 1 for step in range(9)]
    assert all(not one.neurons for one in told if one.held), "neurons belong to a decision of the policy"
