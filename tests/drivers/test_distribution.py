"""``nacdrive-run`` is built from the module that nacdrive itself drives with, and asks for no torch."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from nacdrive import __version__

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "runtime"


def test_it_needs_numpy_and_onnxruntime_alone() -> None:
    project = tomllib.loads((RUNTIME / "pyproject.toml").read_text())["project"]
    assert {re.split(r"[><=]", need)[0] for need in project["dependencies"]} == {"numpy", "onnxruntime"}


@pytest.mark.nightly
def test_its_wheel_holds_the_very_module(tmp_path: Path) -> None:
    if (
        shutil.which("uv") is None
        and subprocess.run([sys.executable, "-c", "import hatchling"], check=False).returncode
    ):
        pytest.skip("neither uv nor hatchling is here to build with")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path), str(RUNTIME)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Could not find a version" in done.stderr or "No matching distribution" in done.stderr:
        pytest.skip("the build backend cannot be downloaded here")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("nacdrive_run-*.whl")
    assert wheel.name.startswith(f"nacdrive_run-{__version__}-")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("nacdrive_run.py") == (ROOT / "nacdrive/drivers/onnx_runtime.py").read_bytes()
