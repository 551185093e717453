from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest

from nacdrive.common.action import Action
from nacdrive.drivers import load_expert
from nacdrive.drivers.expert_driver import ExpertDriver
from nacdrive.drivers.tick import Tick
from nacdrive.envs.camera_noise import Camera, CameraNoise
from nacdrive.envs.carracing.env import CarRacingEnv, make_carracing, to_action
from nacdrive.rollout.old_loop import Frame, RealTimeClock, drive_episode


class Scripted:
    """Drives by a rule of time alone, so that every effect is the loop's."""

    def __init__(self, rule: Callable[[int], Action]) -> None:
        self.rule = rule
        self.seen: list[Frame] = []
        self.times: list[float] = []

    def reset(self) -> None:
        self.seen, self.times = [], []

    def step(self, frame: Frame, t_s: float, speed_mps: float | None = None) -> Action:
        self.seen.append(frame)
        self.times.append(t_s)
        return self.rule(len(self.seen) - 1)

    def neurons(self) -> Mapping[str, Any]:
        return {"decision": np.array([len(self.seen)], np.float32)}


def gas(k: int) -> Action:
    return to_action(3)


def short(frames: int = 80, repeat: int = 4) -> CarRacingEnv:
    return make_carracing(renderer="fast", repeat=repeat, max_frames=frames)


def test_ticks_tell_the_whole_episode() -> None:
    ticks: list[Tick] = []
    result = drive_episode(short(), Scripted(gas), 4_000_000, episode=7, listeners=[ticks.append])
    assert [tick.step for tick in ticks] == list(range(20)) and result.decisions == 20
    assert [tick.t_s for tick in ticks] == pytest.approx(np.arange(20) * 0.08)
    assert all(tick.budget_ms == pytest.approx(80) for tick in ticks)
    assert sum(tick.reward for tick in ticks) == pytest.approx(result.episode_return)
    assert ticks[-1].episode_return == pytest.approx(result.episode_return)
    assert ticks[0].events == ("started",) and ticks[-1].events == ("time is up",)
    assert [tick.done for tick in ticks] == [False] * 19 + [True]
    assert {tick.episode for tick in ticks} == {7} and {tick.seed for tick in ticks} == {4_000_000}
    assert ticks[0].speed_mps == 0 and (ticks[-1].speed_mps or 0) > 5
    assert result.simulated_s == pytest.approx(1.6)


