"""``nacdrive export``: a trained policy as a file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from nacdrive.common.errors import UserError
from nacdrive.common.files import refuse_existing
from nacdrive.common.options import Output
from nacdrive.common.paths import find_model
from nacdrive.drivers.options import ModelOption

SUFFIXES = {"onnx": ".onnx", "c": ".c", "html": ".html", "safetensors": ".safetensors"}


class ExportConfig(ModelOption, Output):
    """Write a policy as ONNX, as C, as a page, or as safetensors; the first three need no torch to drive."""

    to: Literal["onnx", "c", "html", "safetensors"] = "onnx"
    """onnx: a graph for ONNX Runtime; c: C99 source and header; html: one page with a recorded lap and the network;
    safetensors: the same model file in the format of model hubs."""
    lap: Path | None = None
    """html: the recorded lap to play, a recording or an episode file."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.lap is None) == (self.to == "html"):
            raise UserError("--lap and --to html belong together: give the recorded lap that the page shows.")


def run(config: ExportConfig) -> None:
    """Export, and say what was written."""
    model = find_model(config.model)
    out = config.out or Path(f"{model.stem}{SUFFIXES[config.to]}")
    if out.suffix != SUFFIXES[config.to]:
        raise UserError(f"--out {out} must end in {SUFFIXES[config.to]} for --to {config.to}.")
    beside = [out.with_suffix(".h"), out.with_name(f"{out.stem}_try.c")] if config.to == "c" else []
    refuse_existing(out, *beside, overwrite=config.overwrite)
    for path in export(config, model, out):
        size = path.stat().st_size
        print(f"written: {path} ({size / 1e6:.2f} MB)" if size > 1e5 else f"written: {path} ({size / 1e3:.1f} kB)")


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
