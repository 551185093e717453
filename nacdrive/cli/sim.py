"""``nacdrive sim udacity``: the built-in track in place of the Udacity simulator; ``sim roads``: a look at roads."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from nacdrive.common.errors import UserError
from nacdrive.common.options import LARGEST
from nacdrive.envs.registry import UDACITY_TRACK
from nacdrive.envs.udacity_track.options import RoadOptions, check_track


@dataclass(frozen=True)
class UdacityConfig:
    """Be the Udacity simulator in autonomous mode: connect to whoever drives, on the built-in track."""

    host: str = "127.0.0.1"
    """Where the driving program listens: nacdrive drive --sim udacity, or anybody's drive.py."""
    port: int = 4567
    """Its port."""
    track: str = "lake"
    """lake (an easy loop), mountain (a narrow road with hills and sharp bends), random:SEED (one of endlessly many
    roads), or random (the road of --seed)."""
    road: Annotated[RoadOptions, tyro.conf.arg(name="")] = field(default_factory=RoadOptions)
    """How random roads are, and what is wrong with a road."""
    seed: int = 0
    """Decides light, shadows, colours, what stands beside the road, and where the drive begins."""
    plain: bool = False
    """The standard light and colours, whatever the seed."""
    locale: str = "en-US"
    """Language whose decimal separators the simulator uses, such as de-DE."""
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
        check_track(self.track, UDACITY_TRACK.tracks)
        self.road.check(self.track)


def run_udacity(config: UdacityConfig) -> int:
    """Drive in real time until the time is up, the window is closed, or Ctrl-C."""
    from nacdrive.envs.udacity_track import make_udacity_track
    from nacdrive.envs.udacity_track.simulator import UdacitySimulator

    check_host(config.host)
    window = None
    if config.window:
        from nacdrive.envs.udacity_track.window import Window

        window = Window()
    env = make_udacity_track(config.track, repeat=1, randomize=not config.plain, **config.road.given)
    env.reset(seed=config.seed)
    drive = UdacitySimulator(env, config.host, config.port, config.locale, say=say, window=window)
    say(f"the {env.track.name} track waits for a driver on {config.host}:{config.port}  (Ctrl-C ends it)")
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


MOST_ROADS = 200
FORMATS = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class RoadsConfig:
    """Look at random roads: a picture of each from above and from its car."""

    out: Path = Path("roads.jpg")
    """The picture (.jpg or .png)."""
    roads: int = 20
    """How many."""
    seed: int = 0
    """Seed of the first; the others have the following ones."""
    columns: int = 4
    """How many stand beside each other."""
    road: Annotated[RoadOptions, tyro.conf.arg(name="")] = field(default_factory=RoadOptions)
    """How random roads are, and what is wrong with a road."""
    overwrite: bool = False
    """Replace the picture if it is there."""

    def __post_init__(self) -> None:
        if not (1 <= self.roads <= MOST_ROADS and 1 <= self.columns <= MOST_ROADS):
            raise UserError(f"--roads is {self.roads} and --columns {self.columns}: give 1 to {MOST_ROADS}.")
        if not 0 <= self.seed <= LARGEST:
            raise UserError(f"--seed is {self.seed}: give 0 to {LARGEST}.")
        if self.out.suffix.lower() not in FORMATS:
            raise UserError(f"--out is {self.out}: give a file that ends in {' or '.join(FORMATS)}.")


def run_roads(config: RoadsConfig) -> int:
    """Draw the roads, photograph them, write the sheet."""
    from nacdrive.common.files import refuse_existing
    from nacdrive.viz.road_gallery import gallery, write_gallery

    refuse_existing(config.out, overwrite=config.overwrite, flag="--out")
    sheet = gallery(range(config.seed, config.seed + config.roads), config.columns, **config.road.given)
    write_gallery(config.out, sheet)
    say(f"{config.roads} roads: {config.out}")
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


VERBS: dict[str, tuple[type, Callable[[Any], int | None]]] = {
    "udacity": (UdacityConfig, run_udacity),
    "roads": (RoadsConfig, run_roads),
}
