"""The simulators that are connected, which of them is driven, and what each still owes us."""

from __future__ import annotations

from threading import RLock

from nacdrive.envs.udacity.telemetry import MPS_PER_MPH

SENT_AT_OPENING = 2
"""Telemetries that the simulator sends by itself, because its "open" event fires twice."""
RELEASE_MPS = 5 * MPS_PER_MPH
"""Below this speed the simulator neither brakes (it reverses) nor lets go of the brakes by itself."""
RELEASE = -0.01


class Car:
    """One connected simulator.

    Each ``steer`` makes it report once more, so the reports under way keep their number. It begins with two, which
    then carry the same picture; what exceeds ``in_flight`` is dropped unanswered, for answering everything only makes
    every picture wait for its twin's decision.
    """

    def __init__(self, sid: str, number: int, simulator: bool, now_s: float) -> None:
        self.sid, self.number, self.simulator = sid, number, simulator
        self.heard_s = now_s
        """When it last reported, or was last woken."""
        self.tries = 0
        """How often it was woken since it last reported."""
        self.owes = SENT_AT_OPENING if simulator else 0
        """Reports that are still to come."""
        self.busy = 0
        """Reports that are being answered."""
        self.separator = "."
        self.speed_mps = 0.0
        self.manual = False
        self.known = False
        """Whether it has reported as it should."""
        self.foreign = False
        """Whether it turned out to be another simulator, which is left alone."""
        self._braked = False
        self._lock = RLock()

    def take(self, in_flight: int, now_s: float) -> bool:
        """Note that a report came in; False if it is not to be decided on."""
        with self._lock:
            self.heard_s, self.tries = now_s, 0
            self.owes = max(0, self.owes - 1)
            if self.owes + self.busy >= in_flight:
                return False
            self.busy += 1
            return True

    def done(self) -> None:
        """Note that the report taken has been dealt with."""
        with self._lock:
            self.busy -= 1

    def asked(self) -> None:
        """Note that something is sent that makes it report."""
        with self._lock:
            self.owes += 1

    def woken(self, now_s: float) -> None:
        """Note that it is asked although it has not reported: what it owed is taken for lost."""
        with self._lock:
            self.heard_s, self.owes = now_s, 0
            self.tries += 1

    def pedal(self, throttle: float, brake: float) -> float:
        """Throttle and brake, each 0 .. 1, as the simulator's one number: negative is braking.

        Below 5 mph a negative number would reverse, so none is sent to brake there; but the smallest one frees brakes
        that were on when the car came down to that speed, and which the simulator otherwise leaves on for ever.
        """
        slow = self.speed_mps < RELEASE_MPS
        if brake > throttle:
            self._braked = self._braked or not slow
            return 0.0 if slow else -brake
        if slow and self._braked and throttle > 0:
            self._braked = False
            return RELEASE
        self._braked = self._braked and slow
        return throttle


class Cars:
    """All that report. The newest simulator is driven: an older session may be a scene that was left."""

    def __init__(self) -> None:
        self._cars: dict[str, Car] = {}
        self._count = 0
        self._lock = RLock()

    def of(self, sid: str, simulator: bool, now_s: float) -> Car:
        """The car of a session; a new one for a new session."""
        with self._lock:
            if sid not in self._cars:
                self._cars[sid] = Car(sid, self._count, simulator, now_s)
                self._count += 1
            return self._cars[sid]

    def remove(self, sid: str) -> Car | None:
        """Forget a session; the car that it was, if it was one."""
        with self._lock:
            return self._cars.pop(sid, None)

    def driven(self) -> Car | None:
        """The one that is driven: the newest simulator; without any, the newest other client that reports."""
        with self._lock:
            able = [car for car in self._cars.values() if not car.foreign]
            return max(able, key=lambda car: (car.simulator, car.number), default=None)
