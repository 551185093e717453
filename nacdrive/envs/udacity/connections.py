"""The simulators that are connected, which of them is driven, and how many reports of each are under way."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock

from nacdrive.common.action import Action
from nacdrive.common.units import MPS_PER_MPH
from nacdrive.envs.udacity.telemetry import answer

SILENCE_S = 1.0
"""A simulator that has not reported for so long is sent a command: that makes it report."""
PATIENT_SILENCE_S = 5.0
"""The same after a few tries: a simulator that is paused answers all of them at once when it goes on."""
TRIES = 5
ANSWER_S = 0.1
"""While the car is braked a report is answered within this time, whoever should have done so."""
SENT_AT_OPENING = 2
"""Telemetries that the simulator sends by itself, because its "open" event fires twice."""
RELEASE_MPS = 5 * MPS_PER_MPH
"""Below this speed the simulator neither brakes (it reverses) nor lets go of the brakes by itself."""
RELEASE = -0.01


class SimulatorConnection:
    """One connected simulator.

    Each ``steer`` makes it report once more, so the reports under way keep their number. It begins with two, which
    carry the same picture; what exceeds ``in_flight`` is dropped, or every picture would wait for its twin's decision.
    """

    def __init__(self, sid: str, number: int, simulator: bool, now_s: float) -> None:
        self.sid, self.number, self.simulator = sid, number, simulator
        self.reported_s = self.sent_s = now_s
        """When it last reported, and was last sent something."""
        self.tries = 0
        """How often it was pinged since it last reported."""
        self.pending = SENT_AT_OPENING if simulator else 0
        """Reports that are still to come."""
        self.busy = 0
        """Reports that are being answered."""
        self.separator: str | None = None
        """Decimal separator of its numbers; None until it has reported soundly, and only then is it driven."""
        self.speed_mps = 0.0
        self.steering = "0"
        """As it was last commanded, in its own numbers."""
        self.manual = False
        self.foreign = False
        """Whether it turned out to be another simulator, which is left alone."""
        self.guarded = False
        """Whether it was handed to the guardian, as far as it can be."""
        self.rests = True
        """Whether it was last commanded neither gas nor brake: a command holds until the next one."""
        self._braked = False
        self._lock = RLock()

    def begin(self, in_flight: int, now_s: float) -> bool:
        """Note that a report came in; False if it is not to be decided on."""
        with self._lock:
            self.reported_s, self.tries = now_s, 0
            self.pending = max(0, self.pending - 1)
            if self.pending + self.busy >= in_flight:
                return False
            self.busy += 1
            return True

    def end(self, reports: int = 1) -> None:
        with self._lock:
            self.busy -= reports

    def sent(self, now_s: float) -> None:
        """Note that something is sent that makes it report."""
        with self._lock:
            self.sent_s = now_s
            self.pending += 1

    def ping(self, now_s: float) -> None:
        """Note that it is asked although it has not reported: what was pending is taken for lost."""
        with self._lock:
            self.sent_s, self.pending = now_s, 0
            self.tries += 1

    def silent(self, now_s: float) -> bool:
        """Whether it has reported nothing, and was sent nothing, for so long that it is to be pinged."""
        waits_s = SILENCE_S if self.tries < TRIES else PATIENT_SILENCE_S
        return now_s - max(self.reported_s, self.sent_s) > waits_s

    def unanswered(self, now_s: float) -> bool:
        """Whether it has reported, and was sent nothing for so long that nobody seems to answer."""
        return self.reported_s > self.sent_s and now_s - self.reported_s > ANSWER_S

    def command(self, action: Action) -> dict[str, str]:
        if self.separator is None:
            # Whatever its culture is, it reads this; anything else might be no number there.
            return {"steering_angle": "0", "throttle": "0"}
        pedal = self.pedal(action.throttle, action.brake)
        self.rests = pedal == 0
        command = answer(action.steering, pedal, self.separator)
        self.steering = command["steering_angle"]
        return command

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


class Connections:
    """All that report. The newest simulator is driven: an older session may be a scene that was left."""

    def __init__(self) -> None:
        self._connections: dict[str, SimulatorConnection] = {}
        self._count = 0
        self._lock = RLock()

    def of(self, sid: str, simulator: bool, now_s: float) -> SimulatorConnection:
        with self._lock:
            if sid not in self._connections:
                self._connections[sid] = SimulatorConnection(sid, self._count, simulator, now_s)
                self._count += 1
            return self._connections[sid]

    def sound(self) -> list[SimulatorConnection]:
        with self._lock:
            return [each for each in self._connections.values() if each.separator is not None]

    def remove(self, sid: str) -> SimulatorConnection | None:
        """Forget a session; what it was, if it was one of these."""
        with self._lock:
            return self._connections.pop(sid, None)

    def driven(self) -> SimulatorConnection | None:
        """The newest simulator that reported soundly (to connect takes over from nobody), or the newest such client."""
        return self._newest(lambda each: each.separator is not None)

    def expected(self) -> SimulatorConnection | None:
        """The newest simulator if it has not reported soundly yet: its first reports may have been lost."""
        newest = self._newest(lambda each: each.simulator)
        return newest if newest is not None and newest.separator is None else None

    def _newest(self, wanted: Callable[[SimulatorConnection], bool]) -> SimulatorConnection | None:
        with self._lock:
            able = [each for each in self._connections.values() if not each.foreign and wanted(each)]
            return max(able, key=lambda each: (each.simulator, each.number), default=None)
