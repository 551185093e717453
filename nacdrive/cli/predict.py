"""``nacdrive predict``: how worn a bearing is, and how long it will still run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from nacdrive.common.errors import UserError, unknown_name

if TYPE_CHECKING:
    from nacdrive.tasks.bearings import WearCurve

TASKS = ("pronostia",)


@dataclass(frozen=True)
class PredictConfig:
    """Wear and remaining life of bearings from their vibration: a table, a CSV file and a plot."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Vibration files of one bearing (acc_00001.csv ... or 1.csv ...), or a folder of such folders."""
    task: str = "pronostia"
    """What is predicted."""
    model: str = "nac_exact.pt"
    """A model file, or the name of a shipped one."""
    rows: int = 8
    """Rows of the table per bearing, evenly spread over its time."""
    device: str = "cpu"
    """cpu or cuda."""
    out: Path | None = None
    """Folder of wear.csv and wear.png; runs/predict-FOLDER if not given."""
    overwrite: bool = False
    """Replace the wear.csv and wear.png that are there."""

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise unknown_name("task", self.task, TASKS)
        if self.rows < 1:
            raise UserError(f"--rows is {self.rows}: it must be at least 1.")


CONFIG = PredictConfig


def run(config: PredictConfig) -> int:
    """Predict, print, write."""
    from rich.console import Console

    from nacdrive.bench.inference import Model, predict_wear
    from nacdrive.common.files import refuse_existing, write_text
    from nacdrive.viz.figures import plot_wear

    out = config.out or Path("runs") / f"predict-{config.folder.resolve().name}"
    refuse_existing(out / "wear.csv", out / "wear.png", overwrite=config.overwrite)
    model = Model.load(config.model, config.task, config.device)
    curves = predict_wear(model, config.folder)
    for name, curve in curves.items():
        Console().print(table(name, curve, config.rows))
    write_text(out / "wear.csv", csv_text(curves))
    plot_wear(curves, out / "wear.png", title=f"wear, {model.path.stem}", known=False)
    print(f"{out}/wear.csv, wear.png")
    return 0


def table(name: str, curve: WearCurve, rows: int) -> object:
    """A few moments of one bearing."""
    import numpy as np
    from rich.table import Table

    found = Table(title=f"{name}: {len(curve.t_s)} snapshots")
    for title in ("running for", "wear (0 new, 1 failed)", "remaining life"):
        found.add_column(title, justify="right")
    left = curve.remaining_s()
    for i in np.unique(np.linspace(0, len(left) - 1, rows).round().astype(int)):
        found.add_row(span(curve.t_s[i]), f"{curve.predicted[i]:.2f}", span(left[i]))
    return found


def span(seconds: float) -> str:
    """Hours and minutes."""
    if seconds == float("inf"):
        return "no wear yet"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def csv_text(curves: dict[str, WearCurve]) -> str:
    """A row per snapshot; no remaining life while no wear shows."""
    lines = ["bearing,t_s,wear,remaining_s"]
    for name, curve in curves.items():
        for t, worn, left in zip(curve.t_s, curve.predicted, curve.remaining_s(), strict=True):
            lines.append(f"{name},{t:.2f},{worn:.4f},{'' if left == float('inf') else f'{left:.0f}'}")
    return "\n".join(lines) + "\n"
