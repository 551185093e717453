"""What warnings before a failure are worth: how many departures were told of in time, and how many alarms were false.

A *departure* is the moment at which a wheel goes beyond the edge of the road; one within ``SAME_S`` of the last time
off the road belongs to the one before. An *alarm* lasts while the risk is at the threshold or above, gaps of up to
``GAP_S`` included. A departure is *warned of* if an alarm that was on within the ``HORIZON_S`` before it had begun at
least ``AHEAD_S`` before it. Alarm time more than ``LONG_S`` before the departure that it tells of, or before none at
all, is false: one false alarm for each ``LONG_S`` begun, so that an alarm that is always on is not taken for a prophet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from nacdrive.drivers.tick import WARN, Tick

SAME_S = 2.0
GAP_S = 1.0
HORIZON_S = 2.0
"""The road is left within this time: what monitors are fitted to."""
AHEAD_S = 1.0
LONG_S = 5.0
FIELDS = ("departures", "warned", "alarms", "false_alarms", "watched_s")
"""Numbers of a drive that are added up over drives."""


class WarningScore:
    """Counts over one drive, decision by decision."""

    def __init__(self) -> None:
        self._alarm: tuple[float, float] | None = None
        """Seconds at which the alarm that is on, or was on last, began and was on last."""
        self._last_off_s = -math.inf
        self._off = False
        self._before_s: float | None = None
        self.departures, self.warned, self.alarms, self.false_alarms, self.watched_s = 0, 0, 0, 0, 0.0
        self.leads_s: list[float] = []
        """Seconds from the warning to each departure; 0 where there was none."""

    def add(self, t_s: float, risky: bool, off_road: bool, put_back: bool = False) -> None:
        """One decision: its time, whether the risk is at the threshold, whether a wheel is off the road now, and
        whether the car was put back on the road after it.
        """
        if self._before_s is not None and not self._off:
            self.watched_s += t_s - self._before_s
        self._before_s = t_s
        if off_road:
            if not self._off:
                self._depart(t_s)
            self._last_off_s = t_s
        elif risky:
            if self._alarm is None or t_s - self._alarm[1] > GAP_S:
                self._close()
                self.alarms += 1
                self._alarm = t_s, t_s
            else:
                self._alarm = self._alarm[0], t_s
        if put_back and self._alarm is not None:
            # Whoever stuck did not leave the road, and did need help: nothing to blame an alarm for.
            self._alarm = None
        self._off = off_road

    def row(self) -> dict[str, Any]:
        """The counts so far, and the median of the leads; an alarm that is still on has not proved false yet."""
        return {
            **{name: getattr(self, name) for name in FIELDS},
            "lead_s": float(np.median(self.leads_s)) if self.leads_s else None,
            "leads_s": [round(lead, 3) for lead in self.leads_s],
        }

    def finish(self) -> None:
        """The drive is over: an alarm that nothing came of for ``HORIZON_S`` was false."""
        if self._alarm is not None and self._before_s is not None:
            began, last = self._alarm
            if self._before_s - last >= HORIZON_S:
                self._close()
            else:
                self.false_alarms += math.floor(max(0.0, last - began) / LONG_S)
                self._alarm = None

    def _close(self) -> None:
        """An alarm is over, and nothing came of it."""
        if self._alarm is not None:
            began, last = self._alarm
            self.false_alarms += max(1, math.ceil((last - began) / LONG_S))
            self._alarm = None

    def _depart(self, t_s: float) -> None:
        new = t_s - self._last_off_s >= SAME_S
        told = self._alarm is not None and t_s - self._alarm[1] <= HORIZON_S
        if told:
            assert self._alarm is not None
            lead = t_s - self._alarm[0]
            self.false_alarms += math.ceil(max(0.0, lead - LONG_S) / LONG_S)
            self._alarm = None
        else:
            self._close()
            lead = 0.0
        if new:
            self.departures += 1
            self.leads_s.append(lead)
            self.warned += lead >= AHEAD_S


class DriveWarnings:
    """The same over one drive, from its Ticks; one that a person starts over counts from its last start."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._score, self._seen = WarningScore(), False

    def add(self, tick: Tick) -> None:
        """Take in one decision."""
        if tick.step == 0:
            self._begin()
        self._seen |= tick.risk is not None
        risky = tick.risk is not None and tick.risk >= WARN
        off, back = tick.info.get("off_road", False), tick.next_info.get("put_back", False)
        self._score.add(tick.t_s, risky, bool(off), bool(back))

    def result(self) -> dict[str, Any] | None:
        """The counts of the whole drive; None without a monitor."""
        if not self._seen:
            return None
        self._score.finish()
        return self._score.row()


def total(rows: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """What the rows of several drives say together: sums, share warned of in time, median lead, false alarms."""
    rows = list(rows)
    sums: dict[str, float] = {name: sum(row[name] for row in rows) for name in FIELDS}
    leads = [lead for row in rows for lead in row["leads_s"]]
    return {
        **sums,
        "warned_share": sums["warned"] / sums["departures"] if sums["departures"] else None,
        "lead_median_s": float(np.median(leads)) if leads else None,
        "false_alarms_per_5_min": sums["false_alarms"] * 300 / sums["watched_s"] if sums["watched_s"] else None,
    }
