"""The page's engine in deno, beside the same drives in Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nacdrive.extras.playground.html import sprites
from nacdrive.models import Policy, PolicyConfig

HERE = Path(__file__).parent
SMALL = PolicyConfig(
    task="carracing",
    model="nac-steady",
    actions=(),
    pedal=True,
    repeat=2,
    height=96,
    width=96,
    channels=(4, 4),
    kernels=(8, 5),
    strides=(6, 4),
    window=3,
    d_model=16,
    num_heads=4,
    dense=8,
)


@pytest.fixture(scope="session")
def deno() -> Callable[..., Any]:
    """Runs a script beside this file: JSON in, JSON out."""
    path = shutil.which("deno", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if path is None:
        pytest.skip("needs deno: pip install 'nacdrive[dev]'")

    def run(script: str, **given: Any) -> Any:
        done = subprocess.run(
            [path, "run", "--quiet", "--no-lock", str(HERE / script)],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            cwd=HERE.parents[2],
            env={**os.environ, "NO_COLOR": "1"},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def engine(deno: Callable[..., Any]) -> Callable[[list[dict[str, Any]]], Any]:
    """Drives laps in the page's engine."""
    return lambda drives: deno("engine.js", sprites=sprites(), drives=drives)


@pytest.fixture(scope="session")
def small() -> Policy:
    """A policy that decides quickly, and drives nowhere."""
    torch.manual_seed(3)
    return Policy.new(SMALL, "small")
