"""The options of recordings; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from nacdrive.common.options import Options


@dataclass(frozen=True, kw_only=True)
class LicenseOption(Options):
    """Who may use the recording."""

    license: str | None = None
    """Licence of the recording, such as CC-BY-4.0, CC0-1.0 or MIT; without one nobody else may use it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.license is not None:
            from nacdrive.datasets.manifest import check_license

            check_license(self.license)
