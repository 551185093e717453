"""A person at a running drive: pause, start over, take the wheel; and what is kept of it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.datasets.recording import Recording
from nacdrive.drivers import load_expert
from nacdrive.drivers.base import Driver
from nacdrive.drivers.human import SILENCE_S, HumanControl, HumanOverride, Keyboard
from nacdrive.drivers.safety_stop import SafetyStop
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv, Info, Keys
from nacdrive.envs.carracing.env import make_carracing, to_action
from nacdrive.rollout.recorder import EpisodeRecorder, corrections
from nacdrive.rollout.rollout import rollout
from nacdrive.tasks import load_task

GAS, LEFT = 3, 2
PATIENT_S = 60.0
"""Silence for which a person keeps the wheel where that is not what is tested: the machine may be busy."""


class Gas:
    """Steps on it, whatever it sees."""

    name = "gas"

    def reset(self, env: DrivingEnv) -> None:
        self.asked = 0

    def act(self, frame: Any, info: Info) -> Action:
        self.asked += 1
        return to_action(GAS, np.array([0, 0, 0, 5, 0], np.float32))


def driven(
    control: HumanControl,
    *listeners: Callable[[Tick], None],
    driver: Driver | None = None,
    seed: int = 3_000_000,
    frames: int = 80,
    **options: Any,
) -> list[Tick]:
    """Ticks of a short drive; ``listeners`` are told of each, as a person at the page sees it."""
    ticks: list[Tick] = []
    world = make_carracing(renderer="fast", max_frames=frames)
    for tick in rollout(world, HumanOverride(SafetyStop(driver or Gas()), control), seed, **options):
        ticks.append(tick)
        for listener in listeners:
            listener(tick)
    return ticks


def test_whoever_takes_over_drives_and_the_policy_is_asked_all_the_same() -> None:
    control = HumanControl(silence_s=PATIENT_S)

    def act(tick: Tick) -> None:
        if tick.step == 4:
            assert control.acquire(1)
            control.set_keys(1, ["left", "up"])
        if tick.step == 9:
            control.release(1)

    ticks = driven(control, act)
    choices = [tick.action.choice for tick in ticks]
    assert choices == [GAS] * 5 + [LEFT] * 5 + [GAS] * 10
    assert [tick.human for tick in ticks] == [False] * 5 + [True] * 5 + [False] * 10
    assert all((tick.policy is not None and tick.policy.choice == GAS) == tick.human for tick in ticks)
    assert "taken over" in ticks[5].events and "handed back" in ticks[10].events


def test_one_person_at_a_time_has_the_wheel() -> None:
    control = HumanControl(silence_s=PATIENT_S)
    assert control.acquire(1) and not control.acquire(2) and control.acquire(1)
    control.set_keys(2, ["left"])
    control.release(2)
    assert control.poll().keys == frozenset() and control.state["person"] == 1
    control.release(1)
    assert control.acquire(2)


def test_a_start_over_between_two_drives_is_taken_once() -> None:
    control = HumanControl()
    assert not control.take_reset()
    control.reset()
    assert control.take_reset() and not control.take_reset()
    orders = control.poll()
    assert not orders.reset and orders.events == ("started over",)


def test_silence_lets_go_of_the_wheel() -> None:
    now = [0.0]
    control = HumanControl(clock=lambda: now[0])
    told: list[Any] = []
    control.on_change = lambda: told.append(control.state["person"])
    control.acquire(7)
    control.set_keys(7, ["up", "nonsense"])
    now[0] = SILENCE_S - 0.01
    assert control.poll().keys == {"up"}
    control.set_keys(7, ["up"])
    now[0] += SILENCE_S + 0.01
    orders = control.poll()
    assert orders.keys is None and orders.events == ("handed back: nothing heard for 0.5 s",)
    assert told[-1] is None
    control.set_keys(7, ["left"])
    assert control.poll().keys is None, "who has let go must take the wheel again"


def test_a_paused_drive_stands_still_and_goes_on_where_it_was() -> None:
    control = HumanControl()
    ticks: list[Tick] = []

    def act(tick: Tick) -> None:
        ticks.append(tick)
        if tick.step == 3:
            control.pause()

    drive = threading.Thread(target=driven, args=(control, act))
    drive.start()
    while len(ticks) < 4:
        time.sleep(0.01)
    time.sleep(0.3)
    assert len(ticks) == 4 and control.state["paused"]
    control.resume()
    drive.join(120)
    assert [tick.step for tick in ticks] == list(range(20))
    assert any(re.fullmatch(r"paused for \d+\.\d s", event) for event in ticks[4].events)


def test_starting_over_begins_the_same_track_anew() -> None:
    control = HumanControl()
    seen: list[int] = []

    def act(tick: Tick) -> None:
        seen.append(tick.step)
        if len(seen) == 6:
            control.reset()

    ticks = driven(control, act)
    assert seen == [*range(6), *range(20)]
    assert ticks[6].events[:2] == ("started", "started over")
    assert np.array_equal(ticks[0].frame, ticks[6].frame) and ticks[6].t_s == 0


def test_a_person_may_drive_on_after_the_policy_has_failed_and_the_stop_comes_when_they_let_go() -> None:
    class Failing(Gas):
        def act(self, frame: Any, info: Info) -> Action:
            super().act(frame, info)
            if self.asked > 30:
                raise ValueError("broken")
            return to_action(GAS)

    control, ticks = HumanControl(silence_s=PATIENT_S), []

    def act(tick: Tick) -> None:
        ticks.append(tick)
        if tick.step == 20:
            control.acquire(1)
        control.set_keys(1, ["up"])
        if tick.step == 40:
            control.release(1)

    driven(control, act, driver=Failing(), frames=1000)
    assert ticks[-1].failure == "ValueError: broken"
    assert [tick.action.choice for tick in ticks[31:41]] == [GAS] * 10 and ticks[35].policy is None
    assert {tick.action.choice for tick in ticks[47:]} == {4} and ticks[-1].events == ("stopped safely",)


def test_without_a_driver_the_drive_waits_for_a_person() -> None:
    control = HumanControl(needs_person=True, silence_s=PATIENT_S)
    assert control.poll(wait=False).paused
    world = make_carracing(renderer="fast", max_frames=40)
    ticks: list[Tick] = []
    drive = threading.Thread(target=lambda: ticks.extend(rollout(world, HumanOverride(None, control), 3_000_000)))
    drive.start()
    time.sleep(0.2)
    assert not ticks
    control.acquire(1)
    while drive.is_alive():
        control.set_keys(1, ["up"])
        time.sleep(0.05)
    assert [tick.action.choice for tick in ticks] == [GAS] * 10
    assert all(tick.human and tick.policy is None for tick in ticks)


def test_take_overs_are_kept_as_corrections_that_a_training_takes(tmp_path: Path) -> None:
    control, folder = HumanControl(silence_s=PATIENT_S), tmp_path / "corrections"

    def act(tick: Tick) -> None:
        if tick.step in (2, 10):
            control.acquire(1)
        control.set_keys(1, ["left"])
        if tick.step in (6, 13):
            control.release(1)

    with corrections(folder, source="carracing", fps=12.5) as keeper:
        assert not folder.exists(), "nothing is made before there is something to keep"
        ticks = driven(control, act, keeper, seed=3_000_001)
    recording = Recording.open(folder)
    first, second = sorted((recording.load(i) for i in range(2)), key=lambda episode: float(episode.t_s[0]))
    assert (len(first), len(second)) == (4, 3)
    assert first.choice.tolist() == first.expert_choice.tolist() == [LEFT] * 4
    assert first.meta["policy"]["choice"] == [GAS] * 4
    assert first.t_s.tolist() == [tick.t_s for tick in ticks[3:7]]
    assert np.array_equal(first.decoded()[0], ticks[3].frame)
    samples = load_task("carracing").load([folder])
    assert sorted(sample.fields["target"].tolist() for sample in samples) == [[LEFT] * 3, [LEFT] * 4]


def test_a_whole_drive_is_kept_with_the_experts_labels_and_a_second_one_beside_it(tmp_path: Path) -> None:
    for number in (1, 2):
        expert = load_expert("geometric")
        teacher = {"driver": "gas", "teacher": expert.name}
        with EpisodeRecorder(tmp_path / "d", source="carracing", fps=12.5, **teacher) as keeper:
            driven(HumanControl(), keeper, frames=240, expert=expert)
        recording = Recording.open(tmp_path / "d")
        assert len(recording) == number
    episode = recording.load(1)
    assert set(episode.choice) == {GAS} and set(episode.expert_choice) - {GAS}
    assert episode.meta["ended"] == "time is up"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thing.txt").write_text("not ours")
    with pytest.raises(UserError, match="holds no recording"):
        EpisodeRecorder(tmp_path / "other", source="carracing", fps=12.5, driver="gas")


class Continuous(DrivingEnv):
    name, step_s = "continuous", 0.05


def test_keys_turn_a_wheel_by_degrees_and_let_it_come_back() -> None:
    keyboard, env = Keyboard(), Continuous()
    at = [keyboard.action(["right", "up"], k * 0.05, env) for k in range(12)]
    assert at[0].steering == 0 and np.allclose(np.diff([action.steering for action in at[:6]]), Keys().rate * 0.05)
    assert at[-1] == Action(1.0, 1.0, 0.0)
    far = keyboard.action(["left"], 0.6, env)
    assert far.steering == pytest.approx(-Keys().rate * 0.05), "the far side begins at the middle"
    back = [keyboard.action(["down"], 0.65 + k * 0.05, env) for k in range(20)]
    assert back[-1] == Action(0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("keys", "name"),
    [([], 0), (["right", "up"], 1), (["left", "down"], 2), (["up"], 3), (["down"], 4), (["up", "down"], 0)],
)
def test_keys_choose_among_the_five_actions(keys: list[str], name: int) -> None:
    assert Keyboard().action(keys, 0.0, make_carracing()).choice == name


def test_a_stick_turns_the_wheel_as_far_as_it_stands_and_held_keys_count_more() -> None:
    keyboard, env = Keyboard(), Continuous()
    assert keyboard.action([], 0.0, env, (-0.3, 0.6)) == Action(-0.3, 0.6, 0.0)
    assert keyboard.action([], 0.05, env, (0.8, -0.25)) == Action(0.8, 0.0, 0.25)
    after = keyboard.action(["right"], 0.1, env, (-1.0, 1.0))
    assert after.steering == pytest.approx(0.8 + Keys().rate * 0.05), "the keys go on from where the stick had it"


@pytest.mark.parametrize(
    ("axes", "name"),
    [((0.0, 0.0), 0), ((0.1, 1.0), 3), ((0.9, 0.4), 1), ((-0.7, 0.0), 2), ((0.2, -1.0), 4), ((-1.0, -1.0), 2)],
)
def test_a_stick_chooses_the_nearest_of_five_actions(axes: tuple[float, float], name: int) -> None:
    assert Keyboard().action([], 0.0, make_carracing(), axes).choice == name


def test_a_stick_leaves_the_pedals_to_the_speed_control_until_a_trigger_is_pulled() -> None:
    control = HumanControl(silence_s=PATIENT_S)
    override = HumanOverride(Gas(), control)
    override.reset(Continuous())  # type: ignore[arg-type]
    assert control.acquire(1)
    for axes, pedals in (((0.5, 0.0), (1.0, 0.0)), ((0.5, -0.4), (0.0, 0.4))):
        control.set_keys(1, [], axes)
        override.before_decision()
        action = override.act(None, {"t_s": 0.0})
        assert (action.steering, action.throttle, action.brake) == (0.5, *pedals) and action.human
    control.release(1)
    assert control.poll(wait=False).axes is None
