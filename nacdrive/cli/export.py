"""``nacdrive export``: a trained policy as a file that drives without torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from nacdrive.common.errors import UserError

TARGETS = {
    "onnx": "nacdrive.export.onnx:export_onnx",
    "c": "nacdrive.export.c_source:export_c",
    "html": "nacdrive.export.html:export_html",
}
SUFFIXES = {"onnx": ".onnx", "c": ".c", "html": ".html"}


@dataclass(frozen=True)
class ExportConfig:
    """Write a policy as ONNX, as C, or as a page, with its preprocessing and the state of its memory."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The policy: a .pt file, or the name of a shipped one, such as carracing/nac_steady."""
    to: Literal["onnx", "c", "html"] = "onnx"
    """onnx: a graph for ONNX Runtime; c: C99 source and header; html: one page that drives a recorded lap."""
    out: Path | None = None
    """The file to write; MODEL's name in the working folder if not given."""
    int8: bool = False
    """onnx: convolutions and dense layers in 8 bits."""
    calibration: tuple[Path, ...] = ()
    """onnx --int8: recordings that show which numbers occur; the shipped one of CarRacing if not given."""
    lap: Path | None = None
    """html: the recorded lap to play, a recording or an episode file."""
    overwrite: bool = False
    """Replace the file if it is there."""

    def __post_init__(self) -> None:
        if self.int8 and self.to != "onnx":
            raise UserError("--int8 is for --to onnx: leave it out.")
        if self.calibration and not self.int8:
            raise UserError("--calibration is for --int8: give both, or neither.")
        if (self.lap is None) == (self.to == "html"):
            raise UserError("--lap and --to html belong together: give the recorded lap that the page shows.")


CONFIG = ExportConfig


def run(config: ExportConfig) -> None:
    """Export, and say what was written."""
    from nacdrive.common.files import refuse_existing

    model = model_file(config.model)
    out = config.out or Path(f"{model.stem}{'_int8' if config.int8 else ''}{SUFFIXES[config.to]}")
    if out.suffix != SUFFIXES[config.to]:
        raise UserError(f"--out {out} must end in {SUFFIXES[config.to]} for --to {config.to}.")
    refuse_existing(out, overwrite=config.overwrite)
    for path in exporter(config.to)(model, **options(config), out=out):
        print(f"written: {path} ({path.stat().st_size / 1e6:.2f} MB)")


def options(config: ExportConfig) -> dict[str, Any]:
    """What the exporter of the target is told beside model and file."""
    if config.to == "onnx":
        return {"int8": config.int8, "calibration": config.calibration}
    return {"lap": config.lap} if config.to == "html" else {}


def exporter(target: str) -> Any:
    """The function that writes ``target``."""
    module, name = TARGETS[target].split(":")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UserError(f"this nacdrive cannot export to {target} yet: give --to onnx.") from error


def model_file(name: str) -> Path:
    """The file of a policy: ``name`` itself, or the shipped one of TASK/NAME, or of NAME for CarRacing."""
    from nacdrive.common.paths import find_model

    task, slash, short = name.partition("/")
    if slash and "/" not in short and not Path(name).exists():
        return find_model(short, task)
    return find_model(name, "carracing")
