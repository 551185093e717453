"""Several contestants on one track: a process each, one clock in simulated time, the same camera for all.

How far in simulated time everybody may drive is said here. With an audience this clock goes no faster than the wall's,
and at most ``LEAD_S`` ahead of the slowest contestant: who is slow makes the others wait at the wall clock, and never
takes a simulated second from them.

Permission to drive, the camera and a person's keys travel in one message, so that they hold for all from the same
simulated moment on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import Any, Self

from nacdrive.common.errors import UserError
from nacdrive.common.parallel import Worker, start_worker
from nacdrive.common.runs import plain
from nacdrive.drivers.human import HumanControl
from nacdrive.drivers.tick import Tick
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.extras.arena.contestant import Abandon, Begin, Contestant, Ended, Failed, Go, Ready, drive_contestant
from nacdrive.rollout.results import EpisodeMetrics, Row, row_of

LEAD_S = 0.5
"""Simulated seconds that anybody may be ahead of the slowest, with an audience."""
MOST = 6
"""Contestants: so many colours can be told apart, and each takes a process with a network in it."""
LOOK_S = 0.01
"""Wall-clock seconds between two looks at the clock."""


class Audience:
    """Whoever is told of an arena while it is driven; every call must return at once. The defaults do nothing."""

    def begin(self, episode: int, seed: int, track: str) -> None:
        """An episode begins, or begins anew."""

    def tick(self, index: int, tick: Tick) -> None:
        """Contestant number ``index`` has carried out a decision."""

    def camera(self, noise: CameraNoise, since_s: float) -> None:
        """What holds for everybody's camera from ``since_s`` simulated seconds on."""


@dataclass
class _Lane:
    """One contestant while an episode is driven."""

    contestant: Contestant
    worker: Worker
    step_s: float = 0.08
    t_s: float = 0.0
    """A usual decision's time before its next one: frames of a camera with a rate of its own may be rarer."""
    driving: bool = False

    def begin(self, track: str) -> None:
        self.track, self.t_s, self.driving = track, 0.0, True
        self.metrics = EpisodeMetrics()
        self.row: Row | None = None


