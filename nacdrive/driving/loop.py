"""The closed loop of one episode: frame -> policy -> action -> simulator, one Tick per decision."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nacdrive.base.control import Action
from nacdrive.driving.commands import chooses, command
from nacdrive.driving.disturbance import Camera
from nacdrive.driving.outcome import Episode, EpisodeResult, off_road
from nacdrive.driving.safety import POLICY_FAILURES, SafetyStop, checked
from nacdrive.driving.tick import Listener, Tick

Frame = NDArray[np.uint8]
Saliency = Callable[[Frame], NDArray[np.float32]]


class Driver(Protocol):
    """Who decides: a policy, or an expert that drives itself."""

    def reset(self) -> None:
        """Forget the episode before."""

    def step(self, frame: Frame, t_s: float, speed_mps: float | None = None) -> Action:
        """Decide on one frame, taken ``t_s`` seconds after the episode began."""

    def neurons(self) -> Mapping[str, NDArray[np.float32]]:
        """Named neuron states of the last decision; empty where there are none."""


class Observer(Protocol):
    """An expert that rides along: it sees every frame and says what it would have done."""

    def observe(self, frame: Frame) -> Action:
        """The expert's action for ``frame``."""


class World(Protocol):
    """What is driven: a Gymnasium environment whose ``info`` tells time, speed and progress."""

    action_space: Any
    """Discrete: one of a few choices; Box(2): steering and throttle, each -1 .. 1, negative throttle brakes."""

    def reset(self, *, seed: int | None = None) -> tuple[Frame, dict[str, Any]]:
        """Start the track of ``seed``."""

    def step(self, action: Any, /) -> tuple[Frame, Any, bool, bool, dict[str, Any]]:
        """Carry out one decision."""


class Pace:
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


def drive_episode(
    world: World,
    driver: Driver,
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
) -> EpisodeResult:
    """Drive the track of ``seed`` from start to end and tell every listener of each decision.

    ``expert`` begins an expert's episode once the track stands; it sees the true frames, the driver sees them through
    ``camera``. ``neurons_every`` asks for the neuron states at every so many decisions, 0 never. A driver that fails
    (an exception, a number that is not finite) is replaced by a safety stop, which ends the episode.
    """
    listeners = tuple(listeners)
    frame, info = world.reset(seed=seed)
    driver.reset()
    observer = expert(world) if expert else None
    if camera:
        camera.reset(seed)
    pace, running, stop = Pace(), Episode(), SafetyStop(chooses(world.action_space))
    step, done = 0, False
    while not done:
        t_s, speed = float(info["t_s"]), info.get("speed_mps")
        seen = camera(frame) if camera else frame
        events = ["started"] if step == 0 else []
        expert_action = observer.observe(frame) if observer else None
        began = time.perf_counter()
        if stop.reason is None:
            try:
                action = stop.remember(checked(driver.step(seen, t_s, speed)))
            except POLICY_FAILURES as error:
                stop.begin(error)
                events.append(f"safety stop: {stop.reason}")
        if stop.reason is not None:
            action = stop.action(speed)
        decision_ms = (time.perf_counter() - began) * 1e3
        watch = stop.reason is None
        neurons = driver.neurons() if watch and neurons_every and step % neurons_every == 0 else {}
        looked = saliency(seen) if watch and saliency and step % saliency_every == 0 else None

        before = info
        frame, reward, terminated, truncated, info = world.step(command(world.action_space, action))
        running.total += float(reward)
        done = terminated or truncated or stop.finished
        events += happened(before, info)
        if done:
            events.append(ending(info, terminated=terminated, stopped=stop.reason is not None))
        tick = Tick(
            episode=episode,
            seed=seed,
            step=step,
            t_s=t_s,
            frame=seen,
            action=action,
            reward=float(reward),
            episode_return=running.total,
            speed_mps=speed,
            lane_offset_m=before.get("lane_offset_m"),
            decision_ms=decision_ms,
            budget_ms=(float(info["t_s"]) - t_s) * 1e3,
            expert=expert_action,
            neurons=neurons,
            saliency=looked,
            events=tuple(events),
            done=done,
        )
        running.note(tick, info)
        for listener in listeners:
            listener(tick)
        if realtime:
            pace.wait_until(float(info["t_s"]))
        step += 1
    return running.result(episode, seed, info, stop.reason)


def happened(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What the simulator's word before and after a decision tells together."""
    events = ["off road"] if off_road(after) and not off_road(before) else []
    return events + ["lap finished"] * (after.get("laps", 0) > before.get("laps", 0))


def ending(info: Mapping[str, Any], *, terminated: bool, stopped: bool) -> str:
    """One phrase for how an episode ended."""
    if info.get("finished_lap"):
        return "lap finished"
    if stopped:
        return "stopped safely"
    return "left the field" if terminated else "time is up"
