"""The one loop with ``UdacityEnv``, in a thread of its own, as long as the environment goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Thread
from typing import Any, Self

from nacdrive.common.action import Action
from nacdrive.drivers.base import Driver
from nacdrive.drivers.safety_stop import SafetyStop
from nacdrive.drivers.tick import Tick
from nacdrive.envs.base import DrivingEnv, Info
from nacdrive.envs.udacity import DriveInterruptedError, UdacityEnv
from nacdrive.rollout.rollout import rollout

Decide = Callable[[Any, float, float], Action]


class FunctionDriver:
    """Drives by a function of picture, seconds and speed in m/s; counts its drives."""

    name = "function"

    def __init__(self, decide: Decide) -> None:
        self.decide, self.drives = decide, 0

    def reset(self, env: DrivingEnv) -> None:
        self.drives += 1

    def act(self, frame: Any, info: Info) -> Action:
        return self.decide(frame, info["t_s"], info["speed_mps"])


class Loop:
    """Drives until the environment is closed. A context manager, and closes the environment itself."""

    def __init__(self, env: UdacityEnv, driver: Driver, listeners: Iterable[Callable[[Tick], None]] = ()) -> None:
        self.env, self.driver = env, driver
        self.events: list[str] = []
        self.endings: list[str] = []
        self._listeners = tuple(listeners)
        self._thread = Thread(target=self._run, name="loop", daemon=True)

    def start(self) -> Self:
        self._thread.start()
        return self

    __enter__ = start

    def __exit__(self, *_: object) -> None:
        self.env.close()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while True:
                for tick in rollout(self.env, self.driver, 0, episode=len(self.endings)):
                    self.events += tick.events
                    for listener in self._listeners:
                        listener(tick)
                self.endings.append(self.events[-1])
        except DriveInterruptedError:
            pass


def drive(env: UdacityEnv, decide: Decide) -> Loop:
    """A loop with a function and a safety stop."""
    return Loop(env, SafetyStop(FunctionDriver(decide)))
