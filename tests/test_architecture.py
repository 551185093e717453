"""Imports between the rooms of ``nacdrive/`` point down the table of ``docs/architecture.md``, never up."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "nacdrive"
ROOMS = re.findall(r"^\| `(\w+)/` \|", (ROOT / "docs/architecture.md").read_text().split("## Rooms")[1], re.MULTILINE)
FILES = sorted(PACKAGE.glob("*/**/*.py"))


def rooms_imported(source: str) -> set[str]:
    """Names of the rooms that ``source`` imports, at the top or inside a function."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.update([node.module] + [f"{node.module}.{alias.name}" for alias in node.names])
    return {parts[1] for m in modules if (parts := m.split("."))[0] == "nacdrive" and len(parts) > 1} & set(ROOMS)


def test_every_folder_is_a_room_of_the_table() -> None:
    folders = {path.parent.relative_to(PACKAGE).parts[0] for path in FILES}
    assert folders <= set(ROOMS)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = ROOMS.index(path.relative_to(PACKAGE).parts[0])
    above = {room for room in rooms_imported(path.read_text()) if ROOMS.index(room) < own}
    assert not above, f"{path.relative_to(ROOT)} imports {sorted(above)}, which stand above it in docs/architecture.md"


def test_nac_core_needs_nothing_but_torch_and_numpy() -> None:
    # The GPU kernels are written in triton; nothing imports them before a GPU is used (tests/nac/test_triton.py).
    kernels = {PACKAGE / "nac/triton_forward.py", PACKAGE / "nac/triton_backward.py"}
    foreign = set()
    for path in set((PACKAGE / "nac").glob("*.py")) - kernels:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import):
                foreign.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                foreign.add(
                    ".".join(node.module.split(".")[:2])
                    if node.module.startswith("nacdrive")
                    else node.module.split(".")[0]
                )
    import sys

    assert foreign - set(sys.stdlib_module_names) <= {"torch", "numpy", "nacdrive.nac"}


def test_a_file_that_imports_upwards_is_caught() -> None:
    assert rooms_imported("def f():\n    from nacdrive.cli import main\n") == {"cli"}
