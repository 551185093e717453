"""Where the public data sets come from, and their download with checksums."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nacdrive.common.errors import UserError, check_known, quoted
from nacdrive.common.paths import cache_folder

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError, RuntimeError)
"""What a damaged archive raises; RuntimeError also one that is encrypted, or packed by a method that Python lacks."""
SUFFIXES = (".tar.xz", ".tar.gz", ".tgz", ".tar", ".zip")


def is_archive(path: Path) -> bool:
    """Whether a file is named as an archive that ``unpacked`` knows."""
    return path.name.endswith(SUFFIXES) and path.is_file()


def unpacked(archive: Path) -> Path:
    """Folder with an archive's content; unpacks it the first time."""
    stat = archive.stat()
    key = hashlib.sha256(f"{archive.resolve()} {stat.st_size} {stat.st_mtime_ns}".encode()).hexdigest()[:12]
    folder = cache_folder() / "unpacked" / f"{archive.name.split('.')[0]}-{key}"
    if folder.is_dir():
        return folder
    print(f"unpacking {archive} into {folder}", file=sys.stderr)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(partial)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(partial, filter="data")
    except DAMAGED as error:
        raise UserError(f"{archive} cannot be unpacked ({error}): fetch it again.") from error
    except OSError as error:
        raise UserError(
            f"{archive} cannot be unpacked into {folder.parent} ({error}): "
            "free some space, set $NACDRIVE_CACHE to another folder, or unpack it yourself."
        ) from error
    else:
        # Another process may have been quicker.
        if not folder.is_dir():
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


@dataclass(frozen=True)
class RemoteFile:
    """One file of a data set."""

    name: str  # as it is called on the disk
    md5: str  # checksum of the file as it comes
    urls: tuple[str, ...]  # where it lies; tried in order
    unpacked_md5: str = ""  # checksum of the content of a gzip file, where that is published too


@dataclass(frozen=True)
class DataSet:
    """A public data set."""

    name: str
    what: str  # for a list, a few words
    home: str  # page of its makers or keepers
    files: tuple[RemoteFile, ...] = ()  # what fetch gets; empty where no lasting address with a checksum is known


_KNOWN = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
DATA_SETS = {
    name: DataSet(
        name,
        about["what"],
        about["home"],
        tuple(RemoteFile(**{**file, "urls": tuple(file["urls"])}) for file in about["files"]),
    )
    for name, about in _KNOWN.items()
}


def find_data_set(name: str) -> DataSet:
    """A data set by name."""
    check_known("data set", name, DATA_SETS)
    return DATA_SETS[name]


def fetch(data_set: DataSet, folder: Path, *, bar: Callable[[str], Any] = lambda name: False) -> list[Path]:
    """Download into ``folder`` what is not there yet, and check it; ``bar`` makes a file's bar, with tqdm's methods.
    ``UserError`` if the data set has to be fetched by hand, the network or the server fails, or what came has another
    checksum (it is not kept).
    """
    if not data_set.files:
        raise UserError(
            f"{data_set.name} has no address with a published checksum: get it from {data_set.home} "
            f"and put it into {folder}, unpacked or as .zip or .tar.xz."
        )
    with quoted(f"{folder} cannot be written (", "): give another --folder, or free some space.", OSError):
        folder.mkdir(parents=True, exist_ok=True)
        return [fetch_file(file, folder, bar) for file in data_set.files]


def fetch_file(file: RemoteFile, folder: Path, bar: Callable[[str], Any]) -> Path:
    """Download one file from the first address that answers with the right content."""
    target = folder / file.name
    if target.is_file():
        if is_published(target, file):
            return target
        what = f"{target} is there and is not the published file (md5 {md5_of(target)}, expected {file.md5})"
        raise UserError(f"{what}: move it away to fetch it anew.")
    problems = []
    for url in file.urls:
        if (problem := download(url, file, folder, bar)) is None:
            return target
        problems.append(problem)
    raise UserError(f"{file.name} could not be fetched: {'; '.join(problems)}.")


def download(url: str, file: RemoteFile, folder: Path, bar: Callable[[str], Any]) -> str | None:
    """Try one address; returns what was wrong, or None if the file is there now."""
    import pooch
    import requests

    pooch.get_logger().setLevel("ERROR")
    downloader = pooch.HTTPDownloader(progressbar=bar(file.name), chunk_size=2**16)
    try:
        pooch.retrieve(url, f"md5:{file.md5}", file.name, folder, downloader=downloader)
    except requests.HTTPError as error:
        return f"{url} answers {error.response.status_code if error.response is not None else 'with an error'}"
    except requests.RequestException:
        return f"{url} cannot be reached (is there a network?)"
    except ValueError as error:
        # Pooch has deleted what came; its message alone knows the checksum.
        received = re.search(r"but got ([0-9a-f]+)", str(error))
        return (
            f"what {url} sends has md5 {received[1] if received else '?'}, expected was {file.md5}, so it was not kept"
        )
    return None


def is_published(path: Path, file: RemoteFile) -> bool:
    """Whether a file is the published one; packing it anew does not matter where the content's checksum is known."""
    if md5_of(path) == file.md5:
        return True
    try:
        return bool(file.unpacked_md5) and md5_of(path, gzip.open) == file.unpacked_md5
    except (OSError, EOFError, zlib.error):
        return False


def md5_of(path: Path, opener: Callable[..., Any] = open) -> str:
    """Checksum of a file, or of what ``opener`` makes of it."""
    with opener(path, "rb") as handle:
        return hashlib.file_digest(handle, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
