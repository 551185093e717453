"""Groups of options. Each option stands once, near its owner, with its text and its limits beside it.

What derives from ``Options`` is a frozen dataclass that is made with keywords. The config of a verb derives from the
groups that it has, so that its options are plain attributes and the command line is flat. Imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, dataclass_transform, get_args, get_origin, get_type_hints

from annotated_types import Interval

from nacdrive.common.errors import UserError, instead_of
from nacdrive.common.runs import usable_cores

LARGEST = 2**31 - 1
"""No number may be larger: simulators and random generators take no larger seeds, and nothing else needs it."""
Share = Annotated[float, Interval(ge=0, le=1)]
"""A part of a whole, or a probability."""
Count = Annotated[int, Interval(ge=1, le=LARGEST)]
"""How many, where none makes no sense."""
NotNegative = Annotated[float, Interval(ge=0, le=LARGEST)]
Positive = Annotated[float, Interval(gt=0, le=LARGEST)]
Seconds = Annotated[float, Interval(ge=0.01, le=10**7)]
"""How long something is done."""
Port = Annotated[int, Interval(ge=0, le=65535)]
"""A TCP port; 0 takes a free one."""
Seed = Annotated[int, Interval(ge=0, le=LARGEST)]
"""What every random generator takes."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True)
class Options:
    """A group of options, or the config of a verb that derives from some.

    ``class EvalConfig(World, Tracks, defaults={"episodes": 20})`` gives options of its groups other defaults.
    """

    positional: ClassVar[tuple[str, ...]] = ()
    """Options that may also be given without their name; of several, the one whose kind of file it is."""

    def __init_subclass__(cls, defaults: Mapping[str, Any] | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        for name, value in (defaults or {}).items():
            owner = next(base for base in cls.__mro__ if name in inspect.get_annotations(base))
            cls.__annotations__ = {**inspect.get_annotations(cls), name: type_hints(owner)[name]}
            setattr(cls, name, value)
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        check_options(self)

    @classmethod
    def of(cls, config: Any) -> Self:
        """The part of ``config``, which derives from this group, that belongs to it."""
        return cls(**{field.name: getattr(config, field.name) for field in dataclasses.fields(cls)})

    @property
    def given(self) -> dict[str, Any]:
        """Those that are not None, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


def flag(name: str) -> str:
    """An option as it is written on the command line."""
    return "--" + name.strip("_").replace("_", "-")


@cache
def type_hints(owner: Any) -> dict[str, Any]:
    """Types of the fields of a dataclass, with what is said beside them."""
    return get_type_hints(owner, include_extras=True)


def limits(kind: Any) -> Interval | None:
    """The limits that stand beside a type, also where it may be None or there are several values."""
    # What is said beside a type is among its arguments.
    return kind if isinstance(kind, Interval) else next(filter(None, map(limits, get_args(kind))), None)


def choices_of(kind: Any) -> tuple[Any, ...]:
    """The values that a type of a few values has, None too where it may be; () of any other type."""
    parts = [kind] if get_origin(kind) is Literal else get_args(kind)
    if not any(get_origin(part) is Literal for part in parts):
        return ()
    return tuple(one for part in parts for one in (get_args(part) or (None,)))


def check_options(config: Any) -> None:
    """Check every number and text of ``config``, a dataclass, and of the dataclasses in it.

    Numbers must lie within the limits beside their types; without any, whole ones are not negative, and none is beyond
    ``LARGEST``. Texts and paths must be UTF-8, for they go into files that are. What depends on other options is the
    config's own matter.
    """
    owner: Any = type(config)
    kinds = type_hints(owner)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            check_options(value)
        choices = choices_of(kinds[field.name])
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if choices and item not in choices:
                raise UserError(f"{flag(field.name)} is {item}: give {' or '.join(map(str, filter(None, choices)))}.")
            check_value(flag(field.name), item, limits(kinds[field.name]))


def check_value(name: str, value: Any, bounds: Interval | None = None) -> None:
    """Check one value of the option ``name``."""
    if isinstance(value, (str, Path)):
        with instead_of(UnicodeEncodeError, f"{name} {str(value)!r} is not UTF-8: rename the file or folder."):
            str(value).encode()
    if isinstance(value, Path) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(value)):
        raise UserError(f"{name} is an address that begins with {value.parts[0]}//: give a path on this machine.")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{name} is {value}: give a finite number.")
    bounds = bounds or Interval()
    # Limits of annotated_types are of any type that compares; here they are numbers.
    least: Any = bounds.ge if bounds.gt is None else bounds.gt
    most: Any = bounds.le if bounds.lt is None else bounds.lt
    least = (0 if isinstance(value, int) else -LARGEST) if least is None else least
    most = LARGEST if most is None else most
    above = value > least if bounds.gt is not None else value >= least
    below = value < most if bounds.lt is not None else value <= most
    if not (above and below):
        # Python refuses to print an integer of thousands of digits.
        shown = f"{value:g}" if isinstance(value, float) else value if abs(value) < 10**30 else "too large"
        allowed = f"{least} to {most}"
        if bounds.gt is not None:
            allowed = f"a number above {least}, and at most {most}"
        elif bounds.lt is not None:
            allowed = f"a number from {least} to below {most}"
        raise UserError(f"{name} is {shown}: give {allowed}.")


class SeedOption(Options):
    """What is driven."""

    seed: Seed = 0
    """Seeds all that is drawn at random: tracks, splits, weights, batches, disturbances. Where tracks are named by it
    (record, drive, eval, arena) it is that of the first one, and the others have the following seeds."""


class Tracks(SeedOption):
    """What is driven."""

    episodes: Count = 20
    """Tracks to drive or to record."""


class TracksIfGiven(SeedOption):
    """What is driven."""

    episodes: Count | None = None
    """Tracks to drive. If not given, eval drives 20 (of udacity-track: so many skies of each track; with --data none),
    hunt as many as --minutes allow, and drive goes on until Ctrl-C where a person at the terminal watches the page or a
    simulator connects, else 1."""


class Overwrite(Options):
    """Where the result goes."""

    overwrite: bool = False
    """Replace what is there."""


class OutOption(Options):
    """Where the result goes."""

    out: Path | None = None
    """Folder of the result; if not given, one under runs/ or recordings/ named after what is made, or none."""


class Output(Overwrite, OutOption):
    """Where the result goes."""


class Target(Overwrite):
    """Where the result goes."""

    out: Path
    """File or folder to write."""


class Result(Output):
    """Where the result goes."""

    resume: bool = False
    """Go on with what --out holds, and do only what is missing."""


class Processes(Options):
    """Where it is computed."""

    workers: Annotated[int, Interval(ge=0, le=1024)] = 0
    """Processes that work at the same time; 0 means one per core."""

    @property
    def at_once(self) -> int:
        """How many work at the same time, where there are jobs enough."""
        return self.workers or usable_cores()

    def processes(self, most: int) -> int:
        """How many work at the same time on ``most`` jobs."""
        return max(1, min(self.at_once, most))


class Workers(Processes):
    """Where it is computed."""

    ray: str | None = None
    """Address of a Ray cluster that works instead of processes here; local starts one on this machine."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ray is not None:
            from nacdrive.common.parallel import check_ray

            check_ray(self.ray)


class Device(Options):
    """Where it is computed."""

    device: str = "cpu"
    """Where networks run: cpu, cuda or cuda:N."""


class Page(Options):
    """The page."""

    host: str = "127.0.0.1"
    """Address to serve on; at another than this machine's own the page asks viewers for a token."""
    page_port: Port = 8090
    """Port of the page; 0 takes a free one."""


class WatchedPage(Page):
    """The page."""

    watch: bool = False
    """Drive in this process alone and show it on the live page."""

    def __post_init__(self) -> None:
        if self.watch and getattr(self, "ray", None) is not None:
            raise UserError("--watch drives in this process: leave --ray out.")
        super().__post_init__()


class ControlOption(Options):
    """The page."""

    allow_control: bool = False
    """Let the page pause, start over, disturb and take the wheel (a person who drives needs it); else it only shows."""


class DrivenPage(Page):
    """The page."""

    headless: bool = False
    """No page, and as fast as possible."""
    fast: bool = False
    """As fast as possible instead of in real time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = {"--page-port": self.page_port != Page.page_port, "--hold yes": getattr(self, "hold", "") == "yes"}
        if self.headless and (names := [name for name, is_given in given.items() if is_given]):
            raise UserError(f"{' and '.join(names)} of the page, which --headless leaves out: give one of them.")


class LivePage(DrivenPage, ControlOption):
    """The page."""

    wait: bool = True
    """Wait a few seconds for the page's first viewer before the drive begins."""
    hold: Literal["auto", "yes", "no"] = "auto"
    """Keep the page up until Ctrl-C after the last drive; auto: where a person is at the terminal."""


class MinutesOption(Options):
    """How long it takes."""

    minutes: Positive | None = None
    """End after so many minutes. Of a hunt: 15 if neither this nor --episodes is given; failures are driven again after
    that. Of expert train: if --timesteps are not reached before, over all resumptions; what is scheduled goes by
    --timesteps, and the evaluation at the end comes on top."""


class TimeLimit(Options):
    """What is driven."""

    seconds: Seconds | None = None
    """End after so many seconds, of share of the lap (60); without it Ctrl-C ends a simulator's drive."""


class SaliencyOption(Options):
    """The page."""

    saliency_every: int = 8
    """Decisions between two looks at where the policy looks (Grad-CAM), for the page; 0 never."""


class VideoOption(Overwrite):
    """Where the result goes."""

    video: Path | None = None
    """Write an mp4 of the drive here."""
