"""The options of recordings; imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from nacdrive.common.errors import UserError
from nacdrive.common.options import Options


class LicenseOption(Options):
    """Where the result goes."""

    license: str | None = None
    """Licence of the recording, such as CC-BY-4.0, CC0-1.0 or MIT; without one nobody else may use it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.license is not None:
            from nacdrive.datasets.manifest import check_license

            check_license(self.license)


class RecordingOption(Options):
    """What is read."""

    positional: ClassVar[tuple[str, ...]] = ("data",)

    data: Path
    """Folder of the recording, or of the data to read; the first word without an option's name."""


class RecordingsOption(Options):
    """What is read."""

    positional: ClassVar[tuple[str, ...]] = ("data",)
    wanted: ClassVar[str] = ""
    """What to name, where there is nothing to do without data."""

    data: tuple[Path, ...] = ()
    """Folders of recordings, or of results; the words without an option's name. train, eval: of udacity also the
    simulator's own logs (driving_log.csv). If not given, train takes what nacdrive record makes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wanted and not self.data:
            raise UserError(f"name {self.wanted}.")


class EpisodeOption(Options):
    """What is read."""

    episode: int = 0
    """Which episode of the recording, from 0."""
