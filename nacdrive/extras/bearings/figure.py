"""Wear of bearings over time, as a figure (Figure 3 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from nacdrive.extras.bearings.wear import WearCurve

INK, TRUE, PREDICTED = "#1f2933", "#8a94a0", "#c2410c"
HOURS = "hours since the first snapshot"


def plot_wear(curves: Mapping[str, WearCurve], path: Path, *, title: str, known: bool, axis: str = HOURS) -> None:
    """One panel per bearing: predicted wear over time, beside the true one where it is ``known`` (and finite)."""
    from matplotlib.figure import Figure

    from nacdrive.viz.figures import save

    columns = min(3, len(curves))
    rows = -(-len(curves) // columns)
    figure = Figure(figsize=(4.2 * columns, 2.9 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False, sharey=True).flat)
    for panel, (name, curve) in zip(panels, curves.items(), strict=False):
        hours = curve.t_s / 3600 if axis == HOURS else curve.t_s
        if known:
            panel.plot(hours, curve.truth, color=TRUE, lw=1.6, label="true")
        panel.plot(hours, curve.predicted, color=PREDICTED, lw=1.0, label="predicted")
        is_scored = known and math.isfinite(curve.rmse)
        panel.set_title(f"{name}, RMSE {curve.rmse:.2f}" if is_scored else name, fontsize=10, color=INK)
        panel.set(xlabel=axis, ylim=(-0.05, 1.05))
    for panel in panels[len(curves) :]:
        panel.axis("off")
    panels[0].set_ylabel("wear, 0 new .. 1 failed")
    panels[0].legend(frameon=False, fontsize=9, loc="upper left")
    figure.suptitle(title, fontsize=11, color=INK)
    save(figure, path)
