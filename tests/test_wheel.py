"""What is built for others: the wheel, installed in a folder of its own, drives from anywhere and writes nothing there.

The dependencies are those of the environment that the tests run in, so that nothing is downloaded; that all of them
are declared is a test of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest

from nacdrive import __version__
from nacdrive.common.optional import EXTRAS

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WHEEL = f"nacdrive-{__version__}-py3-none-any.whl"
BROUGHT = {"engineio": "python-socketio", "werkzeug": "flask", "wsproto": "simple-websocket"}
"""Packages that our code imports and a declared one brings along."""
BROUGHT |= {"Box2D": "gymnasium", "pygame": "gymnasium", "llvmlite": "numba"}
OPTIONAL = {"triton"}
"""Imported only where a build of torch for GPUs has brought it."""

DRIVE = """
import nacdrive, json, sys
from pathlib import Path
from nacdrive.cli.main import dispatch
from nacdrive.common.paths import shipped
print(json.dumps([nacdrive.__file__, *(str(shipped(kind)) for kind in ("agents", "recordings", "www"))]))
for line in (
    "recordings check recordings/carracing-sample",
    "drive --env carracing --model nac_exact.pt --headless --max-frames 24 --episodes 1 --expert none",
    "eval --model nac_steady.pt --episodes 1 --max-frames 24 --expert none --no-videos --workers 1 --out result",
):
    assert dispatch(line.split()) == 0, line
