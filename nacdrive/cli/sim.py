"""``nacdrive sim udacity``: the built-in track as a stand-in for the Udacity simulator."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from nacdrive.common.errors import UserError


@dataclass(frozen=True)
class UdacityConfig:
    """Be the Udacity simulator in autonomous mode: connect to whoever drives, on the built-in track."""

    host: str = "127.0.0.1"
    """Where the driving program listens: nacdrive drive --sim udacity, or anybody's drive.py."""
    port: int = 4567
    """Its port."""
    track: Literal["lake", "mountain"] = "lake"
    """An easy loop, or a narrow road with hills and sharp bends."""
    seed: int = 0
    """Decides light, shadows, colours, what stands beside the road, and where the drive begins."""
    plain: bool = False
    """The standard light and colours, whatever the seed."""
    locale: str = "en-US"
    """NumberFormat whose decimal separators the simulator uses, such as de-DE."""
    window: bool = False
    """Show the drive in a window; W or S held there, with A and D, drive by hand, Escape ends."""
    seconds: float | None = None
    """End after so many seconds; without it Ctrl-C ends."""

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536:
            raise UserError(f"--port is {self.port}: give 1 to 65535.")
        if self.seconds is not None and not (math.isfinite(self.seconds) and self.seconds > 0):
            raise UserError(f"--seconds is {self.seconds}: give a number above 0.")
        if self.seed < 0:
            raise UserError(f"--seed is {self.seed}: give 0 or more.")


def run_udacity(config: UdacityConfig) -> int:
    """Drive in real time until the time is up, the window is closed, or Ctrl-C."""
    from nacdrive.envs.udacity_track import make_udacity_track
    from nacdrive.envs.udacity_track.simulator import UdacitySimulator

    check_host(config.host)
    window = None
    if config.window:
        from nacdrive.envs.udacity_track.window import Window

        window = Window()
    env = make_udacity_track(config.track, repeat=1, randomize=not config.plain)
    env.reset(seed=config.seed)
    drive = UdacitySimulator(env, config.host, config.port, config.locale, say=say, window=window)
    say(f"the {config.track} track waits for a driver on {config.host}:{config.port}  (Ctrl-C ends it)")
    try:
        drive.run(config.seconds)
    except KeyboardInterrupt:
        print()
    finally:
        if window is not None:
            window.close()
        env.close()
    say(drive.summary())
    return 0


def check_host(host: str) -> None:
    """A name that nobody knows is a mistake; an address where nobody listens yet is not.

    Raises:
        UserError: if ``host`` has no address.
    """
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host is {host!r}, and no machine is known by that name: check it.") from error


def say(line: str) -> None:
    """One line for the person at the terminal, at once."""
    print(line, flush=True)


VERBS: dict[str, tuple[type, Callable[[Any], int | None]]] = {"udacity": (UdacityConfig, run_udacity)}