def test_the_return_is_that_of_the_official_environment() -> None:
    rule = [3, 3, 3, 0, 1, 3, 2, 3, 4, 0]
    ours = drive_episode(short(160), Scripted(lambda k: to_action(rule[k % 10])), 4_000_001)
    official = gymnasium.make("CarRacing-v3", continuous=False)
    official.reset(seed=4_000_001)
    # Frames are not looked at: drawing would only cost time.
    official.unwrapped._render = lambda mode: np.zeros((96, 96, 3), np.uint8)  # type: ignore[attr-defined]
    total = sum(float(official.step(rule[k // 4 % 10])[1]) for k in range(160))
    assert ours.episode_return == pytest.approx(total)


def test_the_same_seed_gives_the_same_drive() -> None:
    returns = [drive_episode(short(200), Scripted(gas), seed).episode_return for seed in (4, 5, 4)]
    assert returns[0] == returns[2] != returns[1]


def test_frame_before_and_reward_after_belong_to_one_decision() -> None:
    world, ticks = short(), []
    first, _ = make_carracing(renderer="fast").reset(seed=9)
    drive_episode(world, Scripted(gas), 9, listeners=[ticks.append])
    assert np.array_equal(ticks[0].frame, first)


def test_expert_rides_along_and_sees_true_frames() -> None:
    expert, ticks = load_expert("geometric"), []
    seen: list[Frame] = []

    class Witness:
        def __init__(self, world: Any) -> None:
            self.own = expert.new_episode(world)

        def observe(self, frame: Frame) -> Action:
            seen.append(frame)
            return self.own.observe(frame)

    camera = Camera(CameraNoise(brightness=0))
    driver = Scripted(gas)
    result = drive_episode(short(), driver, 3, listeners=[ticks.append], expert=Witness, camera=camera)
    assert not np.any(driver.seen) and all(np.any(frame) for frame in seen)
    agreed = np.mean([tick.expert.choice == tick.action.choice for tick in ticks])
    assert result.expert_agreement == pytest.approx(agreed) and agreed > 0.2


def test_an_expert_can_drive_itself() -> None:
    world = short(1000)
    result = drive_episode(world, ExpertDriver(load_expert("geometric").new_episode, world), 4_000_000)
    assert result.episode_return > 800 and result.tiles_visited > 0.9


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda: Action(0, 0, 0, 3, np.array([0, np.nan, 0, 1, 0], np.float32)), "not finite for the scores"),
        (lambda: Action(float("inf"), 0, 0, 3), "not finite for steering"),
        (lambda: Action(**{"steering": [][1], "throttle": 0, "brake": 0}), "IndexError: list index out of range"),
        (lambda: np.zeros(3) + np.zeros(4), "ValueError: operands could not be broadcast"),
    ],
)
def test_a_failing_driver_is_stopped_safely(broken: Callable[[], Action], said: str) -> None:
    ticks: list[Tick] = []
    rule = lambda k: broken() if k == 25 else to_action(1 if k == 24 else 3)  # noqa: E731
    driver = Scripted(rule)
    result = drive_episode(short(1000), driver, 4_000_002, listeners=[ticks.append])
    assert result.failure is not None and said in result.failure and "\n" not in result.failure
    assert len(driver.seen) == 26, "a driver that failed is not asked again"
    assert any(event.startswith("safety stop: ") for event in ticks[25].events)
    choices = [tick.action.choice for tick in ticks[25:]]
    assert choices[:2] == [1, 1], "the course is held first"
    assert set(choices[2:]) == {4}, "then it brakes, wheel straight"
    assert (ticks[25].speed_mps or 0) > 10 and (ticks[-1].speed_mps or 0) < 1
    assert ticks[-1].done and ticks[-1].events == ("stopped safely",)


def test_a_bug_and_ctrl_c_are_not_mistaken_for_a_failing_driver() -> None:
    for kind in (KeyboardInterrupt, AttributeError):

        def raising(k: int, kind: type[BaseException] = kind) -> Action:
            raise kind

        with pytest.raises(kind):
            drive_episode(short(), Scripted(raising), 1)


def test_neurons_and_saliency_come_as_often_as_asked() -> None:
    ticks: list[Tick] = []
    drive_episode(
        short(),
        Scripted(gas),
        1,
        listeners=[ticks.append],
        neurons_every=4,
        saliency=lambda frame: frame[..., 0].astype(np.float32) / 255,
        saliency_every=5,
    )
    assert [tick.step for tick in ticks if tick.neurons] == [0, 4, 8, 12, 16]
    assert [tick.step for tick in ticks if tick.saliency is not None] == [0, 5, 10, 15]
    drive_episode(short(), Scripted(gas), 1, listeners=[lambda tick: ticks.append(tick)])
    assert not ticks[-1].neurons


def test_realtime_keeps_pace_with_simulated_time() -> None:
    began = time.perf_counter()
    drive_episode(short(24), Scripted(gas), 1, realtime=True)
    assert 0.45 < time.perf_counter() - began < 2


def test_pace_does_not_rush_after_a_delay() -> None:
    pace = RealTimeClock()
    pace.origin -= 5
    pace.wait_until(0.0)
    began = time.perf_counter()
    pace.wait_until(0.05)
    assert time.perf_counter() - began > 0.03


def test_late_decisions_are_counted() -> None:
    def slow(k: int) -> Action:
        time.sleep(0.03 if k < 3 else 0)
        return to_action(3)

    result = drive_episode(short(20, repeat=1), Scripted(slow), 1)
    assert result.late_decisions >= 3 and result.decision_ms_p99 > 25 > result.decision_ms_median