class Arena:
    """Drives episodes with several contestants; a context manager that starts and ends their processes.

    Args:
        contestants: At least two, and at most ``MOST``; names must differ. Else a ``UserError``.
        control: What people at browsers want: pause, start over, and where a person contests the keys.
        noise: Of the cameras, at the start; ``set_camera`` changes it.
        clock: Seconds that pass steadily, which a drive in real time keeps pace with.
    """

    def __init__(
        self,
        contestants: Sequence[Contestant],
        control: HumanControl | None = None,
        noise: CameraNoise | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 2 <= len(contestants) <= MOST:
            raise UserError(f"an arena is for 2 to {MOST} contestants, and there are {len(contestants)}.")
        if len({one.name for one in contestants}) < len(contestants):
            raise UserError("two contestants have the same name.")
        self.contestants, self.control, self.clock = list(contestants), control, clock
        self._with_person = any(one.person for one in contestants)
        self.noise = noise or CameraNoise()
        self.changes: list[dict[str, Any]] = []
        """What was wrong with the cameras since when: ``episode``, ``since_s`` and ``camera``, after each change."""
        self.watched: Callable[[], bool] = lambda: False
        """Whether anybody looks on: if not, nobody measures why the contestants decide so."""
        self._lanes: list[_Lane] = []

    def __enter__(self) -> Self:
        try:
            for contestant in self.contestants:
                worker = start_worker(drive_contestant, contestant, name=f"nacdrive-{contestant.name}")
                self._lanes.append(_Lane(contestant, worker))
            for lane in self._lanes:
                message = self._receive(lane)
                assert isinstance(message, Ready)
                lane.step_s = message.step_s
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for lane in self._lanes:
            lane.worker.pipe.close()
        for lane in self._lanes:
            lane.worker.join()
        self._lanes.clear()

    @property
    def steps_s(self) -> list[float]:
        """Simulated seconds between two decisions, of each contestant."""
        return [lane.step_s for lane in self._lanes]

    def set_camera(self, noise: CameraNoise) -> None:
        """Make everybody's camera that of ``noise`` from the next frame that nobody has taken yet; from any thread."""
        self.noise = noise

    def drive(
        self,
        episode: int,
        seed: int,
        track: str = "",
        *,
        audience: Iterable[Audience] = (),
        realtime: bool = False,
        together: bool = True,
    ) -> dict[str, Row]:
        """Drive the episode of ``seed`` with all; what came of it by contestant.

        Args:
            episode: Its number in this run.
            seed: Of the track.
            track: Name of the track, where the environment has several.
            audience: Who is told of it while it is driven.
            realtime: Keep pace with the wall clock, for people who watch or drive.
            together: Keep within ``LEAD_S`` of the slowest, and listen to ``control`` and ``set_camera``; without,
                everybody drives as fast as it can.
        """
        audience = tuple(audience)
        while True:
            if self._drive_once(episode, seed, track, audience, realtime, together):
                return {lane.contestant.name: lane.row for lane in self._lanes if lane.row is not None}

    def _drive_once(
        self, episode: int, seed: int, track: str, audience: tuple[Audience, ...], realtime: bool, together: bool
    ) -> bool:
        """One attempt; False if a person starts the episode over."""
        camera = self.noise
        for one in audience:
            one.begin(episode, seed, track)
            one.camera(camera, 0.0)
        for lane in self._lanes:
            lane.begin(track)
            self._send(lane, Begin(episode, seed, track, camera))
        clock = _Clock(self, realtime, together)
        # An attempt that was started over is none.
        self.changes = [change for change in self.changes if change["episode"] != episode]
        if self.changes or camera.active:
            self._note(episode, 0.0, camera)
        while driving := [lane for lane in self._lanes if lane.driving]:
            order = clock.order(driving)
            if order is None:
                self._abandon()
                return False
            if order.noise != camera:
                camera = order.noise
                self._note(episode, clock.granted_s, camera)
                for one in audience:
                    one.camera(camera, clock.granted_s)
            if order.until_s > clock.granted_s:
                clock.granted_s = order.until_s
                for lane in driving:
                    # What people did is an event of the one they drive, if there is one.
                    concerned = lane.contestant.person or not self._with_person
                    self._send(lane, order if concerned else replace(order, events=()))
            for ready in wait([lane.worker.pipe for lane in driving], LOOK_S if together else 1.0):
                lane = next(lane for lane in driving if lane.worker.pipe is ready)
                self._handle(lane, audience)
        return True

    def _handle(self, lane: _Lane, audience: tuple[Audience, ...]) -> None:
        message = self._receive(lane)
        if isinstance(message, Tick):
            lane.t_s = message.next_info["t_s"] - lane.step_s
            lane.metrics.add(message)
            for one in audience:
                one.tick(self._lanes.index(lane), message)
        elif isinstance(message, Ended):
            lane.driving = False
            lane.row = row_of(lane.metrics.result(), lane.metrics, message.metrics, lane.track)

    def _abandon(self) -> None:
        """Give up the episode, and forget what is still on its way."""
        for lane in self._lanes:
            if lane.driving:
                self._send(lane, Abandon())
        for lane in self._lanes:
            while lane.driving:
                lane.driving = not isinstance(self._receive(lane), Abandon)

    def _note(self, episode: int, since_s: float, camera: CameraNoise) -> None:
        self.changes.append({"episode": episode, "since_s": round(since_s, 3), "camera": plain(camera)})

    def _send(self, lane: _Lane, order: object) -> None:
        # Who has died is found when its pipe is read.
        with suppress(OSError):
            lane.worker.pipe.send(order)

    def _receive(self, lane: _Lane) -> Any:
        """What a contestant sends next; raises what made it fail."""
        try:
            message = lane.worker.pipe.recv()
        except (EOFError, OSError) as error:
            raise UserError(
                f"the process of {lane.contestant.name} has died (exit code {lane.worker.join()}): "
                "is there memory enough for all?"
            ) from error
        if isinstance(message, Failed):
            raise UserError(message.sentence) if message.mistake else RuntimeError(message.sentence)
        return message


class _Clock:
    """How far everybody may drive now."""

    def __init__(self, arena: Arena, realtime: bool, together: bool) -> None:
        self._arena, self._realtime, self._together = arena, realtime, together
        self.granted_s = 0.0
        self._race_s = 0.0
        self._looked = arena.clock()
        self._quantum_s = min(arena.steps_s) / 2
        self._events: tuple[str, ...] = ()

    def order(self, driving: Sequence[_Lane]) -> Go | None:
        now = self._arena.clock()
        passed, self._looked = now - self._looked, now
        if not self._together:
            return Go(math.inf, self._arena.noise)
        control, state = self._arena.control, None
        if control is not None:
            state = control.poll(wait=False)
            if state.reset:
                return None
            self._events += state.events
            if state.paused:
                return Go(self.granted_s, self._arena.noise)
        limit = min(lane.t_s + lane.step_s for lane in driving) + LEAD_S
        # Time once lost is not caught up in a rush.
        self._race_s = min(self._race_s + passed, limit) if self._realtime else limit
        if self._race_s + 1e-9 < self.granted_s + self._quantum_s and self.granted_s:
            return Go(self.granted_s, self._arena.noise)
        keys, axes = (None, None) if state is None else (state.keys, state.axes)
        events, self._events = self._events, ()
        until_s, watched = max(self._race_s, self.granted_s + 1e-6), self._arena.watched()
        return Go(until_s, self._arena.noise, keys or frozenset(), axes, events, watched)
