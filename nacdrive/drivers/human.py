"""A person at a browser: pause, start over, take over with the arrow keys. Written by a page, read by the loop.

``HumanOverride`` stands around ``SafetyStop``: in a simulator that waits, a person may drive on after the policy has
failed. Where time passes by itself the safety stop keeps the last word, over people too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Condition
from typing import Any

from nacdrive.common.action import FULL_BRAKE, KEYBOARD, Action
from nacdrive.drivers.base import Driver, DriverState, DriverWrapper
from nacdrive.drivers.discrete import nearest_action
from nacdrive.envs.base import DrivingEnv, Frame, Info, Keys

KEYS = ("left", "right", "up", "down")
PEDAL_KEYS = {"up", "down"}
SILENCE_S = 0.5
"""A person of whom nothing was heard for so long has let go of the wheel: the browser froze or the network is gone."""
LOOK_S = 0.2
"""While the drive stands still, Ctrl-C is looked for this often."""
LONGEST_STEP_S = 0.2


@dataclass(frozen=True)
class ControlState:
    """What holds for one decision."""

    keys: frozenset[str] | None = None
    """Keys that the person at the wheel holds down, of ``KEYS``; None where nobody has taken over."""
    axes: tuple[float, float] | None = None
    """Steering (-1 left .. 1 right) and pedal (-1 brake .. 1 throttle) of the person's gamepad; None without one."""
    reset: bool = False
    """Start the episode over."""
    paused: bool = False
    """Do not go on; only where ``poll`` was told not to wait."""
    events: tuple[str, ...] = ()
    """What has happened since the last decision, for the event log."""


class HumanControl:
    """The wishes of everybody at a browser, thread-safe; one person at a time has the wheel, until nothing is heard for
    ``silence_s``. With ``needs_person`` the drive stands still while nobody has it.
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
        self._axes: tuple[float, float] | None = None
        self._heard = 0.0
        self._events: deque[str] = deque(maxlen=50)  # nobody takes them while nothing is driven

    @property
    def state(self) -> dict[str, Any]:
        """What a page shows: ``paused``, the number of the browser at the wheel or None, ``needs_person``."""
        with self._changed:
            return {"paused": self._paused, "person": self._person, "needs_person": self.needs_person}

    def pause(self) -> None:
        with self._change():
            if not self._paused:
                self._paused, self._paused_at = True, self._clock()

    def resume(self) -> None:
        with self._change():
            self._resume()

    def reset(self) -> None:
        """Start the episode over, and go on if it was paused."""
        with self._change():
            self._resume()
            self._reset = True
            self._events.append(self._started_over)

    def take_reset(self) -> bool:
        """Whether the episode is to be started over, which is the caller's matter from then on."""
        with self._changed:
            asked, self._reset = self._reset, False
            return asked

    def acquire(self, who: int) -> bool:
        """Give browser ``who`` the wheel; False if another one has it."""
        with self._change():
            if self._person is None:
                self._person, self._keys, self._axes = who, frozenset(), None
                self._events.append("taken over")
            self._heard = self._clock() if self._person == who else self._heard
            return self._person == who

    def release(self, who: int, why: str = "") -> None:
        with self._change():
            if self._person == who:
                self._let_go(why)

    def set_keys(self, who: int, keys: Collection[str], axes: tuple[float, float] | None = None) -> None:
        """Browser ``who`` holds down ``keys``, said again and again; ``axes`` of a gamepad count without any."""
        with self._changed:
            if self._person == who:
                self._keys, self._heard = frozenset(keys) & frozenset(KEYS), self._clock()
                self._axes = axes if not self._keys else None

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
            keys, axes = (self._keys, self._axes) if self._person is not None else (None, None)
            orders = ControlState(keys, axes, paused=self._standing, events=tuple(self._events))
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
        self._person, self._keys, self._axes = None, frozenset(), None
        self._events.append(f"handed back: {why}" if why else "handed back")

    @contextmanager
    def _change(self) -> Iterator[None]:
        with self._changed:
            yield
            self._changed.notify_all()
            # Inside the lock, so that listeners hear of changes in their order.
            self.on_change()


