"""Archives that a data set comes in, unpacked once into the user's cache."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import shutil
import sys
import tarfile
import tempfile
import zipfile
import zlib
from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.common.paths import cache_folder

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError, RuntimeError)
"""What a damaged archive raises; RuntimeError also one that is encrypted, or packed by a method that Python lacks."""
SUFFIXES = (".tar.xz", ".tar.gz", ".tgz", ".tar", ".zip")


def is_archive(path: Path) -> bool:
    """Whether a file is named as an archive that ``unpacked`` knows."""
    return path.name.endswith(SUFFIXES) and path.is_file()


def unpacked(archive: Path) -> Path:
    """Folder with an archive's content; unpacks it the first time.

    Raises:
        UserError: if the archive is damaged, or there is no room for its content.
    """
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
