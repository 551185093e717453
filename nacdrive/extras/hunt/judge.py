"""What counts as a failure, and what the episodes that failed have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nacdrive.common.statistics import difference_of_shares
from nacdrive.drivers.tick import Tick
from nacdrive.extras.hunt.search import Knob
from nacdrive.rollout.results import Row

NOT_FINISHED = "lap not finished"
LAP = 0.95
"""Share of the lap from which it counts as driven, where no laps are counted: CarRacing asks for every single tile."""
DISTANCES = ("start_offset", "start_heading")
"""Knobs of which the sign does not count."""
LEAST = 5
"""Episodes on each side of a comparison."""


class Lookout:
    """Listener that notes when a drive first leaves the road or hits something, and when it last got on."""

    def __init__(self) -> None:
        self.left_s: float | None = None
        self.stopped_s: float | None = None
        self.last_gain_s = self._furthest = 0.0

    def __call__(self, tick: Tick) -> None:
        progress = float(tick.next_info.get("progress", 0.0))
        if progress > self._furthest:
            self._furthest, self.last_gain_s = progress, tick.t_s
        if self.left_s is None and any(e == "off road" or e.startswith(("hit", "interv")) for e in tick.events):
            self.left_s = tick.t_s
        if self.stopped_s is None and tick.failure is not None:
            self.stopped_s = tick.t_s

    def when_s(self, fault: str) -> float:
        """Seconds from the start to a fault."""
        known = {"safety stop": self.stopped_s, NOT_FINISHED: None}.get(fault, self.left_s)
        return round(self.last_gain_s if known is None else known, 2)


def faults(row: Row, laps: float) -> list[str]:
    """What went wrong in a drive of so many ``laps``, the gravest first; [] if nothing did.

    Leaving the road counts where the environment counts it itself: with any wheel beyond the edge.
    """
    finished = row["laps"] >= laps if "laps" in row else row["finished_lap"] or row["progress"] >= LAP
    happened = {
        "safety stop": row["failure"] is not None,
        "touched a car": row.get("collisions"),
        "left the road": row.get("interventions") or row.get("off_road_events"),
        NOT_FINISHED: not finished and laps > 0,
    }
    return [name for name, is_so in happened.items() if is_so]


def needs_reference(row: Row, laps: float, least_share: float, best_return: float | None) -> bool:
    """Whether the reference must drive too, for the drive to be judged."""
    good = best_return is not None and row["episode_return"] >= least_share * best_return
    return bool(faults(row, laps)) or not ("off_road_events" in row or good)


def failure(row: Row, reference: Row, laps: float, least_share: float) -> str | None:
    """What the policy failed at and the reference passed; None if the policy passed too, or both failed."""
    # An environment that says nothing of laps has none to finish.
    laps = laps if reference["progress"] > 0 or reference.get("laps") else 0.0
    if faults(reference, laps):
        return None
    own = faults(row, laps)
    best = reference["episode_return"]
    if not own and best > 0 and row["episode_return"] < least_share * best:
        return f"return below {least_share:.0%} of the reference's"
    return own[0] if own else None


@dataclass(frozen=True)
class Pattern:
    """Episodes of a kind fail more often than the others of those that were drawn regardless of failures."""

    words: str
    failed: int
    count: int
    others_failed: int
    others: int
    interval: tuple[float, float]
    """Of the difference of the two shares; 95 % for all comparisons together (Bonferroni)."""

    def __str__(self) -> str:
        low, high = self.interval
        more = 100 * (self.failed / self.count - self.others_failed / self.others)
        return (
            f"{self.words}: {self.failed} of {self.count} fail, of the others {self.others_failed} of {self.others} "
            f"({more:+.0f} points, {100 * low:+.0f} to {100 * high:+.0f})"
        )


def patterns(rows: Iterable[Row], knobs: Sequence[Knob]) -> list[Pattern]:
    """What is shown to go with failures, the clearest first.

    Each knob is compared among the episodes of its area, each fact of a road among all. Where a number divides best is
    found on one half of the episodes, and whether it does is asked of the other half alone.
    """
    drawn = [row for row in rows if row["near"] is None and not row["unfair"]]
    asked: list[tuple[str, list[tuple[bool, bool]]]] = []
    for knob in knobs:
        mine = [row for row in drawn if row["area"] == knob.area]
        asked += divide(knob.words, values_of(knob, mine), [row["failed"] for row in mine])
    for name in sorted({name for row in drawn for name in row["road"]}):
        mine = [row for row in drawn if name in row["road"]]
        values, failed = [row["road"][name] for row in mine], [row["failed"] for row in mine]
        if isinstance(values[0], str):
            for one in sorted(set(values)):
                asked.append((f"{name} {one}", [(value == one, f) for value, f in zip(values, failed, strict=True)]))
        else:
            asked += divide(name, values, failed)
    for area in sorted({row["area"] for row in drawn}):
        asked.append((f"search of {area}", [(row["area"] == area, row["failed"]) for row in drawn]))
    shown = [pattern for words, pairs in asked if (pattern := compare(words, pairs, len(asked))) is not None]
    return sorted(shown, key=lambda pattern: -pattern.interval[0])


def values_of(knob: Knob, rows: Iterable[Row]) -> list[float]:
    """The knob's value in each of the episodes; of a distance to either side, how far."""
    values = [float(row["knobs"].get(knob.option, knob.usual)) for row in rows]
    return [abs(value) for value in values] if knob.option in DISTANCES else values


