"""What a release must have: a licence, metadata, type information, and pages that agree with them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nacdrive import __version__

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
HOLDER = "the nacdrive authors"


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def test_the_licence_is_there_and_named_in_the_metadata() -> None:
    licence = text("LICENSE")
    assert licence.startswith("MIT License") and HOLDER in licence
    assert PROJECT["license"] == "MIT" and PROJECT["license-files"] == ["LICENSE"]
    assert [author["name"] for author in PROJECT["authors"]] == [HOLDER]
    # An SPDX licence and a classifier for it exclude each other; package indexes refuse both together.
    assert not [line for line in PROJECT["classifiers"] if line.startswith("License ::")]


def test_the_pythons_that_are_classified_are_those_that_are_required() -> None:
    low, high = (numbers(bound) for bound in PROJECT["requires-python"].split(","))
    wanted = [f"Programming Language :: Python :: 3.{minor}" for minor in range(low[1], high[1])]
    assert [line for line in PROJECT["classifiers"] if re.search(r"3\.\d+$", line)] == wanted


def test_type_information_is_in_the_wheel() -> None:
    # The wheel takes the whole package but what git ignores.
    assert PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["nacdrive"]
    assert "Typing :: Typed" in PROJECT["classifiers"]
    assert (ROOT / "nacdrive/py.typed").read_bytes() == b""
    if (ROOT / ".git").exists():
        command = ["git", "check-ignore", "nacdrive/py.typed", "LICENSE"]
        assert subprocess.run(command, cwd=ROOT, capture_output=True).stdout == b""


def test_the_changelog_has_this_version_and_what_is_to_come() -> None:
    headings = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", text("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    assert __version__ in dict(headings)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for _, date in headings[1:])
    released = [numbers(version) for version, _ in headings[1:]]
    assert released == sorted(released, reverse=True)


def test_the_citation_agrees_with_the_package() -> None:
    lines = text("CITATION.cff").splitlines()
    # One plain key a line, or an item of a list below it: YAML that needs no parser to be known as sound.
    plain = re.compile(r'[a-z-]+:( ("[^"]+"|[^\s":][^":]*))?|  - (name: )?("[^"]+"|[^":]+)')
    assert all(plain.fullmatch(line) for line in lines)
    fields = dict(line.split(": ", 1) for line in lines if not line.startswith(" ") and ": " in line)
    assert fields["version"] == __version__ and fields["license"] == PROJECT["license"]
    assert fields["cff-version"] == "1.2.0" and f'  - name: "{HOLDER}"' in lines
    assert {"message", "title"} <= fields.keys() and "authors:" in lines


def test_files_that_contributing_names_are_there() -> None:
    folders = ("", "tests/layers/")
    names = re.findall(r"`([\w/]+(?:\.py|/))`", text("CONTRIBUTING.md"))
    assert names
    for name in names:
        assert any((ROOT / folder / name).exists() for folder in folders), name


@pytest.mark.parametrize("name", ["eventlet", "flask", "pillow", "python-socketio", "requests"])
def test_the_versions_that_are_installed_are_not_below_the_least(name: str) -> None:
    pinned = {
        line.partition("==")[0].lower(): numbers(line.partition("==")[2])
        for line in text("constraints.txt").splitlines()
        if "==" in line
    }
    asked = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    bounds = [line for line in asked if re.match(rf"{name}\W", line)]
    assert bounds and all(pinned[name] >= numbers(line.partition(">=")[2]) for line in bounds)


def test_hooks_before_a_commit_are_those_of_make_lint() -> None:
    hooks = re.findall(r"entry: (.+)", text(".pre-commit-config.yaml"))
    commands = {" ".join(entry.split()[:2]).replace(".venv/bin/", "$(BIN)/") for entry in hooks}
    assert {"$(BIN)/ruff check", "$(BIN)/ruff format", "$(BIN)/mypy"} < commands
    assert all(f"\t{command}" in text("Makefile") for command in commands)


def test_the_image_is_built_of_what_the_wheel_needs_and_runs_as_nobody_special() -> None:
    wheel = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {*wheel["packages"], *wheel["force-include"], *PROJECT["license-files"], PROJECT["readme"]}
    ignored = text(".dockerignore").splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored and kept == needed | {"pyproject.toml", "constraints.txt"}
    lines = text("Dockerfile").splitlines()
    copied = [line.split()[1] for line in lines if line.startswith("COPY") and "--from" not in line]
    assert copied == [".", "constraints.txt"] and all((ROOT / path).exists() for path in copied)
    last = max(number for number, line in enumerate(lines) if line.startswith("FROM"))
    user = next(line for line in lines[last:] if line.startswith("USER"))
    assert user != "USER root" and f"useradd --create-home --uid 10001 {user.split()[1]}" in text("Dockerfile")
    (ports,) = [line.split()[1:] for line in lines if line.startswith("EXPOSE")]
    assert all(f"| {port}, " in text("SECURITY.md") for port in ports) and len(ports) == 2
    assert text("constraints.txt").count("\ntorch==") == 1


HASTY = (
    "thread.join(20)\n",
    "process.communicate(timeout=20)\n",
    "def until(true, timeout_s: float = 20): ...\n",
    "until(lambda: done, 20)\n",
    "deadline = time.monotonic() + 20\n",
    "assert time.monotonic() - began < 20\n",
)


def test_hygiene_finds_what_should_not_be_committed(tmp_path: Path) -> None:
    bad = {"a.py": b"x = 1 \n", "b.md": b"one\r\n", "c.py": b"x = 1", "d.py": b"<<<<<<< ours\nx = 1\n"}
    for name, data in {**bad, "good.py": b"x = 1\n", "good.png": b"\r\n "}.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "tests").mkdir()
    for number, hasty in enumerate(HASTY):
        bad[f"tests/hasty_{number}.py"] = hasty.encode()
        (tmp_path / f"tests/hasty_{number}.py").write_text(hasty)
        # The same with more patience, as a pause, or where it is said to be meant.
        (tmp_path / f"tests/good_{number}.py").write_text(hasty.replace("20", "120"))
        (tmp_path / f"tests/good_pause_{number}.py").write_text(hasty.replace("20", "0.2"))
        (tmp_path / f"tests/good_marked_{number}.py").write_text(hasty.replace("\n", "  # real time\n"))
    files = sorted(str(path) for path in tmp_path.rglob("*") if path.is_file())
    done = subprocess.run([sys.executable, ROOT / "tools/hygiene.py", *files], capture_output=True, text=True)
    assert done.returncode == 1 and len(done.stdout.splitlines()) == len(bad) and "good" not in done.stdout