"""


def name_of(requirement: str) -> str:
    """The name in a requirement, as indexes compare it."""
    match = re.match(r"[\w.-]+", requirement)
    assert match is not None
    return re.sub(r"[-_.]+", "-", match[0]).lower()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built of it and of nothing else."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: it is in the extra 'dev'")
    folder = tmp_path_factory.mktemp("dist")

    def build(what: str, source: Path) -> None:
        command = [sys.executable, "-m", "hatchling", "build", "--target", what, "--directory", str(folder)]
        subprocess.run(command, cwd=source, check=True, capture_output=True)

    build("sdist", ROOT)
    with tarfile.open(folder / f"nacdrive-{__version__}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    build("wheel", folder / f"nacdrive-{__version__}")
    return folder


def content(folder: Path) -> dict[str, str]:
    """Path and checksum of every file in ``folder``, but what numba keeps beside Python's own compiled files."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".nbc", ".nbi"))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment with the wheel, read-only; its other packages are those of the tests."""
    venv = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(built / WHEEL)], check=True)
    site = next((venv / "lib").glob("python*")) / "site-packages"
    # Not as a folder of sites, so that an editable nacdrive there stays out.
    (site / "others.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}) + "\n")
    package = site / "nacdrive"
    before = content(package)
    folders = [package, *(path for path in package.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield venv
    for folder in folders:
        folder.chmod(0o755)
    # The super-user may write in spite of the modes.
    assert content(package) == before


def environment(home: Path) -> dict[str, str]:
    """The variables of somebody who has just installed it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NACDRIVE", "XDG"))}
    return {**kept, "HOME": str(home), "OMP_NUM_THREADS": "1"}


@pytest.mark.nightly
def test_the_wheel_holds_the_package_and_what_is_shipped_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(built / WHEEL) as archive:
        names = set(archive.namelist())
        metadata = archive.read(f"nacdrive-{__version__}.dist-info/METADATA").decode()
    assert {name.split("/")[0] for name in names} == {"nacdrive", f"nacdrive-{__version__}.dist-info"}
    assert not [name for name in names if name.endswith((".pyc", ".partial"))]
    tracked = {str(path.relative_to(ROOT).as_posix()) for path in (ROOT / "nacdrive").rglob("*.py")}
    assert tracked <= names and "nacdrive/py.typed" in names
    for shipped in (*(ROOT / "agents").rglob("*.pt"), *(ROOT / "server/www").rglob("*.*")):
        path = shipped.relative_to(ROOT).as_posix().replace("server/www", "www")
        assert f"nacdrive/_shipped/{path}" in names
    assert {"nacdrive/_shipped/recordings/carracing-sample/recording.json"} <= names
    assert f"nacdrive-{__version__}.dist-info/licenses/LICENSE" in names
    # Whatever is shipped has its line among the licences.
    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    parts = [name.split("/") for name in names if name.startswith("nacdrive/_shipped/")]
    for part in {"/".join(part[: 3 if part[2] == "www" else 4]) for part in parts}:
        assert f"`{part}`" in page, part
    # The page says that no fonts, pictures or programs of others are carried: none can hide outside the agents.
    rest = {Path(name).suffix for name in names if "dist-info" not in name and "_shipped/agents" not in name}
    assert rest == {".py", ".typed", ".js", ".css", ".html", ".svg", ".c", ".h", ".sh", ".csv", ".json", ".parquet"}
    assert "License-Expression: MIT" in metadata and f"Requires-Python: <3.15,{'>=3.11'}" in metadata


@pytest.mark.nightly
def test_the_sdist_holds_what_the_tests_need_and_nothing_that_was_made(built: Path) -> None:
    with tarfile.open(built / f"nacdrive-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"tests/test_wheel.py", "Makefile", "constraints.txt", "docs/nac.md", "examples/my_env.py"} <= names
    assert not [name for name in names if re.match(r"(runs|data|build|dist|\.venv)/", name)]


@pytest.mark.nightly
def test_it_drives_from_another_folder_with_what_the_wheel_brings(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "bin/python"), "-c", DRIVE]
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    places = json.loads(done.stdout.splitlines()[0])
    assert all(Path(place).is_relative_to(installed) for place in places), places
    metrics = json.loads((tmp_path / "result/metrics.json").read_text())
    assert metrics["episodes"][0]["seed"] == 4_000_000 and (tmp_path / "result/report.html").is_file()


@pytest.mark.nightly
def test_the_command_answers_without_an_environment_of_its_developers(installed: Path, tmp_path: Path) -> None:
    for line, text in ((["--version"], f"nacdrive {__version__}"), (["bench", "table", "--help"], "--budget")):
        command = [str(installed / "bin/nacdrive"), *line]
        done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
        assert done.returncode == 0 and text in done.stdout, done.stdout + done.stderr


@pytest.mark.nightly
def test_the_page_is_served_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    line = "drive --env carracing --model nac_steady.pt --page-port 0 --no-wait --max-frames 400 --expert none"
    with (tmp_path / "output").open("w+") as output:
        drive = subprocess.Popen(
            [str(installed / "bin/nacdrive"), *line.split()], cwd=tmp_path, env=environment(tmp_path), stdout=output,
            stderr=output,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + 120
            while not (match := re.search(r"http://127\.0\.0\.1:\d+/", (tmp_path / "output").read_text())):
                assert drive.poll() is None and time.monotonic() < deadline, (tmp_path / "output").read_text()
                time.sleep(0.2)
            served = {}
            for path in ("", "page.js", "page.css", "js/main.js", "css/layout.css", "icon.svg"):
                with urllib.request.urlopen(match[0] + path, timeout=120) as answer:
                    served[path] = answer.read()
        finally:
            drive.send_signal(signal.SIGINT)
            code = drive.wait(timeout=120)
    assert code == 130, (tmp_path / "output").read_text()
    front, script, style = (served.pop(path) for path in ("", "page.js", "page.css"))
    assert b"<script " in front and b"ControlBar" in script and served["css/layout.css"] in style
    assert all(body == (ROOT / "server/www" / path).read_bytes() for path, body in served.items())


installed_packages = cache(packages_distributions)


IMPORT = re.compile(r"^[ \t]*(?:from (\w[\w.]*) import |import (\w[\w., ]*)(?:#.*)?$)", re.MULTILINE)


@cache
def third_party() -> dict[str, str]:
    """Names of packages that ``nacdrive/`` imports from elsewhere, and a file that does."""
    users: dict[str, str] = {}
    for path in sorted((ROOT / "nacdrive").rglob("*.py")):
        for module, modules in IMPORT.findall(path.read_text(encoding="utf-8")):
            for name in [module] if module else modules.split(","):
                users.setdefault(name.strip().partition(" ")[0].partition(".")[0], str(path.relative_to(ROOT)))
    return {name: file for name, file in users.items() if name not in sys.stdlib_module_names and name != "nacdrive"}


def test_every_package_that_is_imported_is_declared() -> None:
    extras = PROJECT["optional-dependencies"]
    users = [line for name in extras if name not in ("dev", "docs", "bench") for line in extras[name]]
    assert {name_of(line) for line in PROJECT["dependencies"]} == {"torch", "numpy"}
    declared = {name_of(line) for line in (*PROJECT["dependencies"], *users)}
    provided = installed_packages()
    for module, file in third_party().items():
        if module in OPTIONAL:
            continue
        if module in BROUGHT:
            assert BROUGHT[module] in declared
            continue
        if module not in provided:
            # What an extra brings need not be installed here.
            assert name_of(module) in declared, f"{file} imports {module}, which pyproject.toml does not name"
            continue
        names = {name_of(name) for name in provided[module]}
        assert names & declared, f"{file} imports {module} of {sorted(names)}, which pyproject.toml does not name"


@pytest.mark.parametrize("module", BROUGHT)
def test_what_others_bring_along_they_still_bring(module: str) -> None:
    needed = {name_of(line) for line in requires(BROUGHT[module]) or ()}
    provided = {name_of(name) for name in installed_packages()[module]}
    assert needed & provided


def test_every_module_of_an_extra_is_named_with_it() -> None:
    extras = PROJECT["optional-dependencies"]
    declared = {extra: {name_of(line) for line in extras[extra]} for extra in EXTRAS}
    provided = installed_packages()
    known = {module for modules in EXTRAS.values() for module in modules}
    for extra, modules in EXTRAS.items():
        for module in modules:
            names = {name_of(name) for name in provided.get(module, [module])} | {BROUGHT.get(module)}
            assert names & declared[extra], f"{module} is not of the extra {extra}"
    core = {"torch", "numpy", "numba", "llvmlite", "triton"}
    assert not set(third_party()) - known - core


def test_nothing_is_declared_that_is_not_used() -> None:
    provided = installed_packages()
    used = {name_of(name) for module in third_party() for name in provided.get(module, [module])}
    # Read by torch's SummaryWriter; the extras name one another.
    used |= {"tensorboard", "nacdrive"}
    extras = PROJECT["optional-dependencies"]
    asked = [line for name in ("drive", "udacity", "rl", "viz", "data") for line in extras[name]]
    assert {name_of(line) for line in (*PROJECT["dependencies"], *asked)} <= used
