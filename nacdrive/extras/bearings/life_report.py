"""What a person reads of the remaining life of bearings: a table, a sentence, a file, a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from nacdrive.common.files import write_text
from nacdrive.common.table import csv_text
from nacdrive.extras.bearings.figure import plot_wear
from nacdrive.extras.bearings.life import BearingLife

COLUMNS = ("bearing", "t_s", "wear", "remaining_s", "remaining_low_s", "remaining_high_s", "wear_shows")


def write_files(bearings: Mapping[str, BearingLife], out: Path, title: str) -> None:
    """``wear.csv`` with a row per snapshot, and ``wear.png``, into ``out``."""
    write_text(out / "wear.csv", csv_text(COLUMNS, rows_of(bearings)))
    plot_wear({name: one.curve for name, one in bearings.items()}, out / "wear.png", title=title, known=False)


def table(name: str, bearing: BearingLife, rows: int) -> Table:
    """A few moments of one bearing."""
    curve, life = bearing.curve, bearing.life
    result = Table(title=f"{name}: {len(curve.t_s)} snapshots")
    for title in ("running for", "wear (0 new, 1 failed)", "remaining life", "80 % interval"):
        result.add_column(title, justify="right")
    result.add_column("how sure")
    for i in np.unique(np.linspace(0, len(curve.t_s) - 1, rows).round().astype(int)):
        interval = f"{span(life.low_s[i])} .. {span(life.high_s[i])}"
        result.add_row(
            span(curve.t_s[i]), f"{curve.predicted[i]:.2f}", span(life.median_s[i]), interval, life.sureness(int(i))
        )
    return result


def summary(name: str, bearing: BearingLife) -> str:
    """The last snapshot in a sentence."""
    life = bearing.life
    return (
        f"{name} now: about {span(life.median_s[-1])} left, with 80 % probability {span(life.low_s[-1])} to "
        f"{span(life.high_s[-1])}: {life.sureness(-1)} ({life.basis(-1)}). Ages are compared with {bearing.basis}."
    )


def span(seconds: float) -> str:
    """Hours and minutes."""
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def columns_of(bearing: BearingLife) -> tuple[NDArray[Any], ...]:
    """Of every snapshot what ``COLUMNS`` name after the bearing."""
    curve, life = bearing.curve, bearing.life
    return curve.t_s, curve.predicted, life.median_s, life.low_s, life.high_s, life.worn


def rows_of(bearings: Mapping[str, BearingLife]) -> Iterator[tuple[str, ...]]:
    """A row per snapshot."""
    for name, bearing in bearings.items():
        for t, wear, *remaining, worn in zip(*columns_of(bearing), strict=True):
            yield (name, f"{t:.2f}", f"{wear:.4f}", *(f"{seconds:.0f}" for seconds in remaining), str(int(worn)))
