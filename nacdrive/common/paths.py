"""Where shipped things lie: beside the package in a checkout, inside it when installed from a wheel."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

from nacdrive.common.errors import UserError, unknown_name

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parent
IN_CHECKOUT = {"agents": "agents", "recordings": "recordings", "www": "server/www"}


def shipped(kind: Literal["agents", "recordings", "www"]) -> Path:
    """Folder of shipped agents, recordings or web pages."""
    inside = PACKAGE / "_shipped" / kind
    return inside if inside.is_dir() else CHECKOUT / IN_CHECKOUT[kind]


def find_model(name: str, task: str) -> Path:
    """Resolve a model name: the file itself if it exists, or else the shipped ``agents/TASK/NAME``.

    Raises:
        UserError: if neither exists; the sentence names the shipped models or suggests the nearest.
    """
    given = Path(name).expanduser()
    if given.exists():
        return given
    folder = shipped("agents") / task
    known = {path.name: path for path in sorted(folder.glob("*.pt"))}
    if not known:
        raise UserError(f"there is no model file {given}, and none is shipped for {task}: give one with --model.")
    if given.parent != Path("."):
        raise UserError(f"there is no model file {given}: check the path, or name a shipped one ({', '.join(known)}).")
    for candidate in (name, f"{name}.pt", f"{name.replace('-', '_')}.pt"):
        if candidate in known:
            return known[candidate]
    raise unknown_name(f"model for {task}", name, known)


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
    return Path(os.environ.get("NACDRIVE_DATA") or "data").expanduser()


def cache_folder() -> Path:
    """Where what can be computed again is kept: ``$NACDRIVE_CACHE``, or ``nacdrive`` in the user's cache folder."""
    if given := os.environ.get("NACDRIVE_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "nacdrive"
