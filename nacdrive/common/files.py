"""Files that are whole or absent."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nacdrive.common.errors import UserError
from nacdrive.common.foreign_json import read_json as read_json
from nacdrive.common.result_folder import FULL, drop_replaced, note_own, partial_path
from nacdrive.common.result_folder import open_log as open_log
from nacdrive.common.result_folder import result_folder as result_folder

WHY = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), "permission is denied: give another path, or change its permissions"),
    errno.EROFS: "the disk is read-only: give a path elsewhere",
    errno.ENOTDIR: "a part of the path is a file where a folder belongs: check the path",
    errno.EEXIST: "a file lies where a folder belongs: check the path",
    errno.EISDIR: "it is a folder where a file belongs: check the path",
    errno.ENOENT: "it does not exist: check the path",
    errno.ENAMETOOLONG: "the name is too long: give a shorter one",
    errno.ELOOP: "its links lead round in a circle: check the path",
    errno.ENOTEMPTY: "the folder is not empty: give another path",
    errno.EINVAL: "there can be no such path: check it",
    errno.EBUSY: "it is in use: close what uses it, or give another path",
    **dict.fromkeys(FULL, "no space is left on the disk: free some space and run the same command again"),
    errno.EFBIG: "a file grew too large for this disk, or for ulimit -f: give a path elsewhere, or raise the limit",
    errno.EIO: "the disk reports an error: give a path elsewhere",
    errno.ENODEV: "there is no such device: check the path",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n), or give fewer --workers",
}


def os_error_sentence(error: BaseException | None) -> str | None:
    """What an error of the system means for the path that the user gave; None where it is none of a path or a disk."""
    if not isinstance(error, OSError) or error.errno not in WHY:
        return None
    why = WHY[error.errno]
    where = error.filename2 if error.filename2 is not None else error.filename
    if "temporary directory" in str(error):
        return "no folder for temporary files can be written: free some space, or name one elsewhere in TMPDIR."
    if where is None:
        return f"{why}." if error.errno in (*FULL, errno.EMFILE, errno.EIO, errno.EFBIG) else None
    return f"cannot use {os.fsdecode(where) if isinstance(where, (str, bytes)) else where}: {why}."


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it was made of, says that no space is left."""
    is_full = isinstance(error, OSError) and error.errno in FULL
    return is_full or (error is not None and is_disk_full(error.__cause__))


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``target``; rename it onto ``target`` only if the block succeeds. Where the disk is
    full (a ``UserError``) the partial file is removed, and ``target`` keeps its old content.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_path(target)
    try:
        note_own(target)
        yield partial
        with partial.open("rb+") as handle:
            os.fsync(handle.fileno())
        partial.replace(target)
        drop_replaced(target)
    except OSError as error:
        if error.errno in FULL:
            raise UserError(
                f"no space left on the disk while writing {target}: what was complete before is kept; "
                "free some space and run the same command again (with --resume where there is that option)."
            ) from error
        if error.errno == errno.EFBIG:
            error.filename = str(target)
        raise
    finally:
        partial.unlink(missing_ok=True)


def refuse_existing(*targets: Path, overwrite: bool, flag: str = "--out") -> None:
    """Before the work: ``UserError`` (``flag`` names it) if a file would be replaced unasked, or a folder by a file."""
    for target in targets:
        if target.is_dir():
            raise UserError(f"{target} is a folder: give the name of a file with {flag}.")
        if not overwrite and os.path.lexists(target):
            raise UserError(f"{target} exists: give --overwrite or another {flag}.")


def write_text(target: Path, text: str) -> None:
    """Write ``text`` to ``target`` atomically (UTF-8)."""
    with atomic_path(target) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(target: Path, value: Any) -> None:
    """Write ``value`` as indented JSON to ``target`` atomically; NaN is refused, for JSON has none."""
    write_text(target, json.dumps(value, indent=2, allow_nan=False) + "\n")


def file_checksum(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
