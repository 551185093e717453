"""Folders that hold results: never lost by accident, one writer at a time, and only nacdrive's own files are deleted.

A marker in the folder lists by name what nacdrive wrote into it. What ``--overwrite`` replaces is put aside and deleted
when the new result has its first file; a call that is refused before that leaves the folder as it was.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import IO

from nacdrive.common.errors import UserError

PARTIAL_SUFFIX = ".partial"
RESULT_MARKER = ".nacdrive-result"
"""Marks a result folder; each line is the name of a file (JSON text, relative) that nacdrive wrote."""
LOCK = ".nacdrive-lock"
REPLACED = ".nacdrive-replaced"
"""Where an old result lies until the new one has its first file."""
LOGS = (
    *("metrics.jsonl", "episodes.jsonl", "expert*.jsonl", "results.jsonl", "log.jsonl", "lake*.jsonl"),
    *("mountain*.jsonl", "tensorboard/events.out.tfevents.*", "driving_log.csv", "IMG/*_*_*_*_*_*_*_*.jpg"),
    f".*{PARTIAL_SUFFIX}",
)
"""Own files that are written otherwise than whole, so that the marker may not list them; names from the folder down."""
WHOLE_FOLDERS = ("made-up",)
"""Folders with stand-ins for data sets, whose files have the names of the real ones."""


@dataclass
class _Held:
    """A folder that this process writes into."""

    path: Path
    lock: IO[str] | None
    made: list[Path] = field(default_factory=list)
    """Folders that were made for it, the outermost first."""
    marked: bool = False
    """Whether this process has put the marker in."""
    results: bool = False
    """Whether it is a result folder, which is held until all are released."""
    owners: int = 0
    """Objects that hold it besides."""


_held: dict[Path, _Held] = {}


def result_folder(path: Path, *, overwrite: bool = False, resume: bool = False) -> Path:
    """Make ``path`` ready to hold a result; it is this process's until ``release_folders``.

    Args:
        path: Is made if it does not exist.
        overwrite: Replace the result that is there.
        resume: Go on with the result that is there.

    Raises:
        UserError: if the folder holds a result and neither is given, or both are; if it holds anything that nacdrive
            did not make; if another process writes into it; if it is a place that is never overwritten.
    """
    if overwrite and resume:
        raise UserError("--overwrite and --resume contradict each other: give one of them.")
    held = _hold(path)
    held.results = True
    try:
        _recover(path)
        entries = [entry for entry in path.iterdir() if entry.name not in (LOCK, REPLACED)]
        marked = (path / RESULT_MARKER).is_file()
        full = any(entry.name != RESULT_MARKER for entry in entries)
        if full and not marked:
            raise UserError(f"{path} holds files that nacdrive did not make: give another --out.")
        if full and not overwrite and not resume:
            raise UserError(f"{path} already holds a result: give --resume, --overwrite, or another --out.")
        if full and overwrite:
            refuse_special_place(path)
            refuse_foreign(path)
            _move(path, entries, path / REPLACED)
            marked = False
        if not marked:
            (path / RESULT_MARKER).touch()
            held.marked = True
    except BaseException:
        _release(held)
        raise
    return path


def lock_folder(path: Path, owner: object) -> None:
    """Make ``path`` if it does not exist, and keep other processes from writing into it while ``owner`` lives.

    Raises:
        UserError: if another process does, or ``path`` is no folder.
    """
    held = _hold(path)
    held.owners += 1
    weakref.finalize(owner, _disown, held)


def release_folders() -> None:
    """Give all folders free: those into which nothing was written are as they were before."""
    for held in list(_held.values()):
        with suppress(OSError):
            _release(held)


atexit.register(release_folders)


def note_own(path: Path) -> None:
    """Note that nacdrive wrote ``path``, in the marker of the result folder that it lies in, if it lies in one."""
    for folder in path.parents:
        marker = folder / RESULT_MARKER
        if marker.is_file():
            name = json.dumps(path.relative_to(folder).as_posix())
            if name not in marker.read_text(encoding="utf-8").splitlines():
                with marker.open("a", encoding="utf-8") as file:
                    file.write(name + "\n")
            if (folder / REPLACED).is_dir():
                shutil.rmtree(folder / REPLACED)
            return


def refuse_special_place(path: Path) -> None:
    """Nothing is deleted in the working folder, home, a root or a repository, nor in a folder that holds one of these.

    Raises:
        UserError: if ``path`` is such a place.
    """
    real = path.resolve()
    places = {"the working folder": Path.cwd().resolve(), "your home folder": Path.home().resolve()}
    for name, place in places.items():
        if place.is_relative_to(real):
            raise UserError(f"{path} is or holds {name}, where --overwrite deletes nothing: give another --out.")
    if real == Path(real.anchor) or (real / ".git").exists():
        raise UserError(f"{path} is a root or a repository, where --overwrite deletes nothing: give another --out.")


def refuse_foreign(folder: Path) -> None:
    """Raise unless all that ``folder`` holds is nacdrive's own.

    Raises:
        UserError: naming what is not.
    """
    foreign = next(_foreign(folder, folder, set()), None)
    if foreign is not None:
        raise UserError(
            f"{foreign} was not made by nacdrive, so --overwrite leaves {folder} as it is: "
            "move it away, or give another --out."
        )


def _foreign(folder: Path, root: Path, own: set[str]) -> Iterator[Path]:
    """Files below ``folder`` that are not nacdrive's; ``own`` are the names from ``root`` down that are."""
    if (folder / RESULT_MARKER).is_file():
        root, own = folder, set()
        for line in (folder / RESULT_MARKER).read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                own.add(json.loads(line))
    for entry in sorted(folder.iterdir()):
        name = entry.relative_to(root).as_posix()
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in (*WHOLE_FOLDERS, REPLACED):
                yield from _foreign(entry, root, own)
        elif entry.name not in (RESULT_MARKER, LOCK) and name not in own and not _is_log(entry, root):
            yield entry