class Keyboard:
    """Steering and pedal of one episode; a key moves them, letting go moves them back."""

    def __init__(self) -> None:
        self._steering = self._pedal = 0.0
        self._t_s: float | None = None

    def action(
        self, keys: Collection[str], t_s: float, env: DrivingEnv, axes: tuple[float, float] | None = None
    ) -> Action:
        """What ``keys`` mean at ``t_s`` seconds; of discrete actions the nearest, and steering before pedals.

        ``axes`` of a gamepad say themselves how far wheel and pedal are moved, where no key is held.
        """
        side = ("right" in keys) - ("left" in keys)
        push = ("up" in keys) - ("down" in keys)
        unwrapped: Any = env.unwrapped
        full: Keys = Keys() if env.actions else unwrapped.keys
        if axes is not None and not keys:
            self._steering, self._pedal = axes
        elif env.actions:
            self._steering, self._pedal = side, push
        else:
            step = full.rate * min(LONGEST_STEP_S, t_s - self._t_s if self._t_s is not None else 0.0)
            self._steering, self._pedal = _towards(self._steering, side, step), _towards(self._pedal, push, step)
        self._t_s = t_s
        wanted = Action(self._steering, max(0.0, self._pedal), max(0.0, -self._pedal))
        if env.actions:
            return nearest_action(env, wanted)
        return Action(full.steering * wanted.steering, full.throttle * wanted.throttle, full.brake * wanted.brake)


def _towards(value: float, target: int, step: float) -> float:
    """``value`` moved towards ``target`` by ``step``; from the far side it starts at the middle."""
    if value * target < 0:
        value = 0.0
    return min(value + step, target) if target > value else max(value - step, target)


class RestartEpisode(Exception):  # noqa: N818 - a signal to the loop, no error
    """A person wants the episode to begin again."""


class HumanOverride(DriverWrapper):
    """Lets a person who has taken over drive in the driver's stead, pause, and start over.

    The driver (None where there is none) is asked in either case: it must not lose the thread, and people want to see
    what it would do. Where time passes by itself a pause brakes, and starting over makes the driver alone forget.
    """

    def __init__(self, driver: Driver | None, control: HumanControl) -> None:
        super().__init__(driver if driver is not None else Nobody())
        self.control, self._alone = control, isinstance(self.driver, Nobody)
        self._keyboard: Keyboard | None = None
        self._wanted = ControlState()

    def reset(self, env: DrivingEnv) -> None:
        super().reset(env)
        self._env, self._keyboard = env, None

    def before_decision(self) -> None:
        """Ask what holds for the next decision; ``RestartEpisode`` if a person starts over and the simulator can."""
        self._wanted = self.control.poll(wait=not self._env.realtime)
        while self._wanted.reset:
            if not self._env.realtime:
                raise RestartEpisode
            self.driver.reset(self._env)
            self._wanted = self.control.poll(wait=False)

    def act(self, frame: Frame, info: Info) -> Action:
        own = None if self._alone else self.driver.act(frame, info)
        keys, t_s = self._wanted.keys, float(info["t_s"])
        failed = self.driver.state().failure is not None
        if keys is None or self._wanted.paused:
            self._keyboard = None
        if self._wanted.paused:
            return nearest_action(self._env, FULL_BRAKE)
        # Where time passes by itself the safety stop has the last word, over people too.
        if own is not None and (keys is None or (failed and self._env.realtime)):
            return own
        self._keyboard = self._keyboard or Keyboard()
        axes = self._wanted.axes
        action = self._keyboard.action(keys or (), t_s, self._env, axes)
        pedals = bool(PEDAL_KEYS & set(keys or ())) or (axes is not None and axes[1] != 0)
        if own is not None and not self._env.actions and not pedals:
            # The pedals stay the speed controller's while the person moves none.
            action = replace(action, throttle=own.throttle, brake=own.brake)
        # After the driver has failed there is nothing that it would do.
        return replace(action, human=True, policy=None if failed else own)

    def state(self) -> DriverState:
        """The driver's, and what people did; a safety stop ends no episode that a person drives."""
        state = self.driver.state()
        finished = state.finished and self._wanted.keys is None
        return replace(state, finished=finished, events=(*self._wanted.events, *state.events))


class Nobody(Driver):
    """In the place of a driver where a person is the only one."""

    name = KEYBOARD
