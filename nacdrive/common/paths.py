"""Where shipped things lie: beside the package in a checkout, inside it when installed from a wheel."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Literal

from nacdrive.common.errors import UserError, instead_of, unknown_name

PACKAGE = Path(__file__).resolve().parents[1]
IN_CHECKOUT = {"agents": "agents", "recordings": "recordings", "www": "server/www"}
MODEL_SUFFIXES = ".pt", ".onnx", ".safetensors"


def shipped(kind: Literal["agents", "recordings", "www"]) -> Path:
    """Folder of shipped agents, recordings or web pages."""
    inside = PACKAGE / "_shipped" / kind
    return inside if inside.is_dir() else PACKAGE.parent / IN_CHECKOUT[kind]


def expand_home(path: Path | str) -> Path:
    """``path`` with a home folder in the place of ``~``; ``UserError`` where nobody has that one."""
    with instead_of(RuntimeError, f"the home folder in {path} is not known: give the whole path."):
        return Path(path).expanduser()


def find_model(name: Path | str, task: str | None = None) -> Path:
    """The file ``name`` if it exists, or else the shipped model of that name: ``carracing/nac_steady``, or without the
    task ``nac_steady.pt``, ``nac_steady`` or ``nac-steady`` (of ``task``; CarRacing's if that is None). A ``UserError``
    names the shipped models or suggests the nearest.
    """
    given = expand_home(name)
    if given.exists() and not given.is_dir():
        return given
    folder, _, short = str(name).rpartition("/")
    task = folder or task or "carracing"
    known = {path.name: path for path in sorted((shipped("agents") / task).glob("*.pt"))} if "/" not in task else {}
    if not known and not folder:
        raise UserError(f"there is no model file {given}, and none is shipped for {task}: give the path of one.")
    if not known:
        tasks = sorted(path.name for path in shipped("agents").iterdir() if path.is_dir())
        raise UserError(f"there is no model file {given}: check the path, or name a shipped one of {', '.join(tasks)}.")
    for candidate in (short, f"{short}.pt", f"{short.replace('-', '_')}.pt"):
        if candidate in known:
            return known[candidate]
    if given.is_dir():
        raise UserError(f"{given} is a folder: give the file of a policy in it.")
    raise unknown_name(f"{'file or ' * bool(given.suffix)}model for {task}", short, known)


def is_model(name: str) -> bool:
    """Whether ``name`` is that of a model file, there or shipped, rather than of a recording."""
    with suppress(UserError):
        name = str(find_model(name))
    return Path(name).suffix in MODEL_SUFFIXES


def in_path(name: str) -> str:
    """``name`` as a part of a path."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)


def find_recording(folder: Path) -> Path:
    """``folder`` itself, or the shipped recording of that name where it does not exist.

    ``carracing-sample`` and ``recordings/carracing-sample`` so mean the same in every working folder.
    """
    if folder.exists() or folder.parent not in (Path("."), Path("recordings")):
        return folder
    inside = shipped("recordings") / folder.name
    return inside if folder.name and inside.is_dir() else folder


def data_folder() -> Path:
    """Where data sets lie: ``$NACDRIVE_DATA``, or ``data`` in the working folder."""
    return expand_home(os.environ.get("NACDRIVE_DATA") or "data")


def cache_folder() -> Path:
    """Where what can be computed again is kept: ``$NACDRIVE_CACHE``, or ``nacdrive`` in the user's cache folder."""
    if given := os.environ.get("NACDRIVE_CACHE"):
        return expand_home(given)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "nacdrive"
