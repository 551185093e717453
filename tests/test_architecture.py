"""Imports between the rooms of ``nacdrive/`` point down the table of ``docs/architecture.md``, never up."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "nacdrive"
ROOMS = re.findall(r"^\| `(\w+)/` \|", (ROOT / "docs/architecture.md").read_text().split("## Rooms")[1], re.MULTILINE)
FILES = sorted(PACKAGE.glob("*/**/*.py"))


@dataclass
class Facts:
    """What these tests ask of one file, read in one pass."""

    rooms: set[str]
    """Rooms that are imported, at the top or inside a function."""
    files: set[Path]
    """Files of the package that are imported so, those whose types alone are asked for too."""
    names_compared: list[str]
    """Comparisons with the name of an environment."""


ENVIRONMENTS = {"carracing", "udacity", "udacity-track"}
NAME = r"[\w.]+(?: as \w+)?"
TEXT = re.compile('""".*?"""', re.DOTALL)
IMPORT = re.compile(rf"^[ \t]*((?:from [\w.]+ )?import (?:\([^)]*\)|{NAME}(?:, {NAME})*))[ \t]*(?:#.*)?$", re.MULTILINE)


def facts_of(source: str) -> Facts:
    modules: set[str] = set()
    files: set[str] = set()
    compared: list[str] = []
    # To parse all of every file takes two seconds, and only a file that names an environment can compare one.
    whole = any(f'"{name}"' in source or f"'{name}'" in source for name in ENVIRONMENTS)
    for node in ast.walk(ast.parse(source if whole else "\n".join(IMPORT.findall(TEXT.sub("", source))))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            modules.update(names)
            files.update(names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            modules.update([node.module, *inside])
            files.update(name if file_of(name).exists() else node.module for name in inside)
        elif isinstance(node, ast.Compare):
            texts = {x.value for x in ast.walk(node) if isinstance(x, ast.Constant) and isinstance(x.value, str)}
            if texts & ENVIRONMENTS:
                compared.append(f"{node.lineno}: {ast.unparse(node)}")
    rooms = {parts[1] for m in modules if (parts := m.split("."))[0] == "nacdrive" and len(parts) > 1} & set(ROOMS)
    return Facts(rooms, {file_of(n) for n in files if n.startswith("nacdrive.") and file_of(n).exists()}, compared)


def file_of(module: str) -> Path:
    """Of a package its ``__init__.py``."""
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@pytest.fixture(scope="module")
def facts() -> dict[Path, Facts]:
    return {path: facts_of(path.read_text()) for path in FILES}


def test_every_folder_is_a_room_of_the_table() -> None:
    folders = {path.parent.relative_to(PACKAGE).parts[0] for path in FILES}
    assert folders <= set(ROOMS)


def test_imports_point_down(facts: dict[Path, Facts]) -> None:
    """Towards the end of the table in ``docs/architecture.md``."""
    upwards = {
        str(path.relative_to(PACKAGE)): above
        for path, its in facts.items()
        if (above := {x for x in its.rooms if ROOMS.index(x) < ROOMS.index(path.relative_to(PACKAGE).parts[0])})
    }
    assert not upwards


def test_a_feature_is_imported_by_itself_and_the_command_line_alone() -> None:
    elsewhere = {}
    for path in FILES:
        room, *inside = path.relative_to(PACKAGE).parts
        # Registries name features in strings, as those of installed packages are named.
        imported = re.findall(r"^\s*(?:from|import) nacdrive\.extras\.(\w+)", path.read_text(), re.MULTILINE)
        if room != "cli" and (others := set(imported) - ({inside[0]} if room == "extras" else set())):
            elsewhere[str(path.relative_to(PACKAGE))] = others
    assert not elsewhere


def test_rooms_know_nothing_of_the_public_names_above_them() -> None:
    """``nacdrive/__init__.py`` and ``api.py`` stand above the rooms, and the command line above them."""
    above = re.compile(r"^\s*from nacdrive import|nacdrive\.api\b", re.MULTILINE)
    assert not [str(path.relative_to(PACKAGE)) for path in FILES if above.search(path.read_text())]
    assert not re.search(r"^\s*(?:from|import) nacdrive\.cli", (PACKAGE / "api.py").read_text(), re.MULTILINE)


def circle_in(imports: Mapping[Path, set[Path]]) -> list[Path]:
    """A way from a file back to itself; [] where there is none."""
    done: set[Path] = set()

    def walk(path: Path, way: list[Path]) -> list[Path]:
        if path in way:
            return [*way[way.index(path) :], path]
        if path not in done:
            for other in sorted(imports.get(path, ())):
                if circle := walk(other, [*way, path]):
                    return circle
            done.add(path)
        return []

    return next(filter(None, (walk(path, []) for path in imports)), [])


def test_no_file_imports_itself_by_way_of_others(facts: dict[Path, Facts]) -> None:
    circle = circle_in({path: its.files for path, its in facts.items()})
    assert not circle, " -> ".join(str(path.relative_to(PACKAGE)) for path in circle)


@pytest.mark.parametrize(
    "back",
    [
        "from nacdrive.web.stream import Stream",
        "from nacdrive.web.stream import (\n    Stream,\n    pack,\n)",
        "def f():\n    from nacdrive.web import stream",
        "if TYPE_CHECKING:\n    from nacdrive.web.stream import Stream",
    ],
)
def test_a_circle_within_a_room_is_caught(back: str) -> None:
    stream, server = PACKAGE / "web/stream.py", PACKAGE / "web/server.py"
    files = {stream: facts_of("from nacdrive.web.server import LiveServer").files, server: facts_of(back).files}
    assert circle_in(files) == [stream, server, stream]


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


def test_no_verb_asks_for_an_environments_name(facts: dict[Path, Facts]) -> None:
    """What differs between environments stands in their registry."""
    outside = ((path.relative_to(PACKAGE), its.names_compared) for path, its in facts.items())
    assert not [f"{path}:{line}" for path, lines in outside if path.parts[0] != "envs" for line in lines]


CERTAIN_ENVIRONMENTS = re.compile(r"nacdrive\.envs\.(carracing|udacity|udacity_track)\b(?!\.options)")
KNOW_ONE_ENVIRONMENT = {
    *("tasks/carracing.py", "cli/doctor.py"),
    # The simulator that connects: what a drive of it ends with, and its pictures.
    "cli/drive.py",
    # Experts of one world.
    *("drivers/ppo.py", "drivers/pure_pursuit.py", "drivers/racing_line.py", "drivers/predictive.py"),
    # The page that has CarRacing in it.
    "extras/playground/html.py",
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
    source = "def f():\n    from nacdrive.cli import main\nif TYPE_CHECKING:\n    import nacdrive.web.server\n"
    facts = facts_of(source + "if env == 'udacity':\n    pass\n")
    assert (facts.rooms, facts.files) == ({"cli", "web"}, {PACKAGE / "cli/main.py", PACKAGE / "web/server.py"})
    assert facts.names_compared == ["5: env == 'udacity'"]
