"""``nacdrive export``: what it refuses before it works, and what it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nacdrive.cli.main import dispatch
from nacdrive.common.errors import UserError


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--to", "html"], "--lap and --to html belong together"),
        (["--lap", "x"], "--lap and --to html belong together"),
        (["--out", "x.pt"], "must end in .onnx"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        dispatch(["export", "nac_steady", *arguments])


def test_an_unknown_model_is_refused_and_an_existing_file_kept(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"did you mean 'nac_steady\.pt'"):
        dispatch(["export", "carracing/nac_stedy"])
    out = tmp_path / "mine.onnx"
    out.write_text("mine")
    with pytest.raises(UserError, match="exists: give --overwrite"):
        dispatch(["export", "udacity/nac_steady", "--out", str(out)])
    assert out.read_text() == "mine"


@pytest.mark.parametrize("target", ["c", "html", "safetensors"])
def test_each_target_writes_its_files_and_keeps_what_is_there(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"policy.{target}"
    lap = ["--lap", "recordings/carracing-sample"] if target == "html" else []
    line = ["export", "nac_steady", "--to", target, "--out", str(out), *lap]
    dispatch(line)
    written = [said.split()[1] for said in capsys.readouterr().out.splitlines()]
    assert [Path(path).is_file() for path in written] == [True] * (3 if target == "c" else 1)
    before = out.stat().st_mtime_ns
    with pytest.raises(UserError, match="--overwrite"):
        dispatch(line)
    assert out.stat().st_mtime_ns == before
    dispatch([*line, "--overwrite"])
