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

from nacdrive.extras.playground.sprites import sprites

HERE = Path(__file__).parent


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
