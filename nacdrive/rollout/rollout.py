"""The closed loop, and the only one: frame -> driver -> action -> environment, one ``Tick`` per decision.

An expert that rides along is asked once a frame, for one with a memory of frames must not see one twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.datasets.episode import SEEN
from nacdrive.drivers.base import Driver, DriverLike, Saliency, as_driver
from nacdrive.drivers.human import RestartEpisode
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv, Frame, Info


class RealTimeClock:
    """Keeps the wall clock level with simulated time; time once lost is not caught up in a rush."""

    def __init__(self) -> None:
        self.origin = time.perf_counter()

    def wait_until(self, t_s: float) -> None:
        ahead = self.origin + t_s - time.perf_counter()
        if ahead > 0:
            time.sleep(ahead)
        else:
            self.origin -= ahead


@dataclass
class Probes:
    """What is read out of a policy for those who watch, and how often."""

    neurons: Callable[[], Mapping[str, NDArray[np.float32]]] | None = None
    """Named neuron states of the last decision."""
    neurons_every: int = 0
    """Decisions between two readings of them, and of ``why``; 0 never."""
    saliency: Saliency | None = None
    saliency_every: int = 1
    """Decisions between two such looks."""
    watched: Callable[[], bool] = lambda: True
    """Whether anybody is there to see it: if not, nothing is read."""
    why: Callable[[], Mapping[str, Any] | None] | None = None
    """What muting each part alone does to the last decision."""

    neurons_at: int = field(default=0, init=False)
    """Step of the last reading of the neurons."""
    saliency_at: int = field(default=0, init=False)

    def read(self, frame: Frame, step: int) -> dict[str, Any]:
        """``neurons``, ``why`` and ``saliency`` of a Tick where they are due, right after the decision on ``frame``."""
        inside: dict[str, Any] = {}
        if not self.watched():
            return inside
        if self.neurons_every and is_due(step, self.neurons_at, self.neurons_every):
            self.neurons_at = step
            inside |= {} if self.neurons is None else {"neurons": self.neurons()}
            inside |= {} if self.why is None else {"why": self.why()}
        if self.saliency is not None and is_due(step, self.saliency_at, self.saliency_every):
            self.saliency_at = step
            inside["saliency"] = self.saliency(frame)
        return inside


def is_due(step: int, last: int, every: int) -> bool:
    """Whether ``every`` steps have passed since the ``last``, or an episode has begun; not every step need ask."""
    return step == 0 or not last <= step < last + every


def check_numbers(info: Mapping[str, Any], where: str) -> None:
    """Refuse numbers of an environment that are text or not finite; what else it says of itself is its own affair."""
    for name in ("reward", *Info.__annotations__):
        value = info.get(name)
        is_text = isinstance(value, str) and name != "ended"
        if is_text or (isinstance(value, float | np.floating) and not np.isfinite(value)):
            raise UserError(f"the environment's {name} {where} is {repr(value) if is_text else value}: mend it there.")


def rollout(
    env: DrivingEnv,
    driver: Driver | DriverLike,
    seed: int,
    *,
    episode: int = 0,
    options: dict[str, Any] | None = None,
    expert: Driver | DriverLike | None = None,
    probes: Probes | None = None,
    realtime: bool = False,
) -> Iterator[Tick]:
    """Drive the episode of ``seed`` from start to end and yield every decision after it was carried out.

    Leaving the iterator early ends the episode; one that a person starts over begins again at step 0.

    Args:
        seed: Of the episode, which is number ``episode`` of this run.
        options: Handed to ``env.reset``.
        expert: Rides along: it sees every frame as it was taken, and its action reaches the driver as
            ``info["expert_action"]``.
        probes: What to read of the driver's inside.
        realtime: Keep pace with the wall clock, for people who watch, also where time does not pass by itself.
    """
    paced = realtime and not env.realtime
    who, beside = as_driver(driver), None if expert is None else as_driver(expert)

    def drive() -> Iterator[Tick]:
        frame, info = env.reset(seed=seed, options=options)
        check_numbers(info, f"at the start of seed {seed}")
        who.reset(env)
        if beside is not None:
            beside.reset(env)
        clock = RealTimeClock()
        total, step, done = 0.0, 0, False
        while not done:
            who.before_decision()
            advice = beside.act(info.get("clean_frame", frame), info) if beside is not None else None
            seen = info if advice is None else info | {"expert_action": advice}
            began = time.perf_counter()
            action = who.act(frame, seen)
            decision_ms = (time.perf_counter() - began) * 1e3
            for whose, one in ((who, action), (beside or who, advice)):
                if isinstance(one, Action) and not math.isfinite(one.steering + one.throttle + one.brake):
                    raise UserError(f"{whose.name} decided a number that is not finite in step {step} of seed {seed}.")
            state = who.state()
            # Between frames nothing new is shown, and what is read there would hide what is.
            is_read = probes is not None and state.failure is None and not info.get("between_frames")
            inside = probes.read(frame, step) if probes is not None and is_read else {}

            next_frame, reward, terminated, truncated, next_info = env.step(action)
            total, done = total + float(reward), bool(terminated or truncated or state.finished)
            where = f"in step {step} of seed {seed}"
            check_numbers({"reward": total, **next_info}, where)
            t_s, next_t_s = float(info["t_s"]), float(next_info["t_s"])
            if not (next_t_s > t_s or (done and next_t_s == t_s)):
                was = f"is {next_t_s} after {t_s}: it has to grow"
                raise UserError(f"the environment's t_s {where} {was}: mend it there.")
            events = ["started"] * (step == 0) + [*state.events, *next_info.get("events", ())]
            if done:
                # One phrase for how the episode ended is the last of them.
                ended = next_info.get("ended", "left the field" if terminated else "time is up")
                if state.failure is not None and ended != "lap finished":
                    ended = "stopped safely"
                events = [event for event in events if event != ended] + [ended]
            yield Tick(
                episode=episode,
                seed=seed,
                step=step,
                t_s=t_s,
                frame=frame,
                action=action,
                reward=float(reward),
                episode_return=total,
                **{name: info.get(name) for name in ("speed_mps", "lane_offset_m", *SEEN)},
                decision_ms=decision_ms,
                # A simulator that has gone leaves no time between its last two pictures.
                budget_ms=(next_t_s - t_s) * 1e3 or None,
                held=state.held and state.failure is None,
                human=action.human,
                policy=action.policy,
                expert=advice,
                events=tuple(events),
                done=done,
                failure=state.failure,
                info=info,
                next_info=next_info,
                **inside,
            )
            if paced:
                clock.wait_until(next_t_s)
            frame, info, step = next_frame, next_info, step + 1

    while True:
        with suppress(RestartEpisode):
            yield from drive()
            return
