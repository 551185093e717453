"""The closed loop of one episode: frame -> policy -> action -> simulator, one Tick per decision."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nacdrive.drivers.commands import command
from nacdrive.drivers.human import ControlState, HumanControl
from nacdrive.drivers.roles import Driver, Frame, Observer, Saliency, World
from nacdrive.drivers.seat import Seat
from nacdrive.drivers.tick import Listener, Tick
from nacdrive.envs.camera_noise import Camera
from nacdrive.rollout.metrics import EpisodeResult

__all__ = ["Driver", "Frame", "Observer", "Saliency", "World", "drive_episode", "ending"]


class RealTimeClock:
    """Keeps the wall clock level with simulated time; time once lost is not caught up in a rush."""

    def __init__(self) -> None:
        self.origin = time.perf_counter()

    def wait_until(self, t_s: float) -> None:
        """Sleep until ``t_s`` simulated seconds have passed on the wall clock."""
        ahead = self.origin + t_s - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
        else:
            self.origin -= ahead


@dataclass(frozen=True)
class Probes:
    """What is read out of a driver's head for those who watch, and how often."""

    neurons_every: int = 0
    """Decisions between two readings of the neuron states; 0 never."""
    saliency: Saliency | None = None
    """Says where the driver looks."""
    saliency_every: int = 1
    """Decisions between two such looks."""
    watched: Callable[[], bool] = lambda: True
    """Whether anybody is there to see it: if not, nothing is read."""

    def into(self, driver: Driver | None, frame: Frame, step: int) -> dict[str, Any]:
        """``neurons`` and ``saliency`` of a Tick, right after the driver's decision on ``frame``."""
        found: dict[str, Any] = {}
        if driver is None or not self.watched():
            return found
        if self.neurons_every and step % self.neurons_every == 0:
            found["neurons"] = driver.neurons()
        if self.saliency is not None and step % self.saliency_every == 0:
            found["saliency"] = self.saliency(frame)
        return found


def drive_episode(
    world: World,
    driver: Driver | None,
    seed: int,
    *,
    episode: int = 0,
    listeners: Iterable[Listener] = (),
    expert: Callable[[Any], Observer] | None = None,
    camera: Camera | None = None,
    realtime: bool = False,
    neurons_every: int = 0,
    saliency: Saliency | None = None,
    saliency_every: int = 1,
    watched: Callable[[], bool] = lambda: True,
    control: HumanControl | None = None,
) -> EpisodeResult:
    """Drive the track of ``seed`` from start to end and tell every listener of each decision.

    ``expert`` begins an expert's episode once the track stands; it sees the true frames, the driver sees them through
    ``camera``. ``neurons_every`` asks for the neuron states at every so many decisions, 0 never; they and ``saliency``
    are read only while ``watched`` says that somebody looks. A driver that fails (an exception, a number that is not
    finite) is replaced by a safety stop, which ends the episode. ``control`` is asked before every decision whether a
    person pauses, starts over or has taken the wheel; the result is that of the last start. ``driver`` is None where
    a person is the only one.
    """
    listeners = tuple(listeners)
    insight = Probes(neurons_every, saliency, saliency_every, watched)
    while True:
        run = Run(world, driver, seed, episode, expert, camera, insight)
        pace = RealTimeClock()
        while not run.done:
            orders = control.poll() if control else ControlState()
            if orders.reset:
                break
            tick = run.decide(orders)
            for listener in listeners:
                listener(tick)
            if realtime:
                pace.wait_until(run.t_s)
        else:
            return run.result()


