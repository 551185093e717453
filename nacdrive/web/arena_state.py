"""What is on an arena's page right now: of every contestant its numbers since the start of the track and its newest
frame, and of all together the camera, the ranking and who controls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nacdrive.drivers.tick import Tick
from nacdrive.envs.camera_noise import CameraNoise
from nacdrive.web.stream import finite, sureness
from nacdrive.web.viewers import Viewers

ARENA_COLUMNS = (
    "t_s",
    "station_m",
    "x_m",
    "y_m",
    "heading_rad",
    "speed_mps",
    "steering",
    "throttle",
    "brake",
    "choice",
    "sure",
    "lane_offset_m",
    "wheels_off",
    "off_share",
    "episode_return",
    "progress",
    "decision_ms",
    "missed",
    "person",
    "done",
)
MOST_ROWS = 10_000
"""Of one contestant and track: a quarter of an hour; from then on every second one of the old ones goes."""

Row = tuple[float | int | None, ...]


@dataclass(frozen=True)
class ShownFrame:
    """The newest Tick of a contestant, and its number among those of the track."""

    number: int
    tick: Tick


@dataclass(frozen=True)
class ArenaSnapshot:
    """What one viewer has not seen yet."""

    attempt: int
    """Number of the track, or of the attempt at it: with another one all that was shown before is void."""
    rows: list[list[Row]]
    """Of each contestant, those since the viewer looked last."""
    counts: list[int]
    """Of each contestant, how many rows there have been."""
    frames: list[ShownFrame | None]
    """Of each contestant; None where the viewer has it."""
    version: int
    about: dict[str, Any]
    """All else; changed where ``version`` is."""


class ArenaState(Viewers):
    """Shared by the arena (which writes) and the viewers' threads (which read).

    Args:
        count: Number of contestants.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self._attempt = 0
        self._version = 0
        self._about: dict[str, Any] = {"status": "", "control": {}, "result": None, "camera": asdict(CameraNoise())}
        self._about |= {"since_s": 0.0, "endings": [None] * count}
        self._clear()

    def _clear(self) -> None:
        self._rows: list[list[Row]] = [[] for _ in range(self._count)]
        self._numbers = [0] * self._count
        self._frames: list[ShownFrame | None] = [None] * self._count
        self._off = [0.0] * self._count
        self._missed = [0] * self._count

    def begin(self, episode: int, seed: int, track: str) -> None:
        """A track begins, or begins anew."""
        with self._changed:
            self._clear()
            self._attempt += 1
            place = {"episode": episode, "seed": seed, "track": track}
            self._set(result=None, place=place, endings=[None] * self._count)

    def publish(self, index: int, tick: Tick) -> None:
        """Contestant ``index`` has carried out a decision; returns at once."""
        with self._changed:
            number = self._numbers[index]
            self._off[index] += float(tick.next_info.get("wheels_off", 0.0))
            self._missed[index] += tick.budget_ms is not None and tick.decision_ms > tick.budget_ms
            off_share = self._off[index] / (number + 1)
            self._rows[index].append(arena_row(tick, off_share, self._missed[index]))
            if len(self._rows[index]) > MOST_ROWS:
                del self._rows[index][: MOST_ROWS // 2 : 2]
            self._numbers[index] += 1
            self._frames[index] = ShownFrame(number, tick)
            if tick.done:
                endings = list(self._about["endings"])
                endings[index] = {"text": tick.failure or tick.events[-1], "failed": tick.failure is not None}
                self._set(endings=endings)
            self._changed.notify_all()

    def set(self, **about: Any) -> None:
        """Change what is told of all: ``status``, ``control``, ``camera`` with ``since_s``, ``result``."""
        with self._changed:
            self._set(**about)

    def _set(self, **about: Any) -> None:
        if any(self._about.get(name) != value for name, value in about.items()):
            self._about = {**self._about, **about}
            self._version += 1
            self._changed.notify_all()

    def wait_for_new(self, attempt: int, counts: Sequence[int], version: int, timeout_s: float) -> ArenaSnapshot | None:
        """Wait until there is something newer; None after ``timeout_s`` or at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._newer(attempt, counts, version), timeout_s)
            if not self._newer(attempt, counts, version):
                return None
            had = list(counts) if attempt == self._attempt else [0] * self._count
            fresh = [
                rows[len(rows) - min(number - old, len(rows)) :]
                for rows, number, old in zip(self._rows, self._numbers, had, strict=True)
            ]
            frames = [
                frame if frame is not None and frame.number >= old else None
                for frame, old in zip(self._frames, had, strict=True)
            ]
            return ArenaSnapshot(self._attempt, fresh, list(self._numbers), frames, self._version, self._about)

    def _newer(self, attempt: int, counts: Sequence[int], version: int) -> bool:
        return attempt != self._attempt or version != self._version or list(counts) != self._numbers


def arena_row(tick: Tick, off_share: float, missed: int) -> Row:
    """One line of numbers per decision, in the order of ``ARENA_COLUMNS``; None where there is no number."""
    return (
        finite(tick.t_s),
        finite(tick.info.get("station_m")),
        finite(tick.x_m),
        finite(tick.y_m),
        finite(tick.heading_rad),
        finite(tick.speed_mps),
        finite(tick.action.steering),
        finite(tick.action.throttle),
        finite(tick.action.brake),
        tick.action.choice,
        sureness(tick.action),
        finite(tick.lane_offset_m),
        finite(tick.next_info.get("wheels_off")),
        finite(off_share),
        finite(tick.episode_return),
        finite(tick.progress),
        finite(tick.decision_ms),
        missed,
        int(tick.human),
        int(tick.done),
    )


def result_of(
    seed: int, ranked: Sequence[Mapping[str, Any]], totals: Sequence[Mapping[str, Any]], following: str
) -> dict[str, Any]:
    """What the end card says, as plain JSON."""
    return {"seed": seed, "ranking": list(ranked), "totals": list(totals), "following": following}
