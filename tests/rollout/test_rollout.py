"""The one closed loop: what a Tick tells, experts, failures, probes, pace; discrete and continuous control."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers import load_expert
from nacdrive.drivers.base import Driver, FollowExpert
from nacdrive.drivers.safety_stop import SafetyStop
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv, Frame, Info
from nacdrive.envs.camera_noise import CameraNoise, NoisyCamera
from nacdrive.envs.carracing.env import CarRacingEnv, make_carracing, to_action
from nacdrive.rollout.rollout import Probes, RealTimeClock, rollout

ROAD_HALF_M, STEP_S = 4.0, 0.05


class Scripted:
    """Drives by a rule of the decision's number alone, so that every effect is the loop's."""

    name = "scripted"

    def __init__(self, rule: Callable[[int], Action]) -> None:
        self.rule = rule
        self.seen: list[Frame] = []

    def reset(self, env: DrivingEnv) -> None:
        self.seen = []

    def act(self, frame: Frame, info: Info) -> Action:
        self.seen.append(frame)
        return self.rule(len(self.seen) - 1)

    def neurons(self) -> Mapping[str, Any]:
        return {"decision": np.array([len(self.seen)], np.float32)}


class Bend(DrivingEnv):
    """A car on a straight road, a bicycle model: steering turns it, throttle and brake change its speed."""

    name, step_s = "bend", STEP_S
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, steps: int = 200) -> None:
        self.steps = steps
        self.taken: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Frame, Info]:
        self.count, self.x, self.y, self.heading, self.speed, self.taken = 0, 0.0, 0.0, 0.0, 8.0, []
        return np.zeros((160, 320, 3), np.uint8), self.info()

    def _step(self, action: np.ndarray) -> tuple[Frame, float, bool, bool, Info]:
        before = self.info()
        self.taken.append(action)
        steering, push = map(float, action)
        self.speed = max(0.0, self.speed + (2.0 if push > 0 else 8.0) * push * STEP_S)
        self.heading += steering * 0.15 * self.speed * STEP_S
        self.x += np.cos(self.heading) * self.speed * STEP_S
        self.y += np.sin(self.heading) * self.speed * STEP_S
        self.count += 1
        info = self.info()
        info["events"] = ("off road",) * (info["off_road"] and not before["off_road"])
        return np.zeros((160, 320, 3), np.uint8), 1.0, False, self.count >= self.steps, info

    def info(self) -> Info:
        return {
            "t_s": self.count * STEP_S,
            "speed_mps": self.speed,
            "lane_offset_m": self.y,
            "off_road": bool(abs(self.y) > ROAD_HALF_M),
            "progress": self.x / 100,
        }


def gas(k: int) -> Action:
    return to_action(3)


def short(frames: int = 80, repeat: int = 4) -> CarRacingEnv:
    return make_carracing(renderer="fast", repeat=repeat, max_frames=frames)


def ticks_of(env: DrivingEnv, driver: Driver, seed: int, **options: Any) -> list[Tick]:
    return list(rollout(env, driver, seed, **options))


def test_ticks_tell_the_whole_episode() -> None:
    ticks = ticks_of(short(), Scripted(gas), 4_000_000, episode=7)
    assert [tick.step for tick in ticks] == list(range(20))
    assert [tick.t_s for tick in ticks] == pytest.approx(np.arange(20) * 0.08)
    assert all(tick.budget_ms == pytest.approx(80) for tick in ticks)
    assert ticks[-1].episode_return == pytest.approx(sum(tick.reward for tick in ticks))
    assert ticks[0].events == ("started",) and ticks[-1].events == ("time is up",)
    assert [tick.done for tick in ticks] == [False] * 19 + [True]
    assert {tick.episode for tick in ticks} == {7} and {tick.seed for tick in ticks} == {4_000_000}
    assert ticks[0].speed_mps == 0 and (ticks[-1].speed_mps or 0) > 5
    assert ticks[-1].next_info["t_s"] == pytest.approx(1.6)
    driven = np.hypot(ticks[-1].x_m - ticks[0].x_m, ticks[-1].y_m - ticks[0].y_m)  # type: ignore[operator]
    assert driven > 3 and ticks[0].heading_rad is not None and ticks[-1].progress is not None


def test_the_return_is_that_of_the_official_environment() -> None:
    rule = [3, 3, 3, 0, 1, 3, 2, 3, 4, 0]
    ours = ticks_of(short(160), Scripted(lambda k: to_action(rule[k % 10])), 4_000_001)
    official = gymnasium.make("CarRacing-v3", continuous=False)
    official.reset(seed=4_000_001)
    # Frames are not looked at: drawing would only cost time.
    official.unwrapped._render = lambda mode: np.zeros((96, 96, 3), np.uint8)  # type: ignore[attr-defined]
    total = sum(float(official.step(rule[k // 4 % 10])[1]) for k in range(160))
    assert ours[-1].episode_return == pytest.approx(total)


def test_the_same_seed_gives_the_same_drive() -> None:
    returns = [ticks_of(short(200), Scripted(gas), seed)[-1].episode_return for seed in (4, 5, 4)]
    assert returns[0] == returns[2] != returns[1]


def test_frame_before_and_reward_after_belong_to_one_decision() -> None:
    first, _ = make_carracing(renderer="fast").reset(seed=9)
    assert np.array_equal(ticks_of(short(), Scripted(gas), 9)[0].frame, first)


def test_expert_rides_along_and_sees_true_frames() -> None:
    seen: list[Frame] = []

    class Witness:
        name = "witness"

        def __init__(self) -> None:
            self.own = load_expert("ppo")

        def reset(self, env: DrivingEnv) -> None:
            self.own.reset(env)

        def act(self, frame: Frame, info: Info) -> Action:
            seen.append(frame)
            action: Action = self.own.act(frame, info)
            return action

    driver = Scripted(gas)
    ticks = ticks_of(NoisyCamera(short(), CameraNoise(brightness=0)), driver, 3, expert=Witness())  # type: ignore[arg-type]
    assert not np.any(driver.seen) and all(np.any(frame) for frame in seen)
    assert not np.any(ticks[0].frame), "the Tick shows what the driver saw"
    assert np.mean([tick.expert.choice == tick.action.choice for tick in ticks if tick.expert]) > 0.2


def test_an_expert_can_drive_itself() -> None:
    ticks = ticks_of(short(1000), FollowExpert(), 4_000_000, expert=load_expert("geometric"))
    assert ticks[-1].episode_return > 800 and ticks[-1].next_info["progress"] > 0.9
    with pytest.raises(RuntimeError, match="no expert rides along"):
        ticks_of(short(), FollowExpert(), 1)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda: Action(0, 0, 0, 3, np.array([0, np.nan, 0, 1, 0], np.float32)), "not finite for the scores"),
        (lambda: Action(float("inf"), 0, 0, 3), "not finite for steering"),
        (lambda: Action(**{"steering": [][1], "throttle": 0, "brake": 0}), "IndexError: list index out of range"),
        (lambda: np.zeros(3) + np.zeros(4), "ValueError: operands could not be broadcast"),
        (lambda: {}["no such key"], "KeyError: 'no such key'"),
        (lambda: to_action(3).throttle, "no Action but float"),
        (lambda: Action(0, 0, 0, 7), "chose action 7"),
        (lambda: Action(0, 0, 0), "chose action None"),
    ],
)
def test_a_failing_driver_is_stopped_safely(broken: Callable[[], Action], said: str) -> None:
    rule = lambda k: broken() if k >= 25 else to_action(1 if k == 24 else 3)  # noqa: E731
    driver = Scripted(rule)
    ticks = ticks_of(short(1000), SafetyStop(driver), 4_000_002)
    failure = ticks[-1].failure
    assert failure is not None and said in failure and "\n" not in failure and ticks[24].failure is None
    assert len(driver.seen) == 26, "a driver that failed is not asked again"
    assert any(event.startswith("safety stop: ") for event in ticks[25].events)
    choices = [tick.action.choice for tick in ticks[25:]]
    assert choices[:4] == [1] * 4, "the course is held first, for 0.3 s"
    assert set(choices[4:]) == {4}, "then it brakes, wheel straight"
    assert (ticks[25].speed_mps or 0) > 10 and (ticks[-1].speed_mps or 0) < 1
    assert ticks[-1].done and ticks[-1].events == ("stopped safely",)


def test_a_users_mistake_and_ctrl_c_are_not_mistaken_for_a_failing_driver() -> None:
    for kind in (KeyboardInterrupt, UserError):

        def raising(k: int, kind: type[BaseException] = kind) -> Action:
            raise kind

        with pytest.raises(kind):
            ticks_of(short(), SafetyStop(Scripted(raising)), 1)


def test_neurons_and_saliency_come_as_often_as_asked() -> None:
    driver = Scripted(gas)
    look = lambda frame: frame[..., 0].astype(np.float32) / 255  # noqa: E731
    ticks = ticks_of(short(), driver, 1, probes=Probes(driver.neurons, 4, look, 5))
    assert [tick.step for tick in ticks if tick.neurons] == [0, 4, 8, 12, 16]
    assert [tick.step for tick in ticks if tick.saliency is not None] == [0, 5, 10, 15]
    assert ticks[4].neurons["decision"] == 5, "right after the decision"
    assert not any(tick.neurons for tick in ticks_of(short(), driver, 1))
    unwatched = ticks_of(short(), driver, 1, probes=Probes(driver.neurons, 1, look, 1, watched=lambda: False))
    assert not any(tick.neurons or tick.saliency is not None for tick in unwatched)


def test_nothing_is_read_of_a_decision_between_frames_and_it_is_made_up_for_at_the_next_frame() -> None:
    driver = Scripted(gas)
    env = NoisyCamera(CarRacingEnv(renderer="fast", repeat=4, max_frames=120), CameraNoise(rate=(5, 5)), True)
    ticks = list(rollout(env, driver, 1, probes=Probes(driver.neurons, 2)))
    blank = [bool(tick.between_frames) for tick in ticks]
    assert sum(blank) > len(ticks) / 2 and not any(tick.neurons for tick in ticks if tick.between_frames)
    assert sum(bool(tick.neurons) for tick in ticks) > 0.8 * blank.count(False)


def test_a_reward_that_is_no_number_ends_the_drive_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    env, step = Bend(), Bend._step
    monkeypatch.setattr(Bend, "_step", lambda self, action: (*step(self, action)[:1], np.nan, *step(self, action)[2:]))
    with pytest.raises(UserError, match="the environment's reward in step 0 of seed 3 is nan: mend it there"):
        ticks_of(env, Scripted(gas), 3)


@pytest.mark.parametrize(
    ("info", "sentence"),
    [
        ({"t_s": 0.0}, "t_s in step 0 of seed 3 is 0.0 after 0.0: it has to grow: mend it there"),
        ({"t_s": -1.0}, "t_s in step 0 of seed 3 is -1.0 after 0.0: it has to grow"),
        ({"speed_mps": math.inf}, "speed_mps in step 0 of seed 3 is inf: mend it there"),
        ({"speed_mps": "12"}, "speed_mps in step 0 of seed 3 is '12': mend it there"),
        ({"t_s": "soon"}, "t_s in step 0 of seed 3 is 'soon': mend it there"),
        ({"progress": np.float32(np.nan)}, "progress in step 0 of seed 3 is nan: mend it there"),
    ],
)
def test_what_an_environment_cannot_mean_ends_the_drive_in_a_sentence(
    info: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, step = Bend(), Bend._step
    monkeypatch.setattr(Bend, "_step", lambda self, action: (*(given := step(self, action))[:4], {**given[4], **info}))
    with pytest.raises(UserError, match=re.escape(f"the environment's {sentence}")):
        ticks_of(env, Scripted(gas), 3)


def test_a_speed_in_words_is_refused_before_anybody_decides_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reset = Bend.reset
    fast = {"speed_mps": "fast"}
    monkeypatch.setattr(
        Bend, "reset", lambda self, **options: ((made := reset(self, **options))[0], {**made[1], **fast})
    )
    with pytest.raises(UserError, match="the environment's speed_mps at the start of seed 3 is 'fast': mend it there"):
        ticks_of(Bend(), Scripted(gas), 3)


@pytest.mark.parametrize("is_expert", [False, True])
def test_what_is_no_number_reaches_neither_the_car_nor_a_recording(is_expert: bool) -> None:
    bad = Scripted(lambda k: Action(math.nan if k == 2 else 0.0, 0.1, 0.0))
    driver, expert = (Scripted(gas), bad) if is_expert else (bad, None)
    with pytest.raises(UserError, match="decided a number that is not finite in step 2 of seed 3"):
        ticks_of(Bend(), driver, 3, expert=expert)


def test_leaving_the_loop_early_ends_the_episode() -> None:
    env = short()
    for tick in rollout(env, Scripted(gas), 1):
        if tick.step == 3:
            break
    again, fresh = ticks_of(env, Scripted(gas), 1), ticks_of(short(), Scripted(gas), 1)
    assert [(tick.step, tick.t_s, tick.episode_return) for tick in again] == [
        (tick.step, tick.t_s, tick.episode_return) for tick in fresh
    ]
    assert np.array_equal(again[0].frame, fresh[0].frame)


def test_realtime_keeps_pace_with_simulated_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def sleep(seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        pauses.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    began = time.perf_counter()
    ticks_of(short(24), Scripted(gas), 1, realtime=True)
    # A busy machine makes pauses longer, and what is asked for no more than the drive's 0.48 s.
    assert sum(pauses) < 0.49 and time.perf_counter() - began > 0.45


def test_pace_does_not_rush_after_a_delay() -> None:
    pace = RealTimeClock()
    pace.origin -= 5
    pace.wait_until(0.0)
    began = time.perf_counter()
    pace.wait_until(0.05)
    assert time.perf_counter() - began > 0.03


def test_steering_and_throttle_reach_the_world_and_brakes_are_negative() -> None:
    rule = [Action(0.25, 0.5, 0.0), Action(-0.5, 0.0, 0.75), Action(1.5, 2.0, 0.0)]
    world = Bend(3)
    ticks_of(world, Scripted(lambda k: rule[k]), 1)
    assert all(taken.dtype == np.float32 for taken in world.taken)
    assert np.array_equal(world.taken, np.array([[0.25, 0.5], [-0.5, -0.75], [1.0, 1.0]], np.float32))


def test_lane_offset_and_leaving_the_road_are_told() -> None:
    ticks = ticks_of(Bend(150), Scripted(lambda k: Action(0.02, 0.2, 0.0)), 1)
    assert ticks[0].lane_offset_m == 0.0 and (ticks[-1].lane_offset_m or 0) > ROAD_HALF_M
    assert [event for tick in ticks for event in tick.events].count("off road") == 1
    left = next(k for k, tick in enumerate(ticks) if "off road" in tick.events)
    # The event follows the decision: the frame after it is the first one beside the road.
    assert abs(ticks[left].lane_offset_m or 0) <= ROAD_HALF_M < abs(ticks[left + 1].lane_offset_m or 0)


def test_a_failing_driver_holds_the_course_then_straightens_and_brakes_until_the_car_stands() -> None:
    world = Bend()
    rule = lambda k: Action(-0.4, 0.3, 0.0) if k < 10 else Action(float("nan"), 0.3, 0.0)  # noqa: E731
    ticks = ticks_of(world, SafetyStop(Scripted(rule)), 1)
    assert "not finite for steering" in str(ticks[-1].failure)
    stop = np.array(world.taken[10:])
    held = round(0.3 / STEP_S)
    assert stop[:held] == pytest.approx(np.array([[-0.4, 0.0]] * held)), "the course is held first, without throttle"
    straight = held + round(0.4 / STEP_S)
    assert np.all(np.diff(stop[held:straight, 0]) > 0) and not stop[straight + 1 :, 0].any(), "straightened by degrees"
    assert np.all(stop[held + 1 :, 1] == -1), "and the car brakes"
    assert ticks[-1].events[-1] == "stopped safely" and (ticks[-1].speed_mps or 0) < 0.5
