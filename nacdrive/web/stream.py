"""What is on the page now: of each lane the newest Tick, rows and events; of all lanes status, control, result."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from threading import Condition
from typing import Any

import numpy as np

from nacdrive.common.action import Action
from nacdrive.drivers.tick import Tick

HISTORY_ROWS = 2000
"""Of a drive that goes on: 40 s at 50 Hz are more than the 30 s that the charts show."""
TRACK_ROWS = 10_000
"""Of each lane where several drive one track: a quarter of an hour."""
HISTORY_EVENTS = 300
MEASURES = ("reward", "episode_return", "speed_mps", "lane_offset_m", "x_m", "y_m", "heading_rad", "frame_t_s")
"""Columns that are called as a Tick has them."""

Row = tuple[float | int | None, ...]


@dataclass(frozen=True)
class ShownTick:
    """A Tick whose frame is shown: the newest that came and was decided on."""

    seq: int
    row: Row
    tick: Tick


@dataclass(frozen=True)
class LaneNews:
    """What one viewer has not seen of a lane: every row and event since it last looked, but only the newest Tick."""

    rows: list[Row]
    events: list[dict[str, Any]]
    shown: ShownTick | None


@dataclass(frozen=True)
class Seen:
    """How far a viewer has seen: numbers of the attempt, of the last row and event of each lane, of ``about``."""

    attempt: int = -1
    rows: tuple[int, ...] = ()
    events: tuple[int, ...] = ()
    version: int = -1


@dataclass(frozen=True)
class Snapshot:
    """What one viewer has not seen yet."""

    seen: Seen
    """How far it has seen with this."""
    lanes: list[LaneNews]
    about: dict[str, Any] | None
    """What is known of all lanes together; None where the viewer has it."""


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
    progress: float | None = None
    """Share of the road that was driven, 0 .. 1."""
    expert_agreement: float | None = None
    """Share of the decisions in which the expert chose the same."""
    expert_return: float | None = None
    """Return of the expert on the same track under the same options."""
    following: str = ""
    """What comes next, in words, such as "Track 4000001 begins in 4 s."."""


class Lane:
    """One who drives: its rows and events, and the Tick whose frame is shown.

    Args:
        most_rows: From then on every second one of the older half goes, never the first.
        most_events: From then on the oldest go.
    """

    def __init__(self, most_rows: int | None = None, most_events: int | None = HISTORY_EVENTS) -> None:
        self._most_rows, self._most_events = most_rows, most_events
        self.clear()

    def clear(self) -> None:
        self.seq = self.event_count = self._missed = 0
        self.rows: list[Row] = []
        self.events: deque[dict[str, Any]] = deque(maxlen=self._most_events)
        self.shown: ShownTick | None = None
        self._last: Tick | None = None
        self._clock_offset = self._clock_now = self._off = 0.0
        self._episode_began = 0

    def is_new_episode(self, tick: Tick) -> bool:
        return self._last is None or tick.episode != self._last.episode or tick.t_s < self._last.t_s

    def add(self, tick: Tick) -> None:
        clock_s = self._clock_s(tick)
        if self.is_new_episode(tick):
            self._off, self._episode_began = 0.0, self.seq
        self.seq += 1
        # The first decision of all waits for what is loaded with it.
        self._missed += self._last is not None and tick.is_late
        self._off += float(tick.next_info.get("wheels_off", 0.0))
        self._last = tick
        off_share = self._off / (self.seq - self._episode_began)
        numbers = tuple(columns(tick, self.seq, clock_s, self._missed, off_share).values())
        self.rows.append(numbers)
        if self._most_rows is not None and len(self.rows) > self._most_rows:
            del self.rows[1 : self._most_rows // 2 : 2]
        if self.shown is None or not (tick.held or tick.between_frames):
            self.shown = ShownTick(self.seq, numbers, tick)
        self._clock_now = clock_s
        for text in tick.events:
            self.note(text)

    def note(self, text: str) -> None:
        """Add an event at the newest Tick; nothing where there is none yet."""
        if (tick := self._last) is None:
            return
        self.event_count += 1
        place = {"clock_s": finite(self._clock_now), "t_s": finite(tick.t_s), "episode": tick.episode}
        self.events.append({"n": self.event_count, **place, "step": tick.step, "text": text})

    def since(self, seq: int, event: int) -> LaneNews:
        """What is newer than row number ``seq`` and event number ``event``."""
        # By its own number: long drives keep every second row of long ago.
        first = bisect_right(self.rows, seq, key=itemgetter(0))
        shown = self.shown if self.shown is not None and self.shown.seq > seq else None
        return LaneNews(self.rows[first:], [entry for entry in self.events if entry["n"] > event], shown)

    def kept(self) -> dict[str, Any]:
        """All rows and events, as plain JSON."""
        return {"rows": list(self.rows), "events": list(self.events)}

    def _clock_s(self, tick: Tick) -> float:
        """Seconds on an axis that runs on over the episodes, for every episode's own clock begins at 0."""
        last = self._last
        if last is not None and self.is_new_episode(tick):
            self._clock_offset += last.t_s + (last.budget_ms / 1000 if last.budget_ms else 0.1) - tick.t_s
        return self._clock_offset + tick.t_s


