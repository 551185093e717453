"""``UdacityEnv``: the Udacity simulator as an environment; it connects by itself and its time passes by itself."""

from __future__ import annotations

import atexit
import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from nacdrive.common.action import FULL_BRAKE, Action
from nacdrive.common.emergency_stop import EmergencyStop
from nacdrive.common.errors import instead_of
from nacdrive.envs.base import DrivingEnv, Frame, Info
from nacdrive.envs.udacity.connections import SimulatorConnection
from nacdrive.envs.udacity.server import SimulatorServer
from nacdrive.envs.udacity.telemetry import HEIGHT, WIDTH, BadTelemetryError, Report, picture

LIMIT_S = 0.3
"""A car at 30 mph goes 4 m in this time."""
STEP_S = 0.02
"""What the simulator takes for a frame, about."""
SLICE_S = 0.2
"""While a picture is awaited, Ctrl-C is looked for this often."""
MOST_EVENTS = 50
CTRL_Z: Any = getattr(signal, "SIGTSTP", None)


class DriveInterruptedError(Exception):
    """``reset`` waited for a simulator when ``interrupt`` or ``close`` was called."""


class UdacityEnv(DrivingEnv):
    """Listens for the simulator and drives it picture by picture; a context manager.

    ``reset`` waits for a simulator and its first sound picture; ``step`` answers the picture handed out before and
    waits for the next one. Whoever steps too late, or not at all, is replaced by an emergency stop (hold the steering,
    straighten, brake) until sound actions come again. An episode is truncated, with ``info["ended"]``, when the
    simulator has gone, a person drives in it (W or S held), or another one has connected; the next ``reset`` waits for
    whom there is to drive then. A ``reset`` amid a drive goes on with the car where it is.

    Actions are an ``Action`` or float [2]: steering -1 left .. 1 right, and throttle, negative for the brake. There
    is no reward. The seed does nothing: the simulator has one track.

    Args:
        host: Address to listen on.
        port: Port to listen on, 4567 for the real simulator; 0 takes a free one, ``port`` then tells which.
        engine: What serves the connections: ``threads`` or ``eventlet``.
        limit_s: Longest time between a picture and its action, in seconds.
        on_event: Told in one line of what happens, from any thread; once a second of each kind but a stop's end.
        in_flight: Pictures of one simulator that may be under way at once; with 2 every one waits for its twin.
    """

    name = "udacity"
    step_s = STEP_S
    realtime = True

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 4567,
        engine: str = "threads",
        limit_s: float = LIMIT_S,
        on_event: Callable[[str], None] = lambda line: None,
        in_flight: int = 1,
    ) -> None:
        self.observation_space = spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.safety_stops = 0
        self._on_event = on_event
        self._events: deque[str] = deque(maxlen=MOST_EVENTS)
        self._changed = Condition()
        self._emergency = EmergencyStop(time.monotonic(), limit_s)
        self._drive: Drive | None = None
        """Of the simulator that is driven now; None while there is none."""
        self._episode: Drive | None = None
        """That of the caller, who may not know yet that it has ended."""
        self._interrupted = self._closed = False
        self._last = Action(0.0, 0.0, 0.0)
        self._frame: Frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        self._server = SimulatorServer(self, host, port, engine, self._tell, in_flight)
        # A program that ends without a word, by an exception or sys.exit, brakes too.
        atexit.register(self.close)
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and CTRL_Z and signal.getsignal(CTRL_Z) == signal.SIG_DFL:
            signal.signal(CTRL_Z, self._pause)

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def safety(self) -> str | None:
        return self._emergency.reason

    @property
    def commands(self) -> int:
        return self._server.steers

    @property
    def dropped(self) -> int:
        """Reports left unanswered because another one was under way: the twin of the first one at least."""
        return self._server.dropped

    @property
    def status(self) -> str:
        """Half a line for people who watch; empty while all is well."""
        connection = self._server.connections.driven()
        if connection is None:
            return f"Waiting for the simulator on port {self.port} (start it, choose Autonomous Mode)"
        if connection.manual:
            return "A person drives (W or S is held in the simulator)"
        return f"Safety stop: {self.safety}" if self.safety else ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Frame, Any]:
        """Wait for a sound picture of a simulator; ``DriveInterruptedError`` after ``interrupt`` or ``close``."""
        gymnasium.Env.reset(self, seed=seed)
        self._start_over()
        while True:
            with self._changed:
                while self._drive is None and not self._over:
                    self._changed.wait(SLICE_S)
                if self._drive is None or self._over:
                    raise DriveInterruptedError("no simulator came before the end")
                drive = self._episode = self._drive
            frame, info = self._next(drive)
            if "ended" not in info:
                return frame, info

    def _start_over(self) -> None:
        """Amid a drive: the picture handed out is answered with the last action, and the time begins anew."""
        with self._changed:
            drive = self._episode
            if drive is None or drive is not self._drive:
                return
            drive.began_s, drive.steps = None, 0
        self._answer(drive, self._last)

    def _step(self, action: Any) -> tuple[Frame, float, bool, bool, Info]:
        drive = self._episode
        if drive is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        now = time.monotonic()
        try:
            decided = as_action(action)
            took_s, limit_s = now - drive.given_s, self._emergency.limit_s
            if took_s > limit_s:
                raise UnsoundActionError(f"the policy took {took_s:.2f} s, and {limit_s:g} s are allowed")
        except UnsoundActionError as error:
            decided = self._fail(drive, str(error))
        else:
            with self._changed:
                recovered = drive is self._drive and self._emergency.sound(decided, now)
            if recovered and drive.stop_logged:
                # Unlimited, or the page would show the stop for the rest of the drive.
                drive.stop_logged = False
                self._tell("Sound decisions again: the policy drives.")
        self._last = decided
        drive.steps += 1
        self._answer(drive, decided)
        frame, info = self._next(drive)
        return frame, 0.0, False, "ended" in info, info

    def native_action(self, action: Action) -> Action:
        """``action`` itself: the simulator takes more decimals than float32 has."""
        return action

    def metrics(self) -> dict[str, float]:
        drive = self._episode
        return {"seconds": drive.t_s, "metres": drive.metres} if drive is not None else {}

    def interrupt(self) -> None:
        """Let ``reset`` and ``step`` return at once, now and from now on, whoever waits in them."""
        with self._changed:
            self._interrupted = True
            self._changed.notify_all()

    def close(self) -> None:
        """Brake the car, disconnect everybody and free the port."""
        with ignored_signals() as handlers:
            if handlers.get(CTRL_Z) == self._pause:
                handlers[CTRL_Z] = signal.SIG_DFL
            with self._changed:
                if self._closed:
                    return
                self._closed = True
                drive = self._drive
                self._changed.notify_all()
            atexit.unregister(self.close)
            if drive is not None:
                self._end(drive, "the environment was closed")
            self._server.stop()

    def _pause(self, *_: Any) -> None:
        # Ctrl-Z. In a thread: whoever was interrupted here may hold a lock that braking needs.
        threading.Thread(target=self._server.pause, daemon=True).start()

    @property
    def _over(self) -> bool:
        return self._interrupted or self._closed

    def _next(self, drive: Drive) -> tuple[Frame, Info]:
        """Wait for the next sound picture; at the end of the drive the last one, with ``info["ended"]``."""
        while True:
            with self._changed:
                while not drive.waiting and drive.ended is None and not self._over:
                    self._changed.wait(SLICE_S)
                if drive.ended is not None or self._over:
                    info = self._info(drive)
                    info["ended"] = drive.ended or "interrupted"
                    return self._frame, info
                report, arrived_s = drive.waiting.popleft()
                drive.given = True
            try:
                frame, data = picture(report.image)
            except BadTelemetryError as error:
                self._answer(drive, self._fail(drive, str(error)))
                continue
            if drive.began_s is None:
                with self._changed:
                    # Whatever was done while nobody drove yet: the first decision is awaited from now on.
                    self._emergency.restart(time.monotonic())
            drive.hand_out(arrived_s, report.speed_mps)
            self._frame = frame
            info = self._info(drive)
            if data.startswith(b"\xff\xd8"):
                info["jpeg"] = data
            return frame, info

    def _info(self, drive: Drive) -> Info:
        events: list[str] = []
        # What happened before the first picture is told with the first step: nobody looks at reset's events.
        while self._events and drive.steps:
            events.append(self._events.popleft())
        return Info(t_s=drive.t_s, speed_mps=drive.speed_mps, events=tuple(events))

    def _answer(self, drive: Drive, action: Action) -> None:
        """Answer the picture that was handed out, if there is one and nobody has done so meanwhile."""
        with self._changed:
            if not drive.given or drive.ended is not None:
                return
            drive.given = False
            drive.connection.end()
        self._server.steer(drive.connection, action)

    def _fail(self, drive: Drive, reason: str) -> Action:
        """Begin the emergency stop of a drive, or go on with it; its present action."""
        now = time.monotonic()
        with self._changed:
            if drive is not self._drive:
                return FULL_BRAKE
            begins = self._emergency.reason is None
            # The car went on with the last action while nothing was decided in time: it is braked now.
            news = self._emergency.fail(reason, now, self._emergency.limit_s if self._emergency.overdue(now) else 0.0)
            action = self._emergency.action(now)
        # While nobody drives yet, nobody has failed.
        if (news or not drive.stop_logged) and drive is self._episode:
            self.safety_stops += begins
            drive.stop_logged |= self._server.log.say("safety", f"Safety stop: {reason}.")
        return action

    def _begin(self, connection: SimulatorConnection, now_s: float) -> Drive:
        if self._drive is not None:
            self._end(self._drive, "another simulator has connected")
        self._emergency.restart(now_s)
        self._last = Action(0.0, 0.0, 0.0)
        self._drive = Drive(connection, now_s)
        return self._drive

    def _end(self, drive: Drive, why: str) -> None:
        """End a drive; what is still to be answered is answered with the brake."""
        with self._changed:
            if drive.ended is not None:
                return
            drive.ended = why
            unanswered = len(drive.waiting) + drive.given
            drive.waiting.clear()
            drive.given = False
            drive.connection.end(unanswered)
            if self._drive is drive:
                self._drive = None
                self._emergency.restart(time.monotonic())
            self._changed.notify_all()
        if unanswered and not drive.connection.manual:
            self._server.steer(drive.connection, FULL_BRAKE)

    # What the server asks (``server.Pilot``), in its own threads.

    def report(self, connection: SimulatorConnection, report: Report, now_s: float, *, fresh: bool) -> Action | None:
        with self._changed:
            drive = self._drive_of(connection) or self._begin(connection, now_s)
            if fresh:
                drive.waiting.append((report, now_s))
                self._changed.notify_all()
                return None
            if drive.waiting:
                # Nobody has asked for pictures for a while: who does now gets the newest.
                drive.waiting[-1] = (report, now_s)
            return self._emergency.action(now_s)

    def bad_report(self, connection: SimulatorConnection, reason: str) -> Action:
        drive = self._drive_of(connection)
        return FULL_BRAKE if drive is None else self._fail(drive, reason)

    def stopping(self, connection: SimulatorConnection) -> bool:
        return self._drive_of(connection) is not None and self.safety is not None

    def watch(self, connection: SimulatorConnection, now_s: float) -> tuple[Action, bool]:
        with self._changed:
            drive = self._drive_of(connection)
            if drive is None:
                return FULL_BRAKE, False
            if self._emergency.reason is not None:
                return self._emergency.action(now_s), False
            if not self._emergency.overdue(now_s):
                return FULL_BRAKE, False
            why = "the policy is still at work" if drive.given else "the simulator sends no picture"
            if drive.waiting and not drive.given:
                why = "nobody asks for pictures"
        return self._fail(drive, f"no decision for {self._emergency.limit_s:g} s, {why}"), True

    def release(self, connection: SimulatorConnection, why: str) -> None:
        if (drive := self._drive_of(connection)) is not None:
            self._end(drive, why)

    def _drive_of(self, connection: SimulatorConnection) -> Drive | None:
        drive = self._drive
        return drive if drive is not None and drive.connection is connection else None

    def _tell(self, line: str) -> None:
        self._events.append(line)
        try:
            self._on_event(line)
        except OSError:
            # A pipe or terminal that nobody reads any more: the drive ends, and whoever drives gets to know why.
            self.interrupt()


