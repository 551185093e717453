"""What is on the page right now: the newest Tick, the last half minute in numbers, the event log, the status line."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from nacdrive.common.action import Action
from nacdrive.drivers.tick import Tick
from nacdrive.web.viewers import Viewers

COLUMNS = (
    "seq",
    "clock_s",
    "t_s",
    "episode",
    "seed",
    "step",
    "steering",
    "throttle",
    "brake",
    "choice",
    "expert_steering",
    "expert_throttle",
    "expert_brake",
    "expert_choice",
    "person",
    "policy_steering",
    "policy_throttle",
    "policy_brake",
    "policy_choice",
    "sure",
    "reward",
    "episode_return",
    "speed_mps",
    "lane_offset_m",
    "x_m",
    "y_m",
    "heading_rad",
    "progress",
    "decision_ms",
    "budget_ms",
    "missed",
    "held",
    "done",
)
HISTORY_ROWS = 2000
"""40 s at 50 Hz: more than the 30 s that the charts show, and the same after an hour as after a minute."""
HISTORY_EVENTS = 300

Row = tuple[float | int | None, ...]


@dataclass(frozen=True)
class ShownTick:
    """A Tick whose frame is shown: the newest that the policy decided on."""

    seq: int
    row: Row
    tick: Tick


@dataclass(frozen=True)
class Snapshot:
    """What one viewer has not seen yet: every row and event since it last looked, but only the newest Tick."""

    seq: int
    shown: ShownTick | None
    rows: list[Row]
    events: list[dict[str, Any]]
    status: str
    control: dict[str, Any]
    result: dict[str, Any] | None
    status_version: int
    """Version of ``status``, ``control`` and ``result``."""


@dataclass(frozen=True)
class DriveResult:
    """What the end card says of an episode; None where it is not known."""

    track: int
    """Seed of the track."""
    ending: str
    """How it ended, such as "lap finished"."""
    time_s: float
    """Simulated seconds driven."""
    episode_return: float | None = None
    """Sum of rewards."""
    progress: float | None = None
    """Share of the road that was driven, 0 .. 1."""
    expert_agreement: float | None = None
    """Share of the decisions in which the expert chose the same."""
    expert_return: float | None = None
    """Return of the expert on the same track under the same options."""
    following: str = ""
    """What comes next, in words, such as "Track 4000001 begins in 4 s."."""


class StreamState(Viewers):
    """Shared by the loop (which writes) and the viewers' threads (which read); a lock is held for microseconds only."""

    def __init__(self) -> None:
        super().__init__()
        self._last: Tick | None = None
        self._shown: ShownTick | None = None
        self._seq = 0
        self._rows: deque[Row] = deque(maxlen=HISTORY_ROWS)
        self._events: deque[dict[str, Any]] = deque(maxlen=HISTORY_EVENTS)
        self._event_count = 0
        self._status = ""
        self._control: dict[str, Any] = {}
        self._result: dict[str, Any] | None = None
        self._status_version = 0
        self._missed = 0
        self._clock_offset = 0.0

    def publish(self, tick: Tick) -> int:
        """Make ``tick`` the newest, and return its number; at once, whatever the viewers do."""
        with self._changed:
            clock = self._clock(tick)
            if self._last is None or tick.episode != self._last.episode or tick.t_s < self._last.t_s:
                self._set_result(None)
            if tick.budget_ms is not None and tick.decision_ms > tick.budget_ms:
                self._missed += 1
            self._seq += 1
            self._last = tick
            numbers = row(tick, self._seq, clock, self._missed)
            self._rows.append(numbers)
            if not tick.held or self._shown is None:
                self._shown = ShownTick(self._seq, numbers, tick)
            for text in tick.events:
                self._event(text, tick, clock)
            self._changed.notify_all()
            return self._seq

    def set_status(self, status: str) -> None:
        """Show ``status`` on every page; an empty one gives way to the state of the stream."""
        with self._changed:
            if status != self._status:
                self._status = status
                self._status_version += 1
                self._changed.notify_all()

    def set_control(self, control: dict[str, Any]) -> None:
        """Show on every page which person drives, if any, and whether the drive stands still."""
        with self._changed:
            if control != self._control:
                self._control = control
                self._status_version += 1
                self._changed.notify_all()

    def set_result(self, result: DriveResult) -> None:
        """Show on every page what came of the episode, until the next one begins."""
        with self._changed:
            self._set_result({name: plain(value) for name, value in asdict(result).items()})

    def wait_for_new(self, seq: int, event: int, version: int, timeout_s: float) -> Snapshot | None:
        """Wait until something is newer than ``seq`` / ``version``; None after ``timeout_s`` or at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._seq > seq or self._status_version > version, timeout_s)
            if self._seq <= seq and self._status_version <= version:
                return None
            fresh = min(self._seq - seq, len(self._rows))
            rows = [self._rows[i] for i in range(-fresh, 0)]
            events = [entry for entry in self._events if entry["n"] > event]
            shown = self._shown if self._shown is not None and self._shown.seq > seq else None
            return Snapshot(
                self._seq, shown, rows, events, self._status, self._control, self._result, self._status_version
            )

    def _set_result(self, result: dict[str, Any] | None) -> None:
        if result != self._result:
            self._result = result
            self._status_version += 1
            self._changed.notify_all()

    def _clock(self, tick: Tick) -> float:
        """Seconds on an axis that runs on over the episodes, for every episode's own clock begins at 0."""
        last = self._last
        if last is not None and (tick.episode != last.episode or tick.t_s < last.t_s):
            gap = last.budget_ms / 1000 if last.budget_ms else 0.1
            self._clock_offset += last.t_s + gap - tick.t_s
        return self._clock_offset + tick.t_s

    def _event(self, text: str, tick: Tick, clock: float) -> None:
        self._event_count += 1
        self._events.append(
            {
                "n": self._event_count,
                "clock_s": finite(clock),
                "t_s": finite(tick.t_s),
                "episode": tick.episode,
                "step": tick.step,
                "text": text,
            }
        )


