"""``nacdrive classify``: which digit a picture shows (E-MNIST), or what a person is doing (PAR)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from nacdrive.common.errors import UserError, unknown_name

if TYPE_CHECKING:
    from nacdrive.bench.inference import Prediction

TASKS = ("emnist", "par")


@dataclass(frozen=True)
class ClassifyConfig:
    """Digits in pictures, or activities in recordings of worn tags: a table and a CSV file."""

    place: Annotated[Path, tyro.conf.Positional]
    """emnist: a picture, a folder of pictures, or MNIST's files. par: a file in PAR's format, or its folder."""
    task: str = "emnist"
    """emnist or par."""
    model: str = "nac_lag.pt"
    """A model file, or the name of a shipped one."""
    most: int = 0
    """Pictures to look at; 0: all."""
    rows: int = 20
    """Rows of the table that is printed; the CSV file holds all."""
    device: str = "cpu"
    """cpu or cuda."""
    out: Path | None = None
    """Folder of classes.csv; runs/classify-PLACE if not given."""
    overwrite: bool = False
    """Replace the classes.csv that is there."""

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise unknown_name("task", self.task, TASKS)
        if self.most < 0 or self.rows < 1:
            raise UserError("--most must not be negative, and --rows must be at least 1.")


CONFIG = ClassifyConfig


def run(config: ClassifyConfig) -> int:
    """Classify, print, write."""
    from rich.console import Console

    from nacdrive.bench.inference import Model, predict_activities, predict_digits
    from nacdrive.common.files import refuse_existing, write_text

    out = config.out or Path("runs") / f"classify-{config.place.resolve().stem}"
    refuse_existing(out / "classes.csv", overwrite=config.overwrite)
    model = Model.load(config.model, config.task, config.device)
    if config.task == "emnist":
        answers = predict_digits(model, config.place, config.most or None)
        lines = ["picture,digit,probability,truth"]
        lines += [f"{a.name},{a.label},{a.share:.4f},{a.truth or ''}" for a in answers]
    else:
        answers, readings = predict_activities(model, config.place)
        classes = model.network.config.about["classes"]
        lines = ["recording,t_s,activity,truth"]
        for name, (t, y, truth) in readings.items():
            pairs = zip(t.tolist(), y.tolist(), truth.tolist(), strict=True)
            lines += [f"{name},{s:.3f},{classes[a]},{classes[b]}" for s, a, b in pairs]
    write_text(out / "classes.csv", "\n".join(lines) + "\n")
    Console().print(table(answers[: config.rows], config.task))
    known = [a.right for a in answers if a.right is not None]
    if known:
        print(f"right: {100 * sum(known) / len(known):.1f} % on average over {len(known)}")
    print(f"{out}/classes.csv")
    return 0


def table(answers: list[Prediction], task: str) -> Any:
    """The first answers."""
    from rich.table import Table

    digits = task == "emnist"
    found = Table()
    for title in ("picture", "digit", "probability") if digits else ("recording", "most of the time", "share"):
        found.add_column(title)
    if any(a.truth is not None for a in answers):
        found.add_column("truth")
        found.add_column("right")
    for a in answers:
        known = [] if a.truth is None or a.right is None else [a.truth, f"{a.right:.0%}"]
        found.add_row(a.name, a.label, f"{a.share:.0%}", *known)
    return found
