"""Write what the Udacity simulator would have written: ``driving_log.csv`` and ``IMG`` with three cameras."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from types import TracebackType

from nacdrive.common.errors import UserError
from nacdrive.common.files import PARTIAL_SUFFIX, atomic_path, result_folder
from nacdrive.datasets.udacity_log import IMAGES, LOG, MPH_PER_MPS

CAMERAS = ("center", "left", "right")


class UdacityLogWriter:
    """Appends rows to a log; a crash at any moment loses the row in progress and nothing else.

    Images come first, each renamed into place when it is whole, then the row in one write: a row in the log always
    has its images. Paths are relative to the log (``IMG/...``), so that the folder can be moved.
    """

    def __init__(self, folder: Path | str, *, resume: bool = False, overwrite: bool = False) -> None:
        """Start a log in ``folder``, or go on with the one that is there.

        Raises:
            UserError: if the folder holds something and neither is asked for.
        """
        self.folder = result_folder(Path(folder), resume=resume, overwrite=overwrite)
        (self.folder / IMAGES).mkdir(exist_ok=True)
        log = self.folder / LOG
        if log.exists():
            whole = log.read_bytes().rpartition(b"\n")
            with atomic_path(log) as partial:
                partial.write_bytes(whole[0] + whole[1])
        self._log = log.open("a", encoding="utf-8", newline="")

    def add(
        self,
        images: tuple[bytes, bytes | None, bytes | None],
        taken: datetime,
        *,
        steering: float,
        throttle: float,
        brake: float,
        speed_mps: float,
    ) -> None:
        """Add one row.

        Args:
            images: JPEG bytes of the centre, left and right camera; None where there is no such camera.
            taken: when, to the millisecond; the names of the images tell it.
            steering: -1 full left .. 1 full right.
            throttle: 0 .. 1.
            brake: 0 .. 1.
            speed_mps: metres per second; the log has miles per hour.

        Raises:
            UserError: if the disk is full.
        """
        stamp = f"{taken:%Y_%m_%d_%H_%M_%S}_{taken.microsecond // 1000:03d}"
        names = [f"{IMAGES}/{camera}_{stamp}.jpg" if data else "" for camera, data in zip(CAMERAS, images, strict=True)]
        numbers = (steering, throttle, brake, speed_mps * MPH_PER_MPS)
        try:
            for name, data in zip(names, images, strict=True):
                if data:
                    # Not synced to the disk: three times a row that would be felt while driving.
                    partial = self.folder / f"{name}{PARTIAL_SUFFIX}"
                    partial.write_bytes(data)
                    partial.replace(self.folder / name)
            self._log.write(",".join([*names, *map(plain_number, numbers)]) + "\n")
            self._log.flush()
        except OSError as error:
            raise UserError(f"{self.folder / LOG} cannot be written ({error.strerror}): free some space.") from error

    def close(self) -> None:
        """Close the file."""
        self._log.close()

    def __enter__(self) -> UdacityLogWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def plain_number(value: float) -> str:
    """Up to seven digits, as .NET writes a float: ``0``, ``-0.3744849``, ``7.9E-05``."""
    return f"{value:.7G}" if value else "0"