def row(tick: Tick, seq: int, clock: float, missed: int) -> Row:
    """One line of numbers per Tick, in the order of ``COLUMNS``; None where there is no number."""
    return (
        seq,
        finite(clock),
        finite(tick.t_s),
        tick.episode,
        tick.seed,
        tick.step,
        *decision(tick.action),
        *decision(tick.expert),
        int(tick.human),
        *decision(tick.policy),
        sureness(tick.policy or tick.action),
        finite(tick.reward),
        finite(tick.episode_return),
        finite(tick.speed_mps),
        finite(tick.lane_offset_m),
        finite(tick.x_m),
        finite(tick.y_m),
        finite(tick.heading_rad),
        finite(tick.progress),
        None if tick.held else finite(tick.decision_ms),
        finite(tick.budget_ms),
        missed,
        int(tick.held),
        int(tick.done),
    )


def decision(action: Action | None) -> tuple[float | None, float | None, float | None, int | None]:
    """Steering, throttle, brake and choice."""
    if action is None:
        return (None, None, None, None)
    return finite(action.steering), finite(action.throttle), finite(action.brake), action.choice


def sureness(action: Action) -> float | None:
    """Probability of the likeliest choice, the softmax of the scores; None where there are none."""
    scores = [] if action.logits is None else [float(score) for score in action.logits]
    if not scores or not all(map(math.isfinite, scores)):
        return None
    top = max(scores)
    return 1.0 / sum(math.exp(score - top) for score in scores)


def finite(value: float | None) -> float | None:
    """``value`` as a plain float; None where it is missing or not a number, for JSON has no NaN."""
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def plain(value: Any) -> Any:
    """``value`` for JSON: floats that are not finite become None."""
    return finite(value) if isinstance(value, float) else value
