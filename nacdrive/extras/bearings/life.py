"""Wear and remaining life of a person's own bearings, and what they read of it: table, sentence, file, figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from nacdrive.common.files import write_text
from nacdrive.common.table import csv_text
from nacdrive.extras.bearings.challenge import learning_lives_s
from nacdrive.extras.bearings.runs import read_own
from nacdrive.extras.bearings.task import Bearings
from nacdrive.extras.bearings.wear import WEAR_ERROR, RemainingLife, SurvivalPrior, WearCurve, plot_wear, wear_curves
from nacdrive.models.files import fitting
from nacdrive.training.predict import TrainedSeries

COLUMNS = ("bearing", "t_s", "wear", "remaining_s", "remaining_low_s", "remaining_high_s", "wear_shows")
"""Of ``wear.csv``."""
OFF_WORN, OFF_HEALTHY = 2.8, 1.9
"""Factor by which half of the medians were off, with and without wear, on six bearings of PRONOSTIA that the shipped
model never saw (docs/results/pronostia.md)."""


@dataclass(frozen=True)
class BearingLife:
    """What a model says of one bearing."""

    curve: WearCurve  # wear at every snapshot; its truth means nothing while the bearing runs
    life: RemainingLife  # remaining life at every snapshot, from what was known then
    basis: str  # what its age is compared with
    learnt: int | None  # runs to failure that the network learnt from; None where its file does not tell

    @property
    def look_again_s(self) -> NDArray[np.float64]:
        """[N] seconds until the next look: half of those within which one such bearing in ten has failed."""
        return self.life.low_s / 2


def predict_lives(model: TrainedSeries, folder: Path, lives_s: Sequence[float] = ()) -> dict[str, BearingLife]:
    """Wear and remaining life of each bearing in ``folder``.

    ``lives_s`` are those of bearings of the same kind in seconds; if none are given, those that the model learnt from
    stand for them, or those of the PHM 2012 challenge where its file does not tell. A bearing of PRONOSTIA is never
    compared with its own life. ``UserError`` if there are no bearings, a life is not above 0, or the model file holds
    something else.
    """
    runs = read_own(folder)
    samples = Bearings().cut(runs)
    curves = wear_curves(model.predict(samples), samples)
    with fitting(model.path):
        learnt = {str(name): float(life) for name, life in model.network.config.about.get("lives_s", {}).items()}
        error = float(model.meta.get("scores", {}).get("pronostia", {}).get("rmse_worn", WEAR_ERROR))
    if not 0 < error <= 1:
        error = WEAR_ERROR
    lives = {}
    for run in runs:
        prior, basis = prior_of(lives_s, learnt, run.name if run.dataset == "pronostia" else None)
        curve = curves[run.name]
        lives[run.name] = BearingLife(curve, curve.remaining_life(prior, error), basis, len(learnt) or None)
    return lives


def prior_of(given: Sequence[float], learnt: Mapping[str, float], own: str | None) -> tuple[SurvivalPrior, str]:
    """The lives that a bearing named ``own`` is compared with, and what they are, in words."""
    if given:
        were = "life that was" if len(given) == 1 else "lives that were"
        return SurvivalPrior(tuple(given)), f"the {len(given)} {were} given"
    others = tuple(life for name, life in learnt.items() if name != own)
    if others:
        noun = "life" if len(others) == 1 else "lives"
        return SurvivalPrior(others), f"the {len(others)} {noun} that the model learnt from"
    others = tuple(life for name, life in learning_lives_s().items() if name != own)
    return SurvivalPrior(others), f"{len(others)} lives of PRONOSTIA, for the model file tells none"


def write_files(bearings: Mapping[str, BearingLife], out: Path, title: str) -> None:
    """``wear.csv`` with a row per snapshot, and ``wear.png``, into ``out``."""
    write_text(out / "wear.csv", csv_text(COLUMNS, rows_of(bearings)))
    curves = {name: bearing.curve for name, bearing in bearings.items()}
    lives = {name: bearing.life for name, bearing in bearings.items()}
    plot_wear(curves, out / "wear.png", title=title, known=False, lives=lives)


def table(name: str, bearing: BearingLife, rows: int) -> Table:
    """A few moments of one bearing."""
    curve, life = bearing.curve, bearing.life
    result = Table(title=f"{name}: {len(curve.t_s)} snapshots")
    for title in ("running for", "wear (0 new, 1 failed)", "remaining life", "80 % interval"):
        result.add_column(title, justify="right")
    result.add_column("state")
    for i in np.unique(np.linspace(0, len(curve.t_s) - 1, rows).round().astype(int)):
        interval = f"{span(life.low_s[i])} .. {span(life.high_s[i])}"
        # By age alone the median is that of other bearings, and says nothing of this one.
        left = span(life.median_s[i]) if life.worn[i] else "-"
        result.add_row(span(curve.t_s[i]), f"{curve.predicted[i]:.2f}", left, interval, curve.state(int(i)))
    return result


def summary(name: str, bearing: BearingLife) -> str:
    """The last snapshot in sentences: state, what is left, when to look again, what that rests on."""
    curve, life = bearing.curve, bearing.life
    low, median, high = (span(value[-1]) for value in (life.low_s, life.median_s, life.high_s))
    if life.worn[-1]:
        left = (
            f"About {median} left, with 80 % probability {low} to {high}: {life.sureness(-1)} ({life.basis(-1)}); "
            f"half of such medians were off by a factor of {OFF_WORN} or more on six bearings of PRONOSTIA"
        )
    else:
        left = (
            f"Nothing shows yet, so nothing can be told of its end. By age alone, one bearing in ten of this age fails "
            f"within {low}, half within {median}, nine in ten within {high}; half of such medians were off by a factor "
            f"of {OFF_HEALTHY} or more on six bearings of PRONOSTIA"
        )
    runs = "an unknown number of runs" if bearing.learnt is None else f"{bearing.learnt} run{'s'[: bearing.learnt > 1]}"
    return (
        f"{name} now: {curve.state(-1)}, vibration {curve.level[-1]:.1f} times that of its beginning. {left}. "
        f"Look again in {span(bearing.look_again_s[-1])}. This rests on a model that learnt from {runs} to failure; "
        f"ages are compared with {bearing.basis}."
    )


def span(seconds: float) -> str:
    """Hours and minutes."""
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def columns_of(bearing: BearingLife) -> tuple[NDArray[Any], ...]:
    """Of every snapshot what ``COLUMNS`` name after the bearing."""
    curve, life = bearing.curve, bearing.life
    return curve.t_s, curve.predicted, life.median_s, life.low_s, life.high_s, life.worn


def document(bearing: BearingLife) -> dict[str, Any]:
    """Of every snapshot what ``COLUMNS`` name after the bearing, and what a person reads of the last one."""
    return dict(zip(COLUMNS[1:], (column.tolist() for column in columns_of(bearing)), strict=True)) | {
        "state": bearing.curve.state(-1),
        "look_again_s": float(bearing.look_again_s[-1]),
        "basis": f"{bearing.life.basis(-1)}; {bearing.basis}",
        "runs_learnt_from": bearing.learnt,
        "sureness": bearing.life.sureness(-1),
    }


def rows_of(bearings: Mapping[str, BearingLife]) -> Iterator[tuple[str, ...]]:
    """A row per snapshot."""
    for name, bearing in bearings.items():
        for t, wear, *remaining, worn in zip(*columns_of(bearing), strict=True):
            yield (name, f"{t:.2f}", f"{wear:.4f}", *(f"{seconds:.0f}" for seconds in remaining), str(int(worn)))
