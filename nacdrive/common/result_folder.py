"""Folders that hold results: never lost by accident, one writer at a time, and only nacdrive's own files are deleted.

A marker in the folder lists by name what nacdrive wrote into it; all else there is somebody's. What ``--overwrite``
replaces is put aside and deleted when the new result has its first file; a call that is refused before that leaves the
folder as it was.
"""

from __future__ import annotations

import atexit
import errno
import json
import os
import re
import shutil
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from nacdrive.common.errors import UserError

PARTIAL_SUFFIX = ".partial"
PARTIAL = re.compile(rf"\.(.+)\.\d+{re.escape(PARTIAL_SUFFIX)}")
RESULT_MARKER = ".nacdrive-result"
"""Marks a result folder; each line is the name of a file or folder (JSON text, relative) that nacdrive made."""
FULL = (errno.ENOSPC, errno.EDQUOT)
LOCK = ".nacdrive-lock"
REPLACED = ".nacdrive-replaced"
"""Where an old result lies until the new one has its first file."""
STAGING = ".nacdrive-staging"
"""Where what must be whole or absent is made; what a killed process left there is removed by the next."""
COMPLETE = ".nacdrive-complete"
"""What ``STAGING`` is renamed to when all is made: from that moment on it is what the folder holds."""
BOOKKEEPING = (RESULT_MARKER, LOCK, REPLACED, STAGING, COMPLETE)


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
Paths = Iterable[Path | str | None]


def result_folder(
    path: Path, *, overwrite: bool = False, resume: bool | None = None, reads: Paths = (), own: str = ""
) -> Path:
    """Make ``path`` ready to hold a result of a kind that may be resumed, or not (``resume`` is None); it is this
    process's until ``release_folders``.

    Raises:
        UserError: if the folder holds a result and neither is given, or both are, or it is to be resumed without the
            file or folder ``own`` that its kind begins with; if it holds anything that nacdrive did not make; if
            another process writes into it; if it is never overwritten, or holds one of ``reads`` (texts: if files).
    """
    if overwrite and resume:
        raise UserError("--overwrite and --resume contradict each other: give one of them.")
    paths = [Path(one) for one in reads if one and (isinstance(one, Path) or Path(one).is_file())]
    if overwrite and (inside := [one for one in paths if one.resolve().is_relative_to(path.resolve())]):
        raise UserError(f"{inside[0]} is read here, and --overwrite would delete it: give another --out.")
    held = _hold(path)
    held.results = True
    try:
        _recover(path)
        entries = [entry for entry in path.iterdir() if entry.name not in (LOCK, REPLACED)]
        marked = (path / RESULT_MARKER).is_file()
        full = any(entry.name != RESULT_MARKER for entry in entries)
        if full and not marked:
            raise UserError(f"{path} holds a recording, or files that nacdrive did not make: give another --out.")
        if full and not overwrite and not resume:
            ways = "--overwrite" if resume is None else "--resume, --overwrite,"
            raise UserError(f"{path} already holds a result: give {ways} or another --out.")
        if full and resume and own and not (path / own).exists():
            raise UserError(f"{path} holds another kind of result (no {own} is in it): give another --out.")
        if full and overwrite:
            refuse_special_place(path)
            if (other := next(foreign_files(path), None)) is not None:
                what = f"{other} was not made by nacdrive, so --overwrite leaves {path} as it is"
                raise UserError(f"{what}: move it away, or give another --out.")
            aside = path / REPLACED
            aside.mkdir(exist_ok=True)
            # The marker goes last.
            for entry in sorted(entries, key=lambda entry: entry.name == RESULT_MARKER):
                entry.replace(aside / entry.name)
            marked = False
        if not marked:
            (path / RESULT_MARKER).touch()
            held.marked = True
            _note_in_outer(path)
    except BaseException:
        _release(held)
        raise
    return path


