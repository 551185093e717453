"""The options of a teaching; imports nothing heavy."""

from __future__ import annotations

from pathlib import Path

from nacdrive.common.errors import UserError
from nacdrive.common.options import ControlOption, Result
from nacdrive.datasets.options import RecordingsOption


class TeachOptions(ControlOption, RecordingsOption, Result):
    """The page."""

    teach: bool = False
    """Learn at once from what a person at the page does in the policy's stead, together with --data, recordings that
    the policy has learnt from; the result is kept in --out. With --allow-control the page's Teach button begins it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teach:
            object.__setattr__(self, "allow_control", True)
        given = {"--data": self.data, "--out": self.out, "--resume": self.resume}
        if not self.allow_control and (names := [name for name, value in given.items() if value]):
            raise UserError(f"{' and '.join(names)} of a drive: for teaching alone. Add --teach, or leave it out.")

    def teach_folder(self, model: str) -> Path:
        return self.out or Path("runs") / f"teach-{model}"

    def corrections_of(self, model: str, source: str) -> Path:
        """Recording of what a person does in the stead of ``model``, if nobody says otherwise."""
        own = Path("recordings") / f"corrections-{source}-{model}"
        return self.teach_folder(model) / "corrections" if self.teach else own
