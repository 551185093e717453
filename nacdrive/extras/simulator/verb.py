"""``nacdrive sim udacity``: the built-in track in place of the Udacity simulator; ``sim roads``: a look at roads."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from nacdrive.common.errors import UserError, instead_of
from nacdrive.common.files import refuse_existing
from nacdrive.common.options import SeedOption, Target, TimeLimit
from nacdrive.envs.registry import UDACITY_TRACK
from nacdrive.envs.udacity_track import make_udacity_track
from nacdrive.envs.udacity_track.options import check_track
from nacdrive.envs.world import RoadOption, TrackOptions


class UdacityConfig(TrackOptions, SeedOption, TimeLimit, defaults={"track": "lake"}):
    """Be the Udacity simulator in autonomous mode: connect to whoever drives, on the built-in track."""

    host: str = "127.0.0.1"
    """Where the driving program listens: nacdrive drive --env udacity, or anybody's drive.py."""
    port: Annotated[int, Interval(ge=1, le=65535)] = 4567
    """Its port."""
    plain: bool = False
    """The standard light and colours, whatever the seed."""
    locale: str = "en-US"
    """Language whose decimal separators the simulator uses, such as de-DE."""
    show: bool = False
    """Show the drive in a window; W or S held there, with A and D, drive by hand, Escape ends."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_track(self.driven, UDACITY_TRACK.tracks)
        self.road.check(self.driven)

    @property
    def driven(self) -> str:
        return self.track or UDACITY_TRACK.tracks[0]


def run_udacity(config: UdacityConfig) -> None:
    """Drive in real time until the time is up, the window is closed, or Ctrl-C."""
    from nacdrive.extras.simulator.simulator import UdacitySimulator

    sentence = f"--host is {config.host!r}, and no machine is known by that name: check it."
    with instead_of((OSError, UnicodeError), sentence):
        # An address where nobody listens yet is no mistake.
        socket.getaddrinfo(config.host, None)
    window = None
    if config.show:
        from nacdrive.envs.udacity_track.window import Window

        window = Window()
    env = make_udacity_track(config.driven, repeat=1, randomize=not config.plain, **config.road.given)
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


MOST_ROADS = 200
FORMATS = (".jpg", ".jpeg", ".png")
MOST_JPEG_ROWS = 190
"""Of a sheet of roads, 344 pixels each: a JPEG has 65,500 at most."""


class RoadsConfig(RoadOption, SeedOption, Target, defaults={"out": Path("roads.jpg")}):
    """Look at random roads: a picture of each from above and from its car."""

    count: Annotated[int, Interval(ge=1, le=MOST_ROADS)] = 20
    """How many."""
    columns: Annotated[int, Interval(ge=1, le=MOST_ROADS)] = 4
    """How many stand beside each other."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.road.car_top_speed is not None:
            raise UserError("--car-top-speed is of drives, and nothing drives on these pictures: leave it out.")
        if self.out.suffix.lower() not in FORMATS:
            raise UserError(f"--out is {self.out}: give a file that ends in {' or '.join(FORMATS)}.")
        if self.out.suffix.lower() != ".png" and self.count > MOST_JPEG_ROWS * self.columns:
            raise UserError(f"a JPEG holds {MOST_JPEG_ROWS} roads one below the other: give more --columns, or a .png.")


def run_roads(config: RoadsConfig) -> None:
    """Draw the roads, photograph them, write the sheet."""
    from nacdrive.extras.simulator.road_gallery import gallery, write_gallery

    refuse_existing(config.out, overwrite=config.overwrite, flag="--out")
    sheet = gallery(range(config.seed, config.seed + config.count), config.columns, **config.road.given)
    write_gallery(config.out, sheet)
    say(f"{config.count} roads: {config.out}")


def say(line: str) -> None:
    """One line for the person at the terminal, at once."""
    print(line, flush=True)


VERBS: dict[str, tuple[type, Callable[[Any], int | None]]] = {
    "udacity": (UdacityConfig, run_udacity),
    "roads": (RoadsConfig, run_roads),
}