def knob_map(rows: Iterable[Row], knobs: Sequence[Knob]) -> list[tuple[str, ...]]:
    """Of each knob what fails without it in its area, where its values fall into thirds, and what fails of each third.

    What was tried near failures counts too, so this describes where they lie; ``patterns`` says what is shown.
    """
    table = []
    for knob in knobs:
        mine = [row for row in rows if row["area"] == knob.area and not row["unfair"]]
        turned, rest = ([row for row in mine if (knob.option in row["knobs"]) == side] for side in (True, False))
        if len(turned) >= 3 * LEAST and any(row["failed"] for row in mine):
            limits = np.quantile(values := values_of(knob, turned), (1 / 3, 2 / 3))
            third = np.searchsorted(limits, values)
            parts = [rest, *([row for row, k in zip(turned, third, strict=True) if k == part] for part in range(3))]
            usual, *cells = (f"{sum(row['failed'] for row in part)} of {len(part)}" for part in parts)
            table.append((knob.words, usual, " and ".join(f"{limit:.3g}" for limit in limits), *cells))
    return table


def divide(words: str, values: Sequence[float], failed: Sequence[bool]) -> list[tuple[str, list[tuple[bool, bool]]]]:
    """The second half of the episodes on both sides of the value that divides the first half best."""
    half = len(values) // 2
    first = list(zip(values[:half], failed[:half], strict=True))
    gaps: dict[float, float] = {}
    for limit in np.quantile(values[:half], (0.2, 0.35, 0.5, 0.65, 0.8)) if half >= 2 * LEAST else ():
        above, below = ([f for v, f in first if (v > limit) == side] for side in (True, False))
        if min(len(above), len(below)) >= LEAST:
            gaps[float(limit)] = float(np.mean(above) - np.mean(below))
    limit = max(gaps, key=lambda limit: abs(gaps[limit]), default=0.0)
    if not gaps.get(limit):
        return []
    is_above = gaps[limit] > 0
    side = f"{words} {'above' if is_above else 'at most'} {limit:.3g}"
    return [(side, [((value > limit) == is_above, f) for value, f in zip(values[half:], failed[half:], strict=True)])]


def compare(words: str, pairs: Sequence[tuple[bool, bool]], comparisons: int) -> Pattern | None:
    """The pattern if it is shown; ``pairs`` hold whether an episode is of the kind, and whether it failed."""
    kind, others = ([failed for is_kind, failed in pairs if is_kind == side] for side in (True, False))
    if min(len(kind), len(others)) < LEAST:
        return None
    counts = sum(kind), len(kind), sum(others), len(others)
    low, high = difference_of_shares(*counts, comparisons=comparisons)
    return Pattern(words, *counts, (low, high)) if low > 0 else None


def count_areas(rows: Iterable[Row]) -> dict[str, Any]:
    """How many episodes of each area, failures among them, and of each kind."""
    rows = list(rows)
    areas = {
        area: {
            "drawn": sum(row["near"] is None for row in mine),
            "failed": sum(row["failed"] and row["near"] is None for row in mine),
            "near": sum(row["near"] is not None for row in mine),
            "near_failed": sum(row["failed"] and row["near"] is not None for row in mine),
            "unfair": sum(row["unfair"] for row in mine),
        }
        for area in dict.fromkeys(row["area"] for row in rows)
        if (mine := [row for row in rows if row["area"] == area])
    }
    return {"areas": areas, "faults": dict(Counter(row["fault"] for row in rows if row["failed"]).most_common())}