class Run:
    """One start of an episode, decision by decision."""

    def __init__(
        self,
        world: World,
        driver: Driver | None,
        seed: int,
        episode: int,
        expert: Callable[[Any], Observer] | None,
        camera: Camera | None,
        insight: Probes,
    ) -> None:
        self.world, self.seed, self.episode, self.camera, self.insight = world, seed, episode, camera, insight
        self.frame, self.info = world.reset(seed=seed)
        if driver:
            driver.reset()
        self.observer = expert(world) if expert else None
        if camera:
            camera.reset(seed)
        self.seat = Seat(driver, world.action_space)
        self.sum = Episode()
        self.step, self.done = 0, False

    @property
    def t_s(self) -> float:
        """Simulated seconds driven."""
        return float(self.info["t_s"])

    def decide(self, orders: ControlState) -> Tick:
        """Take one decision, carry it out, and say what came of it."""
        before, t_s, speed = self.info, self.t_s, self.info.get("speed_mps")
        seen = self.camera(self.frame) if self.camera else self.frame
        advice = self.observer.observe(self.frame) if self.observer else None
        made = self.seat.decide(seen, t_s, speed, orders.keys)
        sound = self.seat.stop.reason is None
        insight = self.insight.into(self.seat.driver, seen, self.step) if sound else {}

        asked = command(self.world.action_space, made.action)
        self.frame, reward, terminated, truncated, self.info = self.world.step(asked)
        self.sum.total += float(reward)
        self.done = terminated or truncated or self.seat.stop.finished
        events = ["started"] * (self.step == 0) + [*orders.events, *made.events, *happened(before, self.info)]
        if self.done:
            events.append(ending(self.info, terminated=terminated, stopped=not sound))
        tick = Tick(
            episode=self.episode,
            seed=self.seed,
            step=self.step,
            t_s=t_s,
            frame=seen,
            action=made.action,
            reward=float(reward),
            episode_return=self.sum.total,
            speed_mps=speed,
            lane_offset_m=before.get("lane_offset_m"),
            decision_ms=made.took_ms,
            budget_ms=(self.t_s - t_s) * 1e3,
            human=made.person,
            policy=made.policy,
            expert=advice,
            events=tuple(events),
            done=self.done,
            **insight,
        )
        self.sum.note(tick, self.info)
        self.step += 1
        return tick

    def result(self) -> EpisodeResult:
        """What came of it."""
        return self.sum.result(self.episode, self.seed, self.info, self.seat.stop.reason)


def happened(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What the simulator's word before and after a decision tells together."""
    events = ["off road"] if off_road(after) and not off_road(before) else []
    events += ["intervention: put back on the road"] * bool(after.get("put_back", False))
    return events + ["lap finished"] * (after.get("laps", 0) > before.get("laps", 0))


def ending(info: Mapping[str, Any], *, terminated: bool, stopped: bool) -> str:
    """One phrase for how an episode ended."""
    if info.get("finished_lap"):
        return "lap finished"
    if stopped:
        return "stopped safely"
    return "left the field" if terminated else "time is up"


class Episode:
    """Sums up an episode while it is driven."""

    def __init__(self) -> None:
        self.total = 0.0
        self.latencies: list[float] = []
        self.speeds: list[float] = []
        self.grass: list[float] = []
        self.agreed: list[bool] = []
        self.late = 0

    def note(self, tick: Tick, info: Mapping[str, Any]) -> None:
        """Take in one decision and what the simulator said after it."""
        self.latencies.append(tick.decision_ms)
        self.speeds.append(tick.speed_mps or 0.0)
        self.grass.append(wheels_off(info))
        self.late += tick.budget_ms is not None and tick.decision_ms > tick.budget_ms
        if tick.expert is not None and tick.expert.choice is not None:
            self.agreed.append(tick.expert.choice == tick.action.choice)

    def result(self, episode: int, seed: int, info: Mapping[str, Any], failure: str | None) -> EpisodeResult:
        """The sum."""
        return EpisodeResult(
            episode=episode,
            seed=seed,
            episode_return=round(self.total, 6),
            decisions=len(self.latencies),
            simulated_s=float(info["t_s"]),
            tiles_visited=float(info.get("tiles_visited", info.get("progress", 0))),
            finished_lap=finished_lap(info),
            grass_share=float(np.mean(self.grass)),
            mean_speed_mps=float(np.mean(self.speeds)),
            decision_ms_median=float(np.median(self.latencies)),
            decision_ms_p99=float(np.percentile(self.latencies, 99)),
            late_decisions=self.late,
            expert_agreement=float(np.mean(self.agreed)) if self.agreed else None,
            failure=failure,
        )


def wheels_off(info: Mapping[str, Any]) -> float:
    """Share of the four wheels beside the road, 0 .. 1, as CarRacing (``wheels_on_grass``) or the lake says it."""
    return float(info.get("wheels_off", info.get("wheels_on_grass", 0)))


def off_road(info: Mapping[str, Any]) -> bool:
    """Whether the car has left the road: the world's own word where it gives one, else all four wheels."""
    return bool(info.get("off_road", wheels_off(info) >= 1))


def finished_lap(info: Mapping[str, Any]) -> bool:
    """Whether a lap was driven to its end."""
    return bool(info.get("finished_lap", False)) or int(info.get("laps", 0)) >= 1