class Drive:
    """One simulator from its first sound report until it has gone, a person drives in it, or another one came."""

    def __init__(self, connection: SimulatorConnection, now_s: float) -> None:
        self.connection = connection
        self.ended: str | None = None
        self.waiting: deque[tuple[Report, float]] = deque()
        """Reports that nobody has asked for yet, and when they came; as many as are in flight at most."""
        self.given = False
        """Whether a picture was handed out that is not answered yet."""
        self.given_s = now_s
        """When it was handed out."""
        self.began_s: float | None = None
        """When the first picture of the episode came."""
        self.steps = 0
        """Actions since the episode began."""
        self.stop_logged = False
        """Whether whoever watches knows of the emergency stop that is under way."""
        self.t_s = self.speed_mps = self.metres = 0.0
        """Of the picture handed out last; metres since the episode began."""

    def hand_out(self, arrived_s: float, speed_mps: float) -> None:
        if self.began_s is None:
            self.began_s, self.t_s, self.metres = arrived_s, 0.0, 0.0
        t_s = arrived_s - self.began_s
        self.metres += (t_s - self.t_s) * (speed_mps + self.speed_mps) / 2
        self.t_s, self.speed_mps, self.given_s = t_s, speed_mps, time.monotonic()


@contextmanager
def ignored_signals() -> Iterator[dict[int, Any]]:
    """Ignore all signals meanwhile, as the main thread alone can; yields their handlers, which are set again."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGBREAK"):
            number = getattr(signal, name, None)
            # One that was set by another language's code cannot be set again from here.
            if number is not None and signal.getsignal(number) is not None:
                before[number] = signal.signal(number, signal.SIG_IGN)
    try:
        yield before
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class UnsoundActionError(Exception):
    """An action that must not reach the car; half a sentence about why."""


def as_action(action: Any) -> Action:
    """An ``Action`` from what ``step`` was given; ``UnsoundActionError`` if it is none, or not of finite numbers."""
    if isinstance(action, Action):
        decided = action
    else:
        none = f"the policy gave no action but {type(action).__name__}"
        with instead_of((TypeError, ValueError), none, UnsoundActionError):
            steering, pedal = (float(value) for value in action)
        # Of a number that is not finite, max() would make a sound one.
        decided = Action(steering, pedal if pedal != pedal else max(0.0, pedal), max(0.0, -pedal))
    if not all(math.isfinite(value) for value in (decided.steering, decided.throttle, decided.brake)):
        raise UnsoundActionError("the policy gave a number that is not finite")
    return decided
