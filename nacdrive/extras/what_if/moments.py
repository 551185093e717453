"""The decisions of the last minutes with the frames they were made on: what can be asked of a drive that goes on."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from typing import Any

from nacdrive.common.action import Action
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import Frame
from nacdrive.extras.what_if.what_if import Moment

LONGEST_PAST = 20_000
"""Decisions of one episode after which no ghost can follow any more: it would take minutes to come there again."""

FindMoment = Callable[[dict[str, int]], Moment | None]
"""What a browser calls a moment -> the moment; None where there is none (any more)."""


@dataclass
class Attempt:
    """An episode from its start, or from where it was started over."""

    seed: int
    episode: int
    actions: list[Action] = field(default_factory=list)


@dataclass(frozen=True)
class Decided:
    """One decision: its number in the stream, its frame, and its place in the attempt."""

    seq: int
    t_s: float
    frame: Frame
    attempt: Attempt
    index: int


class MomentMemory:
    """The last decisions of a policy of ``window`` frames, up to ``most_bytes`` of the Ticks' frames; the oldest go."""

    def __init__(self, window: int, most_bytes: int) -> None:
        self.window, self.most_bytes = window, most_bytes
        self._lock = Lock()
        self._kept: deque[Decided] = deque()
        self._bytes = 0
        self._attempt: Attempt | None = None

    def add(self, tick: Tick, seq: int) -> None:
        """Keep a Tick that is number ``seq`` of the stream."""
        with self._lock:
            attempt = self._attempt
            if attempt is None or tick.step == 0 or tick.episode != attempt.episode:
                attempt = self._attempt = Attempt(tick.seed, tick.episode)
            index = len(attempt.actions)
            if index < LONGEST_PAST:
                attempt.actions.append(without_scores(tick.action))
            if tick.held:
                return
            self._kept.append(Decided(seq, tick.taken_s, tick.frame, attempt, index))
            self._bytes += tick.frame.nbytes
            while self._bytes > self.most_bytes:
                self._bytes -= self._kept.popleft().frame.nbytes

    def find(self, name: dict[str, int]) -> Moment | None:
        """The decision of ``{"seq": number}`` with the window before it."""
        with self._lock:
            at = bisect_right(self._kept, name.get("seq", 0), key=lambda one: one.seq) - 1
            if at < 0 or self._kept[at].seq != name.get("seq"):
                return None
            last = self._kept[at]
            before = islice(self._kept, max(0, at - self.window), at)
            window = [one for one in before if one.attempt is last.attempt] + [last]
            past = tuple(last.attempt.actions[: last.index])
        return Moment([one.frame for one in window], [one.t_s for one in window], last.attempt.seed, past)


def moment_of(ticks: Sequence[Tick], driven: Sequence[Action], seq: int, window: int) -> Moment | None:
    """The decision number ``seq`` (from 1) of recorded Ticks with the window before it; ``driven``: what was done."""
    if not 1 <= seq <= len(ticks):
        return None
    seen = [tick for tick in ticks[:seq] if not tick.held][-window - 1 :]
    past = tuple(without_scores(action) for action in driven[: seq - 1])
    return Moment([tick.frame for tick in seen], [tick.taken_s for tick in seen], ticks[0].seed, past)


def without_scores(action: Action) -> Action:
    """What was done, without what else is known of it."""
    return replace(action, logits=None, policy=None)


def parse_moment(given: Any) -> dict[str, int] | None:
    """A browser's name of a moment, ``{"seq": n}`` or ``{"run", "episode", "seq"}``; None where it is none."""
    if not isinstance(given, dict) or not {"seq"} <= given.keys() <= {"run", "episode", "seq"}:
        return None
    return dict(given) if all(type(number) is int and 0 <= number < 2**53 for number in given.values()) else None
