"""``nacdrive predict``: a bearing's wear and remaining life, a picture's digit (E-MNIST), a person's activity (PAR)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from nacdrive.common.errors import UserError, check_known
from nacdrive.common.files import refuse_existing, write_text
from nacdrive.common.options import Count, Device, Output
from nacdrive.datasets.options import RecordingOption
from nacdrive.drivers.options import ModelIfGiven
from nacdrive.tasks.registry import MostOption, TaskOption

if TYPE_CHECKING:
    from nacdrive.extras.predict.predictions import Prediction
    from nacdrive.training.predict import TrainedSeries

MODELS = {"pronostia": "nac_exact.pt", "emnist": "nac_lag.pt", "par": "nac_lag.pt"}
"""Task -> the model file that is looked for if none is given."""


class PredictConfig(
    RecordingOption, ModelIfGiven, TaskOption, MostOption, Device, Output, defaults={"task": "pronostia"}
):
    """Wear and remaining life of bearings, digits in pictures, activities in recordings: a table and files.

    The data are, of the task pronostia, vibration files of one bearing (acc_00001.csv ... or 1.csv ...), or a folder of
    such folders with names like Bearing1_1; of emnist a picture, a folder of pictures, or MNIST's files; of par a file
    in PAR's format, or its folder.
    """

    lives_h: Annotated[tuple[float, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="HOURS")] = ()
    """pronostia: hours that a bearing like these lived, once for every bearing, which say most while no wear shows;
    those that the model learnt from if not given, which are of a test rig that wears bearings out within hours."""
    rows: Count | None = None
    """Rows of the table that is printed: 8 per bearing, evenly spread over its time, or 20; the CSV file holds all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known("task", self.task, MODELS)
        if not all(0 < hours < 1e7 for hours in self.lives_h):
            raise UserError("--lives-h must be numbers above 0: how many hours each of your earlier bearings ran.")
        for flag, task, given in (("--lives-h", "pronostia", self.lives_h), ("--most", "emnist", self.most)):
            if given and self.task != task:
                raise UserError(f"{flag} is for --task {task}: leave it out.")


def run(config: PredictConfig) -> dict[str, Any]:
    """Predict, print, write."""
    from nacdrive.training.predict import TrainedSeries

    place = config.data.resolve()
    out = config.out or Path("runs") / f"predict-{place.stem if place.is_file() else place.name}"
    names = ("wear.csv", "wear.png") if config.task == "pronostia" else ("classes.csv",)
    refuse_existing(*(out / name for name in names), overwrite=config.overwrite)
    model = TrainedSeries.load(config.model or MODELS[config.task], config.task, config.device)
    predictions = (predict_wear if config.task == "pronostia" else predict_classes)(config, model, out)
    print(f"{out}/{', '.join(names)}")
    return {"files": [out / name for name in names], "predictions": predictions}


def predict_wear(config: PredictConfig, model: TrainedSeries, out: Path) -> object:
    """Bearings: a table and a sentence for each, wear.csv, wear.png."""
    from rich.console import Console

    from nacdrive.extras.bearings.life import document, predict_lives, summary, table, write_files

    bearings = predict_lives(model, config.data, [hours * 3600.0 for hours in config.lives_h])
    for name, bearing in bearings.items():
        Console().print(table(name, bearing, config.rows or 8))
        print(summary(name, bearing))
    write_files(bearings, out, f"wear, {model.path.stem}")
    return {name: document(bearing) for name, bearing in bearings.items()}


def predict_classes(config: PredictConfig, model: TrainedSeries, out: Path) -> object:
    """Digits or activities: a table, how many are right where that is known, classes.csv."""
    from rich.console import Console

    from nacdrive.common.table import csv_text
    from nacdrive.extras.predict.predictions import predict_activities, predict_digits

    if config.task == "emnist":
        answers = predict_digits(model, config.data, config.most or None)
        header: Sequence[str] = ("picture", "digit", "probability", "truth")
        rows: Iterable[Sequence[object]] = [(a.name, a.label, f"{a.share:.4f}", a.truth) for a in answers]
    else:
        answers, readings = predict_activities(model, config.data)
        classes = model.network.config.about["classes"]
        header = ("recording", "t_s", "activity", "truth")
        rows = (
            (name, f"{s:.3f}", classes[a], classes[b])
            for name, columns in readings.items()
            for s, a, b in zip(*(column.tolist() for column in columns), strict=True)
        )
    write_text(out / "classes.csv", csv_text(header, rows))
    Console().print(class_table(answers[: config.rows or 20], config.task))
    if known := [a.right for a in answers if a.right is not None]:
        print(f"right: {100 * sum(known) / len(known):.1f} % on average over {len(known)}")
    return answers


def class_table(answers: list[Prediction], task: str) -> object:
    """The first answers."""
    from rich.table import Table

    titles = ("picture", "digit", "probability") if task == "emnist" else ("recording", "most of the time", "share")
    result = Table(*titles, *(("truth", "right") if any(a.truth is not None for a in answers) else ()))
    for a in answers:
        known = [] if a.truth is None or a.right is None else [a.truth, f"{a.right:.0%}"]
        result.add_row(a.name, a.label, f"{a.share:.0%}", *known)
    return result
