"""Files that are whole or absent: atomic writes, result folders that are never overwritten by accident."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nacdrive.common.errors import UserError

PARTIAL_SUFFIX = ".partial"
RESULT_MARKER = ".nacdrive-result"


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``target``; rename it onto ``target`` only if the block succeeds.

    Raises:
        UserError: if the disk is full (the partial file is removed, ``target`` keeps its old content).
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}{PARTIAL_SUFFIX}")
    try:
        yield partial
        with partial.open("rb+") as handle:
            os.fsync(handle.fileno())
        partial.replace(target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"no space left on the disk while writing {target}: what was complete before is kept; "
                "free some space and run the same command with --resume."
            ) from error
        raise
    finally:
        partial.unlink(missing_ok=True)


def write_text(target: Path, text: str) -> None:
    """Write ``text`` to ``target`` atomically (UTF-8)."""
    with atomic_path(target) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(target: Path, value: Any) -> None:
    """Write ``value`` as indented JSON to ``target`` atomically; NaN is refused, for JSON has none."""
    write_text(target, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read JSON from ``path``; a missing or damaged file gives a ``UserError``."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist: check the path.") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not readable as JSON ({error}): it is damaged or another kind of file.") from error


def result_folder(path: Path, *, overwrite: bool = False, resume: bool = False, mark: bool = True) -> Path:
    """Make ``path`` ready to hold a result; a folder that holds something is kept unless told otherwise.

    A marker file tells nacdrive's own folders: no other folder is ever deleted, whatever ``--overwrite`` says.
    ``mark=False`` is for what knows its own folders by other means and deletes them itself.

    Raises:
        UserError: if the folder holds files and neither ``overwrite`` nor ``resume`` is given, or both are, or if it
            is to be overwritten and nacdrive did not make it.
    """
    if overwrite and resume:
        raise UserError("--overwrite and --resume contradict each other: give one of them.")
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file: give the name of a folder.")
    if path.is_dir() and any(path.iterdir()):
        if overwrite and not (path / RESULT_MARKER).exists():
            raise UserError(
                f"{path} holds files that nacdrive did not make, which it will not delete: give another --out."
            )
        if overwrite:
            shutil.rmtree(path)
        elif not resume:
            raise UserError(f"{path} already holds a result: give --resume, --overwrite, or another --out.")
    path.mkdir(parents=True, exist_ok=True)
    if mark:
        (path / RESULT_MARKER).touch()
    return path