class StreamState:
    """Shared by the loop (which writes) and the viewers' threads (which read); a lock is held for microseconds only.

    Args:
        lanes: How many drive side by side.
    """

    def __init__(self, lanes: int = 1) -> None:
        self._changed = Condition()
        self.closed = False
        """True once the run is over: viewers say goodbye."""
        self.viewers = 0
        self._lanes = [Lane(HISTORY_ROWS if lanes == 1 else TRACK_ROWS) for _ in range(lanes)]
        self._attempt = self._version = 0
        self._about: dict[str, Any] = {"status": "", "control": {}, "result": None, "endings": [None] * lanes}

    @contextmanager
    def viewer(self) -> Iterator[None]:
        """Counts one viewer for as long as it stays."""
        with self._changed:
            self.viewers += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self.viewers -= 1
                self._changed.notify_all()

    def wait_for_viewers(self, wanted: bool, timeout_s: float | None) -> bool:
        """Wait until somebody watches, or until nobody does if not ``wanted``; False if it took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: (self.viewers > 0) == wanted, timeout_s)

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def begin(self, **about: Any) -> None:
        """All begin a track, or begin it anew: what was shown before is void."""
        with self._changed:
            for lane in self._lanes:
                lane.clear()
            self._attempt += 1
            self.set(result=None, endings=[None] * len(self._lanes), **about)

    def publish(self, tick: Tick, lane: int = 0) -> int:
        """Make ``tick`` the newest of its lane, and return its number; at once, whatever the viewers do."""
        with self._changed:
            endings: list[dict[str, Any] | None] = list(self._about["endings"])
            if self._lanes[lane].is_new_episode(tick):
                endings[lane] = None
                self.set(result=None, endings=endings)
            self._lanes[lane].add(tick)
            if tick.done:
                text = tick.failure or (tick.events[-1] if tick.events else "ended")
                endings[lane] = {"text": text, "failed": tick.failure is not None}
                self.set(endings=endings)
            self._changed.notify_all()
            return self._lanes[lane].seq

    def note(self, text: str) -> None:
        with self._changed:
            for lane in self._lanes:
                lane.note(text)
            self._changed.notify_all()

    def set(self, **about: Any) -> None:
        """Change what is known of all lanes together: ``status``, ``control``, ``result``, and what cards add."""
        with self._changed:
            if any(self._about.get(name) != value for name, value in about.items()):
                self._about = {**self._about, **about}
                self._version += 1
                self._changed.notify_all()

    def wait_for_new(self, seen: Seen, timeout_s: float) -> Snapshot | None:
        """Wait until there is something newer than ``seen``; None after ``timeout_s`` or at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed or seen != self._now(), timeout_s)
            now = self._now()
            if seen == now:
                return None
            rows, events = seen.rows, seen.events
            if seen.attempt != self._attempt:
                rows = events = (0,) * len(self._lanes)
            news = [lane.since(row, event) for lane, row, event in zip(self._lanes, rows, events, strict=True)]
            return Snapshot(now, news, self._about if seen.version != now.version else None)

    def first_seen(self) -> Seen:
        """What a new viewer is not sent: of one lane all before the Tick that is shown (see ``past``), else nothing."""
        with self._changed:
            lane, *others = self._lanes
            if others or lane.shown is None or lane.shown.seq == 1:
                return Seen()
            return Seen(self._attempt, (lane.shown.seq - 1,), (lane.event_count,))

    def past(self) -> dict[str, Any]:
        """All rows and events of the first lane that are kept."""
        with self._changed:
            return self._lanes[0].kept()

    def _now(self) -> Seen:
        rows, events = tuple(lane.seq for lane in self._lanes), tuple(lane.event_count for lane in self._lanes)
        return Seen(self._attempt, rows, events, self._version)


def columns(tick: Tick, seq: int, clock_s: float, missed: int, off_share: float) -> dict[str, float | int | None]:
    """The numbers of a Tick by their columns, in the order of a row; None where there is no number."""
    # A result counts the last action too, and standings agree with it.
    progress = tick.next_info.get("progress", tick.progress) if tick.done else tick.progress
    return {
        "seq": seq,
        "clock_s": finite(clock_s),
        "t_s": finite(tick.t_s),
        "episode": tick.episode,
        "seed": tick.seed,
        "step": tick.step,
        **decision("", tick.action),
        **decision("expert_", tick.expert),
        "person": int(tick.human),
        **decision("policy_", tick.policy),
        "sure": sureness(tick.policy or tick.action),
        **{name: finite(getattr(tick, name)) for name in MEASURES},
        "progress": finite(progress),
        "decision_ms": None if tick.held else finite(tick.decision_ms),
        "budget_ms": finite(tick.budget_ms),
        "missed": missed,
        "held": int(tick.held),
        "station_m": finite(tick.info.get("station_m")),
        "wheels_off": finite(tick.next_info.get("wheels_off")),
        "off_share": finite(off_share),
        "done": int(tick.done),
    }


def decision(whose: str, action: Action | None) -> dict[str, float | int | None]:
    """Steering, throttle, brake and choice, by their columns."""
    controls = {f"{whose}{name}": finite(getattr(action, name, None)) for name in ("steering", "throttle", "brake")}
    return {**controls, f"{whose}choice": action.choice if action else None}


def sureness(action: Action) -> float | None:
    """Probability of the likeliest choice, the softmax of the scores; None where there are none."""
    scores = [] if action.logits is None else [float(score) for score in action.logits]
    if not scores or not all(map(math.isfinite, scores)):
        return None
    top = max(scores)
    return 1.0 / sum(math.exp(score - top) for score in scores)


def finite(value: float | None) -> float | None:
    """``value`` as a plain float; None where it is missing or not a number, for JSON has no NaN."""
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else None


COLUMNS = tuple(columns(Tick(0, 0, 0, 0.0, np.zeros((1, 1, 3), np.uint8), Action(0.0, 0.0, 0.0)), 0, 0.0, 0, 0.0))
"""Names of the numbers of a row."""