def _is_log(path: Path, root: Path) -> bool:
    """Whether ``path`` has the name of a log, in ``root`` or in a folder of it."""
    parts = path.relative_to(root).parts
    return any(fnmatch("/".join(parts[start:]), pattern) for start in range(len(parts)) for pattern in LOGS)


def _hold(path: Path) -> _Held:
    """Make the folder, and lock it unless this process has."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file: give the name of a folder.")
    if path.is_symlink() and not path.exists():
        raise UserError(f"{path} is a link to nothing: remove it, or give another folder.")
    key = path.resolve()
    if key in _held and path.is_dir():
        return _held[key]
    made = [folder for folder in (path, *path.parents) if not folder.exists()][::-1]
    path.mkdir(parents=True, exist_ok=True)
    try:
        lock = _lock(path)
    except BaseException:
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        raise
    _held[key] = _Held(path.absolute(), lock, made)
    return _held[key]


def _lock(folder: Path) -> IO[str] | None:
    """An open file that holds the folder's lock; None where the system or the file system has no locks."""
    path = folder / LOCK
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            if not _try_lock(file):
                file.close()
                return None
        except BlockingIOError as error:
            file.seek(0)
            other = file.read().strip()
            file.close()
            raise UserError(
                f"another nacdrive{f' (process {other})' if other else ''} writes into {folder}: "
                "wait until it has ended, or give another --out."
            ) from error
        # Whoever held it before may have removed the file between our opening and our locking it.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.truncate(0)
                file.write(f"{os.getpid()}\n")
                file.flush()
                return file
        file.close()


def _try_lock(file: IO[str]) -> bool:
    """Lock an open file; False where that cannot be had.

    Raises:
        BlockingIOError: if another process has locked it.
    """
    try:
        import fcntl
    except ModuleNotFoundError:
        # Windows: whoever has the file open keeps others from removing it, but may be joined; better than nothing.
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _disown(held: _Held) -> None:
    held.owners -= 1
    if held.owners == 0 and not held.results:
        with suppress(OSError):
            _release(held)


def _release(held: _Held) -> None:
    """Give a folder free, and take back what was done to it if nothing was written."""
    path = held.path
    if _held.get(path.resolve()) is held:
        del _held[path.resolve()]
    if path.is_dir():
        _recover(path, held.marked)
        (path / LOCK).unlink(missing_ok=True)
    if held.lock is not None:
        held.lock.close()
    for folder in reversed(held.made):
        with suppress(OSError):
            # Only where it is empty.
            folder.rmdir()


def _recover(path: Path, marked: bool = True) -> None:
    """Give back a result that was put aside, or delete it if that which was to replace it has begun."""
    begun = any(entry.name not in (LOCK, REPLACED, RESULT_MARKER) for entry in path.iterdir())
    aside = path / REPLACED
    if begun:
        if aside.is_dir():
            shutil.rmtree(aside)
    elif aside.is_dir():
        (path / RESULT_MARKER).unlink(missing_ok=True)
        _move(aside, list(aside.iterdir()), path)
        aside.rmdir()
    elif marked:
        (path / RESULT_MARKER).unlink(missing_ok=True)


def _move(source: Path, entries: list[Path], target: Path) -> None:
    """Move ``entries`` of a folder into another on the same disk; the marker goes last, for it tells whose they are."""
    target.mkdir(exist_ok=True)
    for entry in sorted(entries, key=lambda entry: entry.name == RESULT_MARKER):
        entry.replace(target / entry.name)
