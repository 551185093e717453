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


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_feature_is_imported_by_itself_and_the_command_line_alone(path: Path) -> None:
    room, *inside = path.relative_to(PACKAGE).parts
    if room == "cli":
        return
    # Registries name features in strings, as those of installed packages are named.
    imported = re.findall(r"^\s*(?:from|import) nacdrive\.extras\.(\w+)", path.read_text(), re.MULTILINE)
    assert set(imported) <= ({inside[0]} if room == "extras" else set())


def test_rooms_know_nothing_of_the_public_names_above_them() -> None:
    """``nacdrive/__init__.py`` and ``api.py`` stand above the rooms, and the command line above them."""
    above = re.compile(r"^\s*from nacdrive import|nacdrive\.api\b", re.MULTILINE)
    assert not [str(path.relative_to(PACKAGE)) for path in FILES if above.search(path.read_text())]
    assert not re.search(r"^\s*(?:from|import) nacdrive\.cli", (PACKAGE / "api.py").read_text(), re.MULTILINE)


def modules_imported(path: Path) -> set[Path]:
    """Files of the package that ``path`` imports, at the top or inside a function, type checking aside."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = [ast.Pass()]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if (ROOT / f"{name.replace('.', '/')}.py").exists() else node.module for name in inside)
    files = (ROOT / f"{name.replace('.', '/')}.py" for name in found if name.startswith("nacdrive."))
    return {file for file in files if file.exists()}


def test_no_file_imports_itself_by_way_of_others() -> None:
    imports = {path: modules_imported(path) for path in FILES}
    done: set[Path] = set()

    def walk(path: Path, way: list[Path]) -> None:
        assert path not in way, " -> ".join(str(p.relative_to(PACKAGE)) for p in [*way[way.index(path) :], path])
        if path not in done:
            for other in imports.get(path, ()):
                walk(other, [*way, path])
            done.add(path)

    for path in FILES:
        walk(path, [])


def test_one_loop_alone_steps_an_environment_that_is_driven() -> None:
    """Wrappers hand ``step`` on, and PPO's own environments are stepped by PPO; nobody else closes a loop."""
    allowed = {
        "rollout/rollout.py",
        "envs/base.py",
        "envs/camera_noise.py",
        "rl/training_env.py",
        "rl/recurrent_ppo.py",
    }
    stepping = {str(path.relative_to(PACKAGE)) for path in FILES if re.search(r"\benv\.step\(", path.read_text())}
    assert stepping <= allowed


def test_no_verb_asks_for_an_environments_name() -> None:
    """What differs between environments stands in their registry."""
    names = {"carracing", "udacity", "udacity-track"}
    guilty = []
    for path in FILES:
        if path.relative_to(PACKAGE).parts[0] == "envs":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare):
                compared = [x.value for x in ast.walk(node) if isinstance(x, ast.Constant)]
                if names & {value for value in compared if isinstance(value, str)}:
                    guilty.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}")
    assert not guilty


CERTAIN_ENVIRONMENTS = re.compile(r"nacdrive\.envs\.(carracing|udacity|udacity_track)\b(?!\.options)")
KNOW_ONE_ENVIRONMENT = {
    *("tasks/driving.py", "cli/doctor.py"),
    # The simulator that connects: what a drive of it ends with, and its pictures.
    "cli/drive.py",
    # Experts of one world.
    *("drivers/ppo.py", "drivers/pure_pursuit.py"),
    # The page that has CarRacing in it.
    "extras/playground/sprites.py",
    # PPO's shaped lap.
    *("rl/train.py", "rl/training_env.py"),
}
"""Files that may import a certain environment; the options of roads stand in an environment's folder, and are a part of
every verb.
"""


def test_only_few_files_know_one_certain_environment() -> None:
    knowing = {str(p.relative_to(PACKAGE)) for p in FILES if CERTAIN_ENVIRONMENTS.search(p.read_text())}
    assert {name for name in knowing if not name.startswith(("envs/", "extras/simulator/"))} <= KNOW_ONE_ENVIRONMENT


def test_drivers_and_cameras_are_put_together_in_one_place() -> None:
    """``rollout/drive.py`` alone puts a safety stop, noise of the wheel and a worse camera around what is driven."""
    building = re.compile(r"\b(SafetyStop|NoisyCamera|SteeringNoise|Mixture|HumanOverride|at_speed)\(")
    guilty = {str(p.relative_to(PACKAGE)) for p in FILES if building.search(p.read_text().replace("class ", "class_"))}
    assert {name for name in guilty if not name.startswith(("drivers/", "envs/"))} == {"rollout/drive.py"}


def test_nac_core_needs_nothing_but_torch_and_numpy() -> None:
    # Kernels are written in triton and numba; nothing imports them before they are used (tests/nac/test_triton.py,
    # tests/nac/test_numba.py).
    names = ("triton/forward", "triton/backward", "numba/compiled")
    kernels = {PACKAGE / f"nac/kernels/{name}.py" for name in names}
    foreign = set()
    for path in set((PACKAGE / "nac").rglob("*.py")) - kernels:
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
