"""README's Python runs as it is printed."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def code() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    return str(block)


def ran(code: str, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_layer_of_readme_runs() -> None:
    layer = "\n".join(line for line in code().splitlines() if "policy" not in line)
    assert "NAC(" in layer
    names: dict[str, Any] = {}
    exec(layer, names)
    assert names["y"].shape == (2, 100, 64)


@pytest.mark.nightly
def test_all_of_readmes_python_runs(tmp_path: Path) -> None:
    ran(code(), tmp_path)
    assert not list(tmp_path.iterdir()), "evaluate writes no folder that nobody asked for"