def lock_folder(path: Path, owner: object) -> None:
    """Make ``path``, kept from other processes while ``owner`` lives; ``UserError`` if one has it, or no folder."""
    held = _hold(path)
    held.owners += 1
    weakref.finalize(owner, _disown, held)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from writing into ``folder``; if it was made for that and stays empty, it is removed."""
    held = _hold(folder)
    held.owners += 1
    try:
        yield
    finally:
        _disown(held)


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Yield an empty folder in a locked one, for what is moved into that by ``publish`` when the block ends well."""
    clear_staging(folder)
    staging = folder / STAGING
    staging.mkdir()
    try:
        yield staging
        staging.rename(folder / COMPLETE)
    except OSError as error:
        if error.errno in FULL:
            raise UserError(
                f"no space left on the disk while writing {folder}: nothing was written; free some space and run the "
                "same command again."
            ) from error
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def publish(folder: Path) -> None:
    """Move what was staged into ``folder``, what describes it last; may be stopped at any moment and called again."""
    complete = folder / COMPLETE
    if (folder / REPLACED).is_dir():
        _discard(folder / REPLACED)
    files = sorted(path for path in complete.rglob("*") if path.is_file() and path.name != LOCK)
    for path in sorted(files, key=lambda path: path.suffix == ".json"):
        target = folder / path.relative_to(complete)
        note_own(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
    shutil.rmtree(complete)


def clear_staging(folder: Path) -> None:
    """Remove what a killed process left half made in a locked folder."""
    if (folder / STAGING).is_dir():
        shutil.rmtree(folder / STAGING)


def release_folders(within: Path | None = None) -> None:
    """Give all folders (``within``) free: those into which nothing was written are as they were before."""
    for held in list(_held.values()):
        if within is None or held.path.is_relative_to(within.absolute()):
            with suppress(OSError):
                _release(held)


atexit.register(release_folders)


def partial_path(target: Path) -> Path:
    """Where the content of ``target`` is written until it is whole."""
    return target.with_name(f".{target.name}.{os.getpid()}{PARTIAL_SUFFIX}")


def partial_target(path: Path) -> Path | None:
    """The file whose unfinished content ``path`` holds; None if it is no such file."""
    match = PARTIAL.fullmatch(path.name)
    return path.with_name(match[1]) if match else None


def note_own(path: Path) -> None:
    """Note that nacdrive makes ``path``, in the marker of the result folder that it lies in, if it lies in one."""
    if (folder := _result_around(path)) is not None:
        _note(folder, path.relative_to(folder).as_posix())


def drop_replaced(path: Path) -> None:
    """Delete what the result around ``path`` replaces, for now the new one has a file."""
    if (folder := _result_around(path)) is not None and (folder / REPLACED).is_dir():
        _discard(folder / REPLACED)


def open_log(path: Path) -> IO[str]:
    """Open a text file of a result for appending; closing it is the caller's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    note_own(path)
    file = path.open("a", encoding="utf-8", newline="")
    drop_replaced(path)
    return file


def is_own(path: Path) -> bool:
    """Whether the marker of the result around ``path`` lists it, or what it is the unfinished content of."""
    folder = _result_around(path)
    target = partial_target(path) or path
    return folder is not None and target.relative_to(folder).as_posix() in own_names(folder)


def own_names(folder: Path) -> set[str]:
    """What the marker of a result folder lists, and with a slash behind them the folders in which that lies."""
    marker = folder / RESULT_MARKER
    if not marker.is_file():
        return set()
    status = marker.stat()
    cached = _names.get(marker)
    if cached is None or cached[0] != (status.st_ino, status.st_size):
        names: set[str] = set()
        for line in marker.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, RecursionError):
                _add(names, json.loads(line))
        cached = _names[marker] = ((status.st_ino, status.st_size), names)
    return cached[1]


_names: dict[Path, tuple[tuple[int, int], set[str]]] = {}
"""What was last read of each marker, with its inode and size: a log of images notes thousands of names."""


def _add(names: set[str], name: object) -> None:
    if isinstance(name, str):
        names |= {name, *(f"{parent}/" for parent in PurePosixPath(name).parents)}


def _note(folder: Path, name: str) -> None:
    marker = folder / RESULT_MARKER
    names = own_names(folder)
    if name not in names:
        data = f"{json.dumps(name)}\n".encode()
        size = marker.stat().st_size
        with marker.open("ab") as file:
            file.write(data)
        status = marker.stat()
        _add(names, name)
        # Workers write into the same marker: what they have added is read the next time.
        _names[marker] = ((status.st_ino, size + len(data)), names)


def _note_in_outer(path: Path) -> None:
    """Note a result folder as a part of the one around it that this process is making."""
    for parent in path.resolve().parents:
        if parent in _held and _held[parent].results:
            _note(_held[parent].path, (path.resolve() / RESULT_MARKER).relative_to(parent).as_posix())
            return


def _result_around(path: Path) -> Path | None:
    """The innermost result folder that ``path`` lies in; None of what is only staged."""
    if STAGING in path.parts:
        return None
    return next((folder for folder in path.parents if (folder / RESULT_MARKER).is_file()), None)


def refuse_special_place(path: Path) -> None:
    """Nothing is deleted in the working folder, home, a root or a repository, nor in one that holds any of these."""
    real = path.resolve()
    places = {"the working folder": Path.cwd().resolve(), "your home folder": Path.home().resolve()}
    for name, place in places.items():
        if place.is_relative_to(real):
            raise UserError(f"{path} is or holds {name}, where --overwrite deletes nothing: give another --out.")
    if real == Path(real.anchor) or (real / ".git").exists():
        raise UserError(f"{path} is a root or a repository, where --overwrite deletes nothing: give another --out.")


def foreign_files(folder: Path) -> Iterator[Path]:
    """What lies in a result folder and is not nacdrive's."""
    return _foreign(folder, folder, own_names(folder))


def _foreign(folder: Path, root: Path, own: set[str]) -> Iterator[Path]:
    """What lies in ``folder`` and is not nacdrive's; ``own`` are the names from ``root`` down that are."""
    for entry in sorted(folder.iterdir()):
        name = entry.relative_to(root).as_posix()
        if entry.name == LOCK or (folder == root and entry.name in BOOKKEEPING):
            continue
        if not entry.is_dir() or entry.is_symlink():
            target = partial_target(entry)
            if name not in own and (target is None or target.relative_to(root).as_posix() not in own):
                yield entry
        elif (entry / RESULT_MARKER).is_file():
            # A result of its own, unless it was made together with this one.
            yield from _foreign(entry, entry, own_names(entry)) if f"{name}/{RESULT_MARKER}" in own else [entry]
        elif name not in own and f"{name}/" not in own:
            yield next((path for path in sorted(entry.rglob("*")) if not path.is_dir()), entry)
        else:
            yield from _foreign(entry, root, own)


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
    """An open file that holds the folder's lock; None where the file system has no locks."""
    path = folder / LOCK
    while True:
        file = path.open("a+", encoding="utf-8")
        try:
            # Windows: whoever has the file open keeps others from removing it, but may be joined; better than nothing.
            with suppress(ModuleNotFoundError):
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            other = file.read().strip()
            file.close()
            raise UserError(
                f"another nacdrive{f' (process {other})' if other else ''} writes into {folder}: "
                "wait until it has ended, or give another folder."
            ) from error
        except OSError:
            file.close()
            return None
        # Whoever held it before may have removed the file between our opening and our locking it.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.truncate(0)
                # It is the lock without it, too, as on a full disk.
                with suppress(OSError):
                    os.write(file.fileno(), f"{os.getpid()}\n".encode())
                return file
        file.close()


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
        # A recording's folder is only locked, and ``settle`` knows what else goes when it is replaced.
        if held.results:
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
    clear_staging(path)
    if (path / COMPLETE).is_dir():
        publish(path)
    begun = any(entry.name not in BOOKKEEPING for entry in path.iterdir())
    aside = path / REPLACED
    if not aside.is_dir():
        if marked and not begun:
            (path / RESULT_MARKER).unlink(missing_ok=True)
    elif begun and (aside / RESULT_MARKER).is_file():
        _discard(aside)
    else:
        # Its marker is the last to be put aside and the first to come back: without one it was not put aside whole.
        for entry in sorted(aside.iterdir(), key=lambda entry: entry.name != RESULT_MARKER):
            entry.replace(path / entry.name)
        aside.rmdir()


def _discard(aside: Path) -> None:
    """Delete what was put aside; the marker goes last, so that a rest of it is never given back."""
    for entry in sorted(aside.iterdir(), key=lambda entry: entry.name == RESULT_MARKER):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    aside.rmdir()
