"""What a person wants of a running drive: pause, start over, take the wheel. Written by a page, read by the loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition
from typing import Any

KEYS = ("left", "right", "up", "down")
KEYBOARD = "keyboard"
"""A person, where a recording names its driver."""
SILENCE_S = 0.5
"""A person of whom nothing was heard for so long has let go of the wheel: the browser froze or the network is gone."""
LOOK_S = 0.2
"""While the drive stands still, Ctrl-C is looked for this often."""


@dataclass(frozen=True)
class ControlState:
    """What holds for one decision."""

    keys: frozenset[str] | None = None
    """Keys that the person at the wheel holds down, of ``KEYS``; None where nobody has taken over."""
    reset: bool = False
    """Start the episode over."""
    paused: bool = False
    """Do not go on; only where ``poll`` was told not to wait."""
    events: tuple[str, ...] = ()
    """What has happened since the last decision, for the event log."""


class Control:
    """The wishes of everybody at a browser, thread-safe; one person at a time has the wheel.

    Args:
        needs_person: whether the drive stands still while nobody is at the wheel, for it has no other driver.
        silence_s: how long nothing may be heard of the person at the wheel.
        clock: seconds that pass steadily.
        started_over: what is told of a reset.
    """

    def __init__(
        self,
        needs_person: bool = False,
        silence_s: float = SILENCE_S,
        clock: Callable[[], float] = time.monotonic,
        started_over: str = "started over",
    ) -> None:
        self.needs_person = needs_person
        self.on_change: Callable[[], None] = lambda: None
        """Called after every change of ``state``, from whichever thread made it."""
        self._silence_s, self._clock, self._started_over = silence_s, clock, started_over
        self._changed = Condition()
        self._paused = self._reset = False
        self._paused_at = 0.0
        self._person: int | None = None
        self._keys: frozenset[str] = frozenset()
        self._heard = 0.0
        self._events: list[str] = []

    @property
    def state(self) -> dict[str, Any]:
        """What a page shows: ``paused``, the number of the browser at the wheel or None, ``needs_person``."""
        with self._changed:
            return {"paused": self._paused, "person": self._person, "needs_person": self.needs_person}

    def pause(self) -> None:
        """Let the drive stand still before its next decision."""
        with self._change():
            if not self._paused:
                self._paused, self._paused_at = True, self._clock()

    def resume(self) -> None:
        """Go on."""
        with self._change():
            self._resume()

    def reset(self) -> None:
        """Start the episode over, and go on if it was paused."""
        with self._change():
            self._resume()
            self._reset = True
            self._events.append(self._started_over)

    def take(self, who: int) -> bool:
        """Give browser ``who`` the wheel; False if another one has it."""
        with self._change():
            if self._person is None:
                self._person, self._keys = who, frozenset()
                self._events.append("taken over")
            self._heard = self._clock() if self._person == who else self._heard
            return self._person == who

    def release(self, who: int, why: str = "") -> None:
        """Take the wheel from browser ``who`` if it has it."""
        with self._change():
            if self._person == who:
                self._let_go(why)

    def hold(self, who: int, keys: Collection[str]) -> None:
        """Browser ``who`` holds down ``keys``; said again and again, for silence means that nobody is there."""
        with self._changed:
            if self._person == who:
                self._keys, self._heard = frozenset(keys) & frozenset(KEYS), self._clock()

    def poll(self, wait: bool = True) -> ControlState:
        """What holds for the next decision; stands still while the drive is paused, unless told not to ``wait``."""
        with self._changed:
            self._listen_for_the_person()
            while wait and self._standing:
                self._changed.wait(LOOK_S)
                self._listen_for_the_person()
            if self._reset:
                # What has happened is told with the first decision after it.
                self._reset = False
                return ControlState(reset=True)
            keys = self._keys if self._person is not None else None
            orders = ControlState(keys, paused=self._standing, events=tuple(self._events))
            self._events.clear()
            return orders

    @property
    def _standing(self) -> bool:
        return (self._paused or (self.needs_person and self._person is None)) and not self._reset

    def _listen_for_the_person(self) -> None:
        if self._person is not None and self._clock() - self._heard > self._silence_s:
            self._let_go(f"nothing heard for {self._silence_s:g} s")
            self.on_change()

    def _resume(self) -> None:
        if self._paused:
            self._events.append(f"paused for {self._clock() - self._paused_at:.1f} s")
        self._paused = False

    def _let_go(self, why: str) -> None:
        self._person, self._keys = None, frozenset()
        self._events.append(f"handed back: {why}" if why else "handed back")

    @contextmanager
    def _change(self) -> Iterator[None]:
        with self._changed:
            yield
            self._changed.notify_all()
            # Inside the lock, so that listeners hear of changes in their order.
            self.on_change()
