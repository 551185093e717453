"""``nacdrive predict``: how worn a bearing is, and how long it will still run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from nacdrive.common.errors import UserError, unknown_name

if TYPE_CHECKING:
    from nacdrive.bench.inference import BearingLife

TASKS = ("pronostia",)
HOUR_S = 3600.0


@dataclass(frozen=True)
class PredictConfig:
    """Wear and remaining life of bearings from their vibration: a table, a CSV file and a plot."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Vibration files of one bearing (acc_00001.csv ... or 1.csv ...), or a folder of such folders."""
    task: str = "pronostia"
    """What is predicted."""
    model: str = "nac_exact.pt"
    """A model file, or the name of a shipped one."""
    lives_h: Annotated[tuple[float, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="HOURS")] = ()
    """Hours that a bearing like these lived, once for every bearing, which say most while no wear shows; those that
    the model learnt from if not given, which are of a test rig that wears bearings out within hours."""
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
        if not all(0 < hours < 1e7 for hours in self.lives_h):
            raise UserError("--lives-h must be numbers above 0: how many hours each of your earlier bearings ran.")


CONFIG = PredictConfig


def run(config: PredictConfig) -> int:
    """Predict, print, write."""
    from rich.console import Console

    from nacdrive.bench.inference import Model, predict_lives
    from nacdrive.common.files import refuse_existing, write_text
    from nacdrive.viz.figures import plot_wear

    out = config.out or Path("runs") / f"predict-{config.folder.resolve().name}"
    refuse_existing(out / "wear.csv", out / "wear.png", overwrite=config.overwrite)
    model = Model.load(config.model, config.task, config.device)
    found = predict_lives(model, config.folder, [hours * HOUR_S for hours in config.lives_h])
    for name, bearing in found.items():
        Console().print(table(name, bearing, config.rows))
        print(summary(name, bearing))
    write_text(out / "wear.csv", csv_text(found))
    curves = {name: bearing.curve for name, bearing in found.items()}
    plot_wear(curves, out / "wear.png", title=f"wear, {model.path.stem}", known=False)
    print(f"{out}/wear.csv, wear.png")
    return 0


def table(name: str, bearing: BearingLife, rows: int) -> object:
    """A few moments of one bearing."""
    import numpy as np
    from rich.table import Table

    curve, life = bearing.curve, bearing.life
    found = Table(title=f"{name}: {len(curve.t_s)} snapshots")
    for title in ("running for", "wear (0 new, 1 failed)", "remaining life", "80 % interval"):
        found.add_column(title, justify="right")
    found.add_column("how sure")
    for i in np.unique(np.linspace(0, len(curve.t_s) - 1, rows).round().astype(int)):
        interval = f"{span(life.low_s[i])} .. {span(life.high_s[i])}"
        found.add_row(
            span(curve.t_s[i]), f"{curve.predicted[i]:.2f}", span(life.median_s[i]), interval, life.sureness(int(i))
        )
    return found


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


def csv_text(found: dict[str, BearingLife]) -> str:
    """A row per snapshot."""
    lines = ["bearing,t_s,wear,remaining_s,remaining_low_s,remaining_high_s,wear_shows"]
    for name, bearing in found.items():
        curve, life = bearing.curve, bearing.life
        columns = (curve.t_s, curve.predicted, life.median_s, life.low_s, life.high_s, life.worn)
        for t, wear, middle, low, high, worn in zip(*columns, strict=True):
            lines.append(f"{name},{t:.2f},{wear:.4f},{middle:.0f},{low:.0f},{high:.0f},{int(worn)}")
    return "\n".join(lines) + "\n"
