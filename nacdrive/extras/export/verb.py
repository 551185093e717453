"""``nacdrive export``: a trained policy as a file for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from nacdrive.common.errors import UserError

SUFFIXES = {"onnx": ".onnx", "c": ".c", "html": ".html", "safetensors": ".safetensors"}


@dataclass(frozen=True)
class ExportConfig:
    """Write a policy as ONNX, as C, as a page, or as safetensors; the first three need no torch to drive."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """The policy: a .pt file, or the name of a shipped one, such as carracing/nac_steady."""
    to: Literal["onnx", "c", "html", "safetensors"] = "onnx"
    """onnx: a graph for ONNX Runtime; c: C99 source and header; html: one page with a recorded lap and the network;
    safetensors: the same model file in the format of model hubs."""
    out: Path | None = None
    """The file to write; MODEL's name in the working folder if not given."""
    lap: Path | None = None
    """html: the recorded lap to play, a recording or an episode file."""
    overwrite: bool = False
    """Replace the file if it is there."""

    def __post_init__(self) -> None:
        if (self.lap is None) == (self.to == "html"):
            raise UserError("--lap and --to html belong together: give the recorded lap that the page shows.")


CONFIG = ExportConfig


def run(config: ExportConfig) -> None:
    """Export, and say what was written."""
    from nacdrive.common.files import refuse_existing

    model = model_file(config.model)
    out = config.out or Path(f"{model.stem}{SUFFIXES[config.to]}")
    if out.suffix != SUFFIXES[config.to]:
        raise UserError(f"--out {out} must end in {SUFFIXES[config.to]} for --to {config.to}.")
    refuse_existing(*files_of(config.to, out), overwrite=config.overwrite)
    for path in export(config, model, out):
        size = path.stat().st_size
        print(f"written: {path} ({size / 1e6:.2f} MB)" if size > 1e5 else f"written: {path} ({size / 1e3:.1f} kB)")


def files_of(target: str, out: Path) -> list[Path]:
    """What an export writes."""
    return [out, out.with_suffix(".h"), out.with_name(f"{out.stem}_try.c")] if target == "c" else [out]


def export(config: ExportConfig, model: Path, out: Path) -> list[Path]:
    """Write the files of the target; returns them."""
    if config.to == "onnx":
        from nacdrive.extras.export.onnx import export_onnx

        return export_onnx(model, out)
    if config.to == "c":
        from nacdrive.extras.export.c_source import export_c

        return export_c(model, out)
    if config.to == "html":
        from nacdrive.extras.export.html import export_html

        assert config.lap is not None
        return [export_html(model, config.lap, out)]
    from nacdrive.models import convert_model

    convert_model(model, out, overwrite=config.overwrite)
    return [out]


def model_file(name: str) -> Path:
    """The file of a policy: ``name`` itself, or the shipped one of TASK/NAME, or of NAME for CarRacing."""
    from nacdrive.common.paths import find_model

    task, slash, short = name.partition("/")
    if slash and "/" not in short and not Path(name).exists():
        return find_model(short, task)
    return find_model(name, "carracing")
