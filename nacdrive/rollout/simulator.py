"""Drives a simulator that connects to us: the bridge's pictures to the policy, its decisions to whoever listens."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from queue import Full, Queue
from threading import Lock, Thread
from typing import Any

import numpy as np

from nacdrive.common.action import Action
from nacdrive.common.errors import UserError
from nacdrive.drivers.helm import ByPerson, Helm
from nacdrive.drivers.human import Control
from nacdrive.drivers.roles import Driver, Saliency
from nacdrive.drivers.speed_control import SpeedController
from nacdrive.drivers.tick import Listener, Tick
from nacdrive.envs.udacity.telemetry import HEIGHT, WIDTH
from nacdrive.envs.udacity.wheel import Decision, Frame

BACKLOG = 250
"""Decisions that slow listeners (a film, a recording) may be behind: five seconds."""
BEHIND = 5
"""Decisions that the listeners may be behind, and neurons and saliency are still read: a tenth of a second."""
SLACK_S = 0.01
"""Half a frame: a decision that is due before the next picture is taken now."""
REMEMBERED = 10_000
"""Decisions that the summary's percentiles are taken over."""


class SimulatorDriver:
    """A policy for ``Bridge``: ``decide``, ``begin``, ``on_decision`` and ``on_event`` are its arguments.

    Listeners are told in a thread of their own, so that none of them holds up a decision. A context manager.

    Args:
        policy: Who decides.
        listeners: Who is told of every decision.
        speed: Gives throttle and brake in place of the policy's own; None leaves those.
        control: What people at browsers want; None lets nobody but the policy drive.
        pace_s: Least time between two decisions of the policy, in seconds; in between the last one holds. A memory of
            several frames is used to the pace of its training, and simulators send up to 60 pictures a second.
        watched: Whether somebody looks at the neurons now.
        neurons_every: Decisions between two readings of the neurons; 0 never.
        saliency: Says where the policy looks.
        saliency_every: Decisions between two such looks.
        say: Told of events, in a line each.
    """

    def __init__(
        self,
        policy: Driver,
        listeners: Iterable[Listener] = (),
        *,
        speed: SpeedController | None = None,
        control: Control | None = None,
        pace_s: float = 0.0,
        watched: Callable[[], bool] = lambda: False,
        neurons_every: int = 0,
        saliency: Saliency | None = None,
        saliency_every: int = 1,
        say: Callable[[str], None] = print,
    ) -> None:
        self.decisions = self.lost = self.stops = 0
        self.drives = 0
        """Drives so far: a new one begins with every simulator that connects, and after manual driving."""
        self.failure: Exception | None = None
        """What a listener failed with; none is told any more from then on."""
        self.decision_ms: deque[float] = deque(maxlen=REMEMBERED)
        self._pace_s, self._held, self._held_s = pace_s, Action(0.0, 0.0, 0.0), -math.inf
        self._policy, self._listeners, self._watched, self._say = policy, tuple(listeners), watched, say
        self._neurons_every, self._saliency, self._saliency_every = neurons_every, saliency, saliency_every
        self._neurons_due = self._saliency_due = 0
        self._helm = Helm(control, speed, self._forget, self.on_event)
        # The policy's memory: written by decisions, read for the page.
        self._memory = Lock()
        self._events: list[str] = []
        # When the policy was asked, and how many milliseconds it took: in between its decision is held.
        self._asked: deque[tuple[float, float]] = deque(maxlen=BACKLOG)
        self._queue: Queue[tuple[Decision, tuple[str, ...]] | None] = Queue(BACKLOG)
        self._teller = Thread(target=self._tell, name="nacdrive-listeners", daemon=True)

    def __enter__(self) -> SimulatorDriver:
        """Warm up, so that the first picture is not kept waiting, and begin to tell.

        Raises:
            UserError: if the policy does not take the simulator's pictures.
        """
        try:
            for t_s in (0.0, 0.02, 0.04):
                self._policy.step(np.zeros((HEIGHT, WIDTH, 3), np.uint8), t_s, 0.0)
        except ValueError as error:
            raise UserError(f"this policy cannot drive the simulator ({error}): give another --model.") from error
        self._policy.reset()
        self._teller.start()
        return self

    def __exit__(self, *_: Any) -> None:
        """Tell what is still to be told."""
        self._queue.put(None)
        self._teller.join()

    def begin(self) -> None:
        """Forget the drive before."""
        self.drives += 1
        self._helm.begin()
        self._forget()

    def _forget(self) -> None:
        self._held_s = -math.inf
        with self._memory:
            self._policy.reset()

    def decide(self, frame: Frame, t_s: float, speed_mps: float) -> Action:
        """Decide on one picture: the policy does, whoever then drives."""
        orders = self._helm.orders()
        if t_s - self._held_s >= self._pace_s - SLACK_S:
            began = time.perf_counter()
            with self._memory:
                self._held = self._policy.step(frame, t_s, speed_mps)
            self._held_s = t_s
            took_ms = (time.perf_counter() - began) * 1e3
            self.decision_ms.append(took_ms)
            self._asked.append((t_s, took_ms))
        return self._helm.action(self._held, orders, t_s, speed_mps)

    def on_event(self, text: str) -> None:
        """Say it, and show it beside the next decision."""
        self.stops += text.startswith("Safety stop")
        self._say(text)
        self._events.append(text)

    def on_decision(self, decision: Decision) -> None:
        """Have the listeners told; returns at once."""
        events = tuple(self._events)
        del self._events[: len(events)]
        self.decisions += 1
        try:
            self._queue.put_nowait((decision, events))
        except Full:
            self.lost += 1

    def _tell(self) -> None:
        before: Decision | None = None
        while (told := self._queue.get()) is not None:
            if self.failure is not None:
                continue
            decision, events = told
            try:
                tick = self._tick(decision, before, events)
                for listener in self._listeners:
                    listener(tick)
            except Exception as error:
                # Driving goes on; the main thread hears of it.
                self.failure = error
            before = decision

    def _tick(self, decision: Decision, before: Decision | None, events: tuple[str, ...]) -> Tick:
        same = before is not None and before.drive == decision.drive
        gap_ms = (decision.t_s - before.t_s) * 1e3 if before is not None and same else None
        took_ms = next((ms for t_s, ms in reversed(tuple(self._asked)) if t_s == decision.t_s), None)
        looks = self._watched() and decision.safety is None and took_ms is not None and self._queue.qsize() <= BEHIND
        neurons, saliency = {}, None
        if decision.step == 0:
            self._neurons_due = self._saliency_due = 0
        if looks and self._neurons_every and decision.step >= self._neurons_due:
            self._neurons_due = decision.step + self._neurons_every
            with self._memory:
                neurons = dict(self._policy.neurons())
        if looks and self._saliency is not None and decision.step >= self._saliency_due:
            self._saliency_due = decision.step + self._saliency_every
            with self._memory:
                saliency = self._saliency(decision.frame)
        by_person = decision.action if isinstance(decision.action, ByPerson) else None
        return Tick(
            episode=decision.drive,
            seed=decision.drive,
            step=decision.step,
            t_s=decision.t_s,
            frame=decision.frame,
            action=decision.action,
            speed_mps=decision.speed_mps,
            decision_ms=decision.decision_ms if took_ms is None else took_ms,
            budget_ms=gap_ms,
            held=took_ms is None and decision.safety is None,
            person=by_person is not None,
            policy=by_person.policy if by_person is not None else None,
            neurons=neurons,
            saliency=saliency,
            events=(("started", *events) if decision.step == 0 else events),
        )

    def summary(self) -> str:
        """One sentence about all drives."""
        if not self.decision_ms:
            return "no simulator came"
        median, p99 = np.percentile(self.decision_ms, [50, 99])
        lost = f", {self.lost} of them neither shown nor kept: this machine is too slow" if self.lost else ""
        return (
            f"{self.decisions} commands in {self.drives} drives, decided in {median:.1f} ms (slowest 1 %: {p99:.1f}), "
            f"{self.stops} safety stops{lost}"
        )


def at_rate(listener: Listener, fps: float) -> Listener:
    """``listener``, told ``fps`` times for every second of a drive, whatever rate the simulator has: for a film."""
    sent, drive = 0, -1

    def told(tick: Tick) -> None:
        nonlocal sent, drive
        if tick.episode != drive:
            sent, drive = int(tick.t_s * fps), tick.episode
        due = int(tick.t_s * fps) + 1
        # A long pause is not filmed.
        for _ in range(min(due - sent, int(fps))):
            listener(tick)
        sent = due

    return told


def in_pieces(listener: Listener, steps: int, gap_s: float = 0.0) -> Listener:
    """``listener``, told of drives as episodes of at most ``steps``: a recorder holds an episode in memory.

    Decisions that come less than ``gap_s`` after the one told before are left out.
    """
    first: Tick | None = None
    last: Tick | None = None
    step = 0

    def told(tick: Tick) -> None:
        nonlocal first, last, step
        if last is None or last.episode != tick.episode:
            first = None
        elif last.person == tick.person and tick.t_s - last.t_s < gap_s - SLACK_S:
            return
        if first is None or step == steps - 1:
            first, step = tick, 0
        else:
            step += 1
        last = tick
        listener(replace(tick, step=step, t_s=tick.t_s - first.t_s, done=step == steps - 1))

    return told
